"""The verdict: what people said and saw, held against the books."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple

from palaver.engine.texts import MAY_BE_DUPLICATE, not_compacted_alone
from palaver.model.transcript import Role
from palaver.model.turn import REPEATS_AFTER_CRASH, BusyMode, Delivery, Inbound, InboxState, OutboxState, Received
from palaver.store.conversations.history import ABANDONED
from palaver.store.records import DELIVERY_COLUMNS, INBOX_COLUMNS, delivery_of, entries_of, received_of
from palaver.testkit.chat import Chat
from palaver.testkit.updates import Message
from tests.simulation.database import SharedDatabase
from tests.simulation.scenery import Scenery

__all__ = ["Books"]

_TOKEN = re.compile(r"\bm\d+\b")
_OPEN_TURNS = "SELECT count(*) FROM turns WHERE state NOT IN ('done', 'failed', 'parked')"
_PAUSED = "(state = 'interrupted' AND stopped_by IS NULL AND key NOT IN (SELECT key FROM ready_queue))"
_NOT_SUMMARISED = not_compacted_alone("").partition(":")[0]
_DROPPED = "an answer"
"""How the reason ends for which a turn was dropped that asked for something: the command that did it is answered."""


class _Place(NamedTuple):
    account: str | None
    chat: str | None
    thread: str | None

    @classmethod
    def of(cls, inbound: Inbound) -> "_Place":
        source = inbound.source
        return cls(source.account, source.chat_id, source.thread_id)


class Books:
    def __init__(self, database: SharedDatabase, scenery: Scenery) -> None:
        self._database = database
        self._scenery = scenery
        self._chats = scenery.world.chats

    def undone(self, *, is_paused: bool = False) -> list[str]:
        """What still has to be done before anything can be judged.

        A gateway in a crash loop `is_paused`: interrupted turns wait for a message, a command or a calm start.
        """
        open_turns = f"{_OPEN_TURNS} AND NOT {_PAUSED}" if is_paused else _OPEN_TURNS
        counts = {
            "unacknowledged": sum(len(self._scenery.world.unacknowledged(name)) for name in self._scenery.accounts),
            "waiting": sum(self._keeps_waiting(each) for each in self._at_the_moment()),
            "open turns": self._count(open_turns),
            "owed": self._count("SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending')"),
            "never accepted": len(list(self._not_accepted())),
        }
        return [f"{name}: {number}" for name, number in counts.items() if number]

    def asked(self) -> list[Received]:
        """To whom the agent has put a question that they have not answered yet: what they said last."""
        parked = {row[0] for row in self._rows("SELECT no FROM turns WHERE state = 'parked'")}
        return list({each.turn: each for each in self._at_the_moment() if each.turn in parked}.values())

    def _keeps_waiting(self, received: Received) -> bool:
        """Whether it waits for anything but a person's answer; a command does not wait for that."""
        asks = self._rows("SELECT key FROM turns WHERE state = 'parked'")
        is_command = received.inbound.text.startswith("/")
        return received.state is InboxState.WAITING and (is_command or (received.key.text,) not in asks)

    def problems(self) -> list[str]:
        found = (
            self._accepted_once,
            self._turns_in_order,
            self._heard_in_order,
            self._entered_once,
            self._answered,
            self._shown_once,
            self._shown_in_place,
            self._shown_in_order,
            self._parts_in_order,
        )
        return [problem for check in found for problem in check()]

    # What is in the books

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._database.db.execute(sql).fetchall()

    def _count(self, sql: str) -> int:
        return self._rows(sql)[0][0]

    @cached_property
    def _received(self) -> list[Received]:
        return self._at_the_moment()

    def _at_the_moment(self) -> list[Received]:
        sql = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no ORDER BY i.no"  # noqa: S608
        return [received_of(row) for row in self._rows(sql)]

    @cached_property
    def _deliveries(self) -> list[Delivery]:
        return [delivery_of(row) for row in self._rows(f"SELECT {DELIVERY_COLUMNS} FROM outbox ORDER BY id")]  # noqa: S608

    @cached_property
    def _by_turn(self) -> dict[int, list[Received]]:
        found: dict[int, list[Received]] = defaultdict(list)
        for received in self._received:
            if received.turn is not None:
                found[received.turn].append(received)
        return found

    @cached_property
    def _answers(self) -> dict[int, list[Received]]:
        """What each turn answers; a summary that nobody asked for, what the turn before it in its session does."""
        found: dict[int, list[Received]] = {}
        latest: dict[int, list[Received]] = {}
        for number, session in self._rows("SELECT no, session_no FROM turns ORDER BY no"):
            found[number] = latest[session] = self._by_turn.get(number) or latest.get(session, [])
        return found

    @cached_property
    def _keys(self) -> dict[str, list[tuple[Chat, Message]]]:
        """What was shown, by the key it was sent under, in order."""
        found: dict[str, list[tuple[Chat, Message]]] = defaultdict(list)
        for chat in self._chats.values():
            for message in chat.shown:
                found[message.key or ""].append((chat, message))
        return found

    def _not_accepted(self) -> Iterator[str]:
        known = set(self._rows("SELECT account, chat, message_id FROM inbox"))
        for chat in self._chats.values():
            for message in chat.said:
                for account in sorted(chat.accounts):
                    if (account, chat.id, message.id) not in known:
                        yield f"{account} {chat.id} {message.id}"

    # Verdicts

    def _accepted_once(self) -> Iterator[str]:
        yield from (f"lost: {name}" for name in self._not_accepted())
        times = Counter((_Place.of(each.inbound), each.inbound.source.message_id) for each in self._received)
        yield from (f"accepted {count} times: {name}" for name, count in times.items() if count > 1)
        bots = {person.id for chat in self._chats.values() for person in chat.people if person.is_bot}
        for received in self._received:
            text = received.inbound.text
            is_bot = received.inbound.source.user_id in bots
            match received.state:
                case InboxState.REFUSED:
                    fits = is_bot
                case InboxState.DONE | InboxState.FAILED if received.turn is None:
                    fits = text.startswith("/") or received.reason == ABANDONED
                case InboxState.DONE | InboxState.FAILED:
                    fits = not is_bot and (not text.startswith("/") or text.startswith("/compress"))
                case _:
                    fits = False
            if not fits:
                yield f"message {received.number} ({text[:20]}) ended as {received.state} in turn {received.turn}"

    def _turns_in_order(self) -> Iterator[str]:
        latest: dict[str, int] = {}
        for received in self._received:
            if received.turn is not None:
                if received.turn < latest.get(received.key.text, 0):
                    yield f"message {received.number} is in turn {received.turn}, before its predecessors"
                latest[received.key.text] = received.turn

    def _heard_in_order(self) -> Iterator[str]:
        """What the platform told in order was accepted in order."""
        if self._scenery.faults.reorder or self._scenery.faults.delay:
            return
        latest: dict[tuple[str | None, str | None], int] = {}
        for received in self._received:
            source = received.inbound.source
            place, number = (source.account, source.chat_id), int(source.message_id or 0)
            if number < latest.get(place, 0):
                yield f"message {number} of {place} was accepted after {latest[place]}"
            latest[place] = number

    def _entered_once(self) -> Iterator[str]:
        entries = entries_of(self._rows("SELECT id, body FROM entries ORDER BY id"))
        users = Counter((str(entry.turn), entry.message_id) for entry in entries if entry.role is Role.USER)
        wanted = Counter(
            (str(received.turn), received.inbound.source.message_id)
            for received in self._received
            if received.turn is not None and not received.inbound.text.startswith("/")
        )
        for what in sorted((users - wanted) + (wanted - users), key=str):
            yield f"message {what[1]} is {users[what]} times in the transcript of turn {what[0]}, not {wanted[what]}"
        others = (entry for entry in entries if entry.role is not Role.USER)
        written = Counter((entry.turn, entry.role.value, entry.at.isoformat(), entry.text) for entry in others)
        for what, times in written.items():
            if times > 1:
                yield f"written {times} times: {what}"

    def _answered(self) -> Iterator[str]:
        replies: dict[int, str] = defaultdict(str)
        for delivery in self._deliveries:
            if delivery.turn is not None:
                replies[delivery.turn] += delivery.outbound.text
        said: dict[str, set[str]] = defaultdict(set)
        for received in self._received:
            said[received.key.text] |= set(_TOKEN.findall(received.inbound.text))
        for number, state, stop, error in self._rows("SELECT no, state, stopped_by, error FROM turns ORDER BY no"):
            messages = self._by_turn.get(number, [])
            if not messages:  # then the conversation was to be summarised, and only a failure is reported
                told = replies[number]
                yield from (f"turn {number} says {told}" for _ in told[:1] if not told.startswith(_NOT_SUMMARISED))
                continue
            leaked = set(_TOKEN.findall(replies[number])) - said[messages[0].key.text]
            if leaked:
                yield f"turn {number} says {sorted(leaked)} of another conversation"
            cut_short = stop is not None or self._scenery.busy is BusyMode.INTERRUPT
            token = _TOKEN.findall(messages[-1].inbound.text)
            if state == "done" and not cut_short and token and token[-1] not in replies[number]:
                yield f"turn {number} does not answer {token}: {replies[number][:80]!r}"
            if state == "failed" and not replies[number] and not error.endswith(_DROPPED):
                yield f"turn {number} failed in silence"

    def _shown_once(self) -> Iterator[str]:
        for delivery in self._deliveries:
            shown = [message for _, message in self._keys.get(delivery.idempotency_key, [])]
            edited = self._edited(delivery)
            may_be_lost = delivery.outbound.is_passing  # It is not sent again.
            if delivery.state is OutboxState.DELIVERED and not shown and not edited and not may_be_lost:
                yield f"delivery {delivery.number} is delivered but not to be seen"
            if delivery.state is not OutboxState.DELIVERED and not delivery.error:
                yield f"delivery {delivery.number} is {delivery.state} without a reason"
            marked = [message for message in shown if MAY_BE_DUPLICATE in message.text]
            times = len(shown) + bool(edited)
            if times > 1 + REPEATS_AFTER_CRASH or times - len(marked) > 1:
                yield f"delivery {delivery.number} was shown {times} times, {len(marked)} marked"

    def _edited(self, delivery: Delivery) -> bool:
        outbound = delivery.outbound
        if outbound.edits is None:
            return False
        message = self._chats[outbound.chat_id].find(outbound.edits)
        return message is not None and message.text.startswith(outbound.text)

    def _shown_in_place(self) -> Iterator[str]:
        for delivery in self._deliveries:
            outbound = delivery.outbound
            for chat, message in self._keys.get(delivery.idempotency_key, []):
                if (chat.id, message.author, message.thread) != (
                    outbound.chat_id,
                    outbound.account,
                    outbound.thread_id,
                ):
                    yield f"delivery {delivery.number} was shown in {chat.id} {message.thread}"
            if delivery.turn is not None:
                last = _Place.of(self._answers[delivery.turn][-1].inbound)
                if last != _Place(outbound.account, outbound.chat_id, outbound.thread_id):
                    yield f"delivery {delivery.number} goes to {outbound.chat_id}, not to {last}"
        known = {delivery.idempotency_key for delivery in self._deliveries}
        for key in self._keys:
            if key not in known and not key.startswith("draft"):
                yield f"shown but not owed: {key}"

    def _shown_in_order(self) -> Iterator[str]:
        """In each conversation, answers come in the order of turns, and their parts in order."""
        latest: dict[str, tuple[int, int]] = {}
        for delivery in self._deliveries:
            place = self._place_of(delivery)
            # What got lost on its way may come at any time.
            if delivery.turn is None or place is None or delivery.may_be_duplicate:
                continue
            key = self._answers[delivery.turn][-1].key.text
            before, number = latest.get(key, (-1, 0))
            if place < before:
                yield f"delivery {delivery.number} was shown before {number}"
            else:
                latest[key] = (place, delivery.number)

    def _parts_in_order(self) -> Iterator[str]:
        """What no turn owes comes in the order of its parts, too."""
        latest: dict[tuple[str, ...], int] = {}
        rows = self._rows("SELECT id, cause_kind, cause_id, cause_detail FROM outbox WHERE cause_kind IS NOT NULL")
        causes = {number: tuple(cause) for number, *cause in rows}
        for delivery in reversed(self._deliveries):
            place = self._place_of(delivery)
            if delivery.number in causes and place is not None and not delivery.may_be_duplicate:
                cause = causes[delivery.number]
                if place < latest.get(cause, -1):
                    yield f"delivery {delivery.number}, {cause}, was shown too early"
                latest[cause] = place

    def _place_of(self, delivery: Delivery) -> int | None:
        """Where in its chat it was first to be seen."""
        outbound = delivery.outbound
        chat = self._chats[outbound.chat_id]
        seen = (
            place
            for place, message in enumerate(chat.messages)
            if message.key == delivery.idempotency_key or (outbound.edits is not None and message.id == outbound.edits)
        )
        return next(seen, None)
