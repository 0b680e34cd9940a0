"""Outbox: messages to send, one after the other within a chat, each settled with a receipt."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

from palaver.db.transaction import OUTBOX, Lock, Notify, Row, Statements, Transaction, Value, keyed, transaction
from palaver.model.errors import BadArgument, StaleFence
from palaver.model.source import account_text, encode_id
from palaver.model.turn import Delivery, Outbound, OutboxState, advance, resolve_unclear
from palaver.store.conversations.attachment_refs import add_refs
from palaver.store.queue.cause import CAUSE_COLUMNS, OF_MESSAGE, OF_TURN, CauseKind, SendCause, cause_of
from palaver.store.records import (
    DELIVERY_COLUMNS,
    REPLIES,
    SET_BODY,
    body_values,
    chat_columns,
    delivery_of,
    file_digests,
    micros,
    outbound_body,
    outbound_of,
    placeholders,
    readable,
)
from palaver.store.results import Departure, RepeatSafety

if TYPE_CHECKING:
    from palaver.protocols.hooks import EventSubscription, GatewayEvent

T = TypeVar("T")

_SEND = Notify(OUTBOX)
OPEN_SEND = "('due', 'claimed', 'sending')"
"""The states of what is still to be sent, as a list for SQL."""
# The chat can have got another id since the message was written.
CURRENT_CHAT = "coalesce((SELECT m.new_chat FROM chat_moves m WHERE m.account = ? AND m.server = ? AND m.chat = ?), ?)"
# After everything already queued for the chat, even if the clock of another worker is ahead.
_CREATED = (
    "(SELECT CASE WHEN max(e.created) >= ? THEN max(e.created) + 1 ELSE ? END FROM outbox e"
    f" WHERE e.account = ? AND e.server = ? AND e.chat = {CURRENT_CHAT} AND e.state IN {OPEN_SEND})"
)
_ENQUEUE = (
    "INSERT INTO outbox (id, account, server, chat, state, due, created, body, checksum)"
    f" VALUES (?, ?, ?, {CURRENT_CHAT}, 'due', ?, {_CREATED}, ?, ?)"
)


def place_values(outbound: Outbound) -> tuple[Value, ...]:
    """Return the values of account, server and `CURRENT_CHAT`."""
    account, server, chat = chat_columns(outbound)
    return account, server, account, server, chat, chat


def _row(outbound: Outbound, now: datetime, due: datetime | None = None) -> tuple[Value, ...]:
    moment, place = micros(now), place_values(outbound)
    return *place, micros(due or now), moment, moment, *place, *body_values(outbound_body(outbound))


def _files(outbound: Outbound) -> tuple[str, ...]:
    return file_digests([outbound.file] if outbound.file else [])


def enqueue_replies(
    turn: int, replies: Sequence[Outbound], now: datetime, due: datetime | None = None
) -> Transaction[None]:
    """Enqueue the replies of a turn, due now or later. The same turn and ordinal cannot be written twice."""
    if len(replies) > REPLIES:  # More would get the numbers of the next turn.
        allowed = f"at most {REPLIES}"
        raise BadArgument("too many replies", found=str(len(replies)), allowed=allowed, example="the first of them")
    rows: list[tuple[Value, ...]] = [
        (turn * REPLIES + ordinal, *_row(reply, now, due)) for ordinal, reply in enumerate(replies)
    ]
    filed = {turn * REPLIES + each: _files(reply) for each, reply in enumerate(replies) if reply.file}
    return _enqueue_rows(rows, filed)


@transaction
def _enqueue_rows(rows: list[tuple[Value, ...]], filed: Mapping[int, Sequence[str]]) -> Statements[None]:
    if rows:
        yield _ENQUEUE, rows
        if filed:
            yield from add_refs("out", filed)
        yield _SEND


@transaction
def enqueue(outbound: Outbound, cause: SendCause, now: datetime) -> Statements[int | None]:
    """Send something that is no reply of a turn. Return its number, or None if this cause has sent it already."""
    yield Lock("numbers below zero in the outbox")
    rows = yield (
        f"INSERT INTO outbox (id, {CAUSE_COLUMNS}, account, server, chat, state, due, created, body, checksum)"
        " SELECT coalesce(min(id), 0) - 1, CAST(? AS TEXT), CAST(? AS TEXT), CAST(? AS TEXT), ?,"
        f" CAST(? AS TEXT), CAST(? AS TEXT), {CURRENT_CHAT}, 'due', ?, {_CREATED}, ?, CAST(? AS BIGINT)"
        " FROM outbox WHERE id < 0"
        f" ON CONFLICT ({CAUSE_COLUMNS}) WHERE cause_kind IS NOT NULL DO NOTHING RETURNING id",
        (*cause.columns, *_row(outbound, now)),
    )
    for (number,) in rows:
        yield from add_refs("out", {number: _files(outbound)})
    yield _SEND
    return rows[0][0] if rows else None


@transaction
def enqueue_parts(parts: Sequence[Outbound], cause: SendCause, now: datetime) -> Statements[int]:
    """Send something in several parts, in their order. Return how many of them were not sent before."""
    numbers: list[int | None] = []
    for part, outbound in enumerate(parts):
        numbers.append((yield from enqueue(outbound, cause._replace(part=part), now)))
    return len(numbers) - numbers.count(None)


@transaction
def enqueue_events(
    subscriptions: "Sequence[EventSubscription]", events: "Iterable[GatewayEvent]", text: str = ""
) -> Statements[None]:
    """Send events to the accounts that subscribe to them. `text` is the delivered answer, if it was one."""
    for event in events:
        for subscription in subscriptions:
            if outbound := subscription.message(event, text):
                cause = _event_cause(event, account_text(outbound.platform, outbound.account))
                yield from enqueue(outbound, cause, event.at)


@transaction
def with_events(
    step: Transaction[T], subscriptions: "Sequence[EventSubscription]", events: "Iterable[GatewayEvent]"
) -> Statements[T]:
    """Do a step and send events in the same transaction, so that subscribers get them exactly if it is committed."""
    result = yield from step
    yield from enqueue_events(subscriptions, events)
    return result


def _event_cause(event: "GatewayEvent", account: str) -> SendCause:
    """Name the turn or session that the event is about, because the event is forgotten with it."""
    if event.delivery is not None:
        return SendCause(CauseKind.DELIVERED, event.turn or "", f"{event.delivery}:{account}")
    detail = f"{event.turn or ''}:{event.kind.value}:{event.at.timestamp():.6f}:{account}"
    return SendCause(CauseKind.EVENT, event.session or "", detail)


@transaction
def delete_sends(numbers: Sequence[int]) -> Statements[None]:
    """Delete messages, sent or not. The row with the last number stays, empty, so that no other gets that number."""
    if not numbers:
        return
    last = yield "SELECT min(id) FROM outbox WHERE id < 0", ()
    yield "DELETE FROM outbox WHERE id = ?", [(number,) for number in numbers if number != last[0][0]]
    if last[0][0] in numbers:
        yield f"{_EMPTY} WHERE id = ?", (NOBODY, NOBODY, *body_values(nothing_to_nobody()), last[0][0])


_EMPTY = (
    "UPDATE outbox SET cause_kind = NULL, cause_id = NULL, cause_detail = NULL, part = NULL,"
    " account = ?, server = '', chat = ?, state = 'delivered', worker = NULL, claim_until = NULL,"
    f" receipt = NULL, error = NULL, {SET_BODY}"
)
NOBODY = "forgotten"


def nothing_to_nobody() -> bytes:
    """Return the body of a send that only keeps its number."""
    return outbound_body(Outbound(platform=NOBODY, chat_id=NOBODY, text=""))


@transaction
def keep_notice_number(number: int, now: datetime) -> Statements[None]:
    """Store an empty send under a number below zero: the next ones get lower numbers."""
    yield (
        "INSERT INTO outbox (id, account, chat, state, due, created, body, checksum)"
        " VALUES (?, ?, ?, 'delivered', ?, ?, ?, ?)",
        (number, NOBODY, NOBODY, micros(now), micros(now), *body_values(nothing_to_nobody())),
    )


Chat = tuple[str, str, str]
"""Account, server and chat, as `chat_columns` returns them."""


@transaction
def claim(
    worker: str,
    now: datetime,
    lease: timedelta,
    *,
    accounts: Collection[str] | None = None,
    limit: int = 32,
    besides: Collection[Chat] = (),
    doubt: datetime | None = None,
) -> Statements[list[Delivery]]:
    """Claim due messages for this worker: in each chat only the oldest, and none in the chats in `besides`.

    What belongs to the time before `doubt` can have been sent before commits were lost, so it is marked.
    """
    if accounts is not None and not accounts:
        return []
    groups = _groups(accounts)
    busy = [_among(besides, group) for group in groups]
    heads = " UNION ALL ".join(
        f"SELECT id, due FROM ({_heads(group, f'AND NOT {_IN_CHATS.format(_places(chats))}' if chats else '')}) AS h"
        for group, chats in zip(groups, busy, strict=True)
    )
    values = (
        each
        for group, chats in zip(groups, busy, strict=True)
        for each in (micros(now), *group, *chain.from_iterable(chats), limit)
    )
    rows = yield (
        "UPDATE outbox SET state = 'claimed', worker = ?, claim_until = ? WHERE id IN ("
        f" SELECT id FROM ({heads}) AS owed ORDER BY due, id LIMIT ?) RETURNING {_CLAIMED}",
        (worker, micros(now + lease), *values, limit),
    )
    if doubt and rows:
        rows = yield from _mark_repeatable(rows, doubt)
    gone = yield from find_gone([row[0] for row in rows])
    found = yield from _trusted(rows)
    claimed = [replace(each, is_gone=True) if each.number in gone else each for each in found]
    return sorted(claimed, key=lambda delivery: (delivery.due, delivery.number))


_CLAIMED = f"{DELIVERY_COLUMNS}, account, server, checksum"


def _mark_repeatable(rows: Sequence[Row], doubt: datetime) -> Statements[list[Row]]:
    """Mark claimed messages that were written, or answer what was received, before commits were lost."""
    fresh: dict[int, Row] = {}
    for number in [row[0] for row in rows]:
        cause = yield from get_cause(number)
        of_turn = number // REPLIES if number > 0 else cause.number if cause and cause.kind in OF_TURN else None
        of_message = cause.number if cause and cause.kind in OF_MESSAGE else None
        marked = yield (
            "UPDATE outbox SET times_unclear = 1 WHERE id = ? AND times_unclear = 0 AND (created < ? OR EXISTS"
            f" (SELECT 1 FROM inbox i WHERE (i.turn_no = ? OR i.no = ?) AND i.received < ?)) RETURNING {_CLAIMED}",
            (number, micros(doubt), of_turn or 0, of_message or 0, micros(doubt)),
        )
        fresh |= {row[0]: row for row in marked}
    return [fresh.get(row[0], row) for row in rows]


IN_DOUBT = "its row is damaged: palaver doctor --repair restores it if it can"


def _trusted(rows: Sequence[Row]) -> Statements[list[Delivery]]:
    """Return the deliveries of claimed rows. Nothing is sent that cannot be read or is not as it was written."""
    found: list[Delivery] = []
    for row in rows:
        *_, chat, account, server, checksum = row
        send = next(readable(_send_in, [row]), None)
        if send and checksum in {None, crc32(row[1])} and (yield from _is_addressed_to(send[0], account, server, chat)):
            found.append(send[1])
            continue
        state = OutboxState.UNCLEAR if send else OutboxState.DEAD
        yield (
            "UPDATE outbox SET state = ?, worker = NULL, claim_until = NULL, error = ? WHERE id = ?",
            (state.value, IN_DOUBT, row[0]),
        )
    return found


def _send_in(row: Row) -> tuple[Outbound, Delivery]:
    """Return a message as it was written, and its delivery."""
    outbound = outbound_of(row[1])
    return outbound, delivery_of(row[:-3], outbound)


def _is_addressed_to(outbound: Outbound, account: str, server: str, chat: str) -> Statements[bool]:
    """Return whether a message was written to this chat, under the id that the chat has or had."""
    written = chat_columns(outbound)
    if written == (account, server, chat):
        return True
    moved = yield (
        "SELECT 1 FROM chat_moves WHERE account = ? AND server = ? AND chat = ? AND new_chat = ?",
        (account, server, written[2], chat),
    )
    return written[:2] == (account, server) and bool(moved)


_MAX_SINGLE_ACCOUNTS = 100


def _groups(accounts: Collection[str] | None) -> list[tuple[str, ...]]:
    """Return each account as a group, or all in one if they are too many for a statement. () means every account."""
    names = tuple(sorted(set(accounts or ())))
    return [(name,) for name in names] if 0 < len(names) <= _MAX_SINGLE_ACCOUNTS else [names]


_FIRST_IN_CHAT = (
    "NOT EXISTS (SELECT 1 FROM outbox e WHERE e.account = o.account AND e.chat = o.chat AND e.server = o.server"
    f" AND e.state IN {OPEN_SEND} AND (e.created, e.id) < (o.created, o.id))"
)
_IN_CHATS = "(o.account, o.server, o.chat) IN (VALUES {})"


def _heads(accounts: Sequence[str], condition: str = "") -> str:
    """Return SQL for the oldest message of each chat. With one account it reads no more rows than it claims."""
    served = f" AND o.account IN ({', '.join('?' * len(accounts))})" if accounts else ""
    return (
        f"SELECT o.id, o.due FROM outbox o WHERE o.state = 'due' AND o.due <= ?{served} {condition}"
        f" AND {_FIRST_IN_CHAT} ORDER BY o.due, o.id LIMIT ? /*pg FOR UPDATE SKIP LOCKED*/"
    )


def _among(chats: Iterable[Chat], accounts: Collection[str]) -> list[Chat]:
    """Return the chats of these accounts, some of them twice: few lengths make few statements to prepare."""
    found = [chat for chat in chats if not accounts or chat[0] in accounts]
    return found + found[-1:] * ((1 << (len(found) - 1).bit_length()) - len(found)) if found else []


def _places(chats: Sequence[Chat]) -> str:
    return ", ".join(["(?, ?, ?)"] * len(chats))


@transaction
def list_owed(chats: Collection[Chat], now: datetime) -> Statements[set[Chat]]:
    """Return those of the chats in which a message is due."""
    found = _among(chats, ())
    if not found:
        return set()
    rows = yield (
        f"SELECT DISTINCT o.account, o.server, o.chat FROM outbox o WHERE o.state IN {OPEN_SEND} AND o.state = 'due'"
        f" AND o.due <= ? AND {_IN_CHATS.format(_places(found))} AND {_FIRST_IN_CHAT}",
        (micros(now), *chain.from_iterable(found)),
    )
    return {(account, server, chat) for account, server, chat in rows}


def begin_send(delivery: Delivery, worker: str, until: datetime) -> Transaction[Delivery]:
    """Record that the request of a claimed message leaves now; it takes until then at most. Return what is sent.

    Only from here on can a crash leave unclear whether it arrived.
    """
    return keyed(f"send {delivery.number}", _begin_send(delivery, worker, until))


@transaction
def _begin_send(delivery: Delivery, worker: str, until: datetime) -> Statements[Delivery]:
    begun = replace(delivery, state=advance(delivery.state, OutboxState.SENDING), attempts=delivery.attempts + 1)
    # Repeated after a commit without an answer, it finds what it did by its deadline.
    rows = yield (
        f"UPDATE outbox SET state = 'sending', attempts = ?, claim_until = ? WHERE {_HELD}"
        " AND ((attempts = ? AND state = 'claimed') OR (attempts = ? AND state = 'sending' AND claim_until = ?))"
        " RETURNING id",
        (
            *(begun.attempts, micros(until), *_fence_of(delivery, worker)),
            *(delivery.attempts, begun.attempts, micros(until)),
        ),
    )
    _refuse_stale(delivery, rows)
    return begun


_HELD = "id = ? AND worker = ? AND created = ?"
"""A send that nobody has taken over, with the values of `_fence_of`: a number can be given again, as a turn's can."""


def _fence_of(delivery: Delivery, worker: str) -> tuple[Value, ...]:
    return delivery.number, worker, micros(delivery.created)


def _refuse_stale(delivery: Delivery, written: Sequence[Row]) -> None:
    if not written:
        raise StaleFence("delivery", delivery.number, delivery.attempts)


@transaction
def find_gone(numbers: Sequence[int]) -> Statements[set[int]]:
    """Return those that go to chats known to be gone."""
    if not numbers:
        return set()
    rows = yield (
        "SELECT o.id FROM outbox o JOIN gone_chats g"
        " ON g.account = o.account AND g.server = o.server AND g.chat = o.chat"
        f" WHERE o.id IN ({', '.join('?' * len(numbers))})",
        tuple(numbers),
    )
    return {row[0] for row in rows}


@transaction
def make_due_now(platform: str, account: str | None, chat: str, now: datetime) -> Statements[None]:
    """Make everything that waits for a chat due now."""
    yield (
        "UPDATE outbox SET due = ? WHERE account = ? AND chat = ?"
        f" AND state IN {OPEN_SEND} AND state = 'due' AND +due > ?",
        (micros(now), account_text(platform, account), encode_id(chat), micros(now)),
    )
    yield _SEND


@transaction
def end_pauses(platform: str, account: str | None, now: datetime) -> Statements[None]:
    """Make what waits for an account due now, but not possible duplicates and what the platform asked to send later."""
    yield (
        "UPDATE outbox SET due = ? WHERE account = ? AND state = 'due' AND due > ?"
        " AND times_unclear = 0 AND rate_limited = 0",
        (micros(now), account_text(platform, account), micros(now)),
    )
    yield _SEND


@transaction
def has_pending(outbound: Outbound) -> Statements[bool]:
    """Return whether anything is still to be sent to the chat of this message."""
    rows = yield (
        f"SELECT 1 FROM outbox WHERE account = ? AND server = ? AND chat = ? AND state IN {OPEN_SEND} LIMIT 1",
        chat_columns(outbound),
    )
    return bool(rows)


@transaction
def settle_send(
    delivery: Delivery,
    worker: str,
    state: OutboxState,
    *,
    receipt: str | None = None,
    error: str | None = None,
    due: datetime | None = None,
    rate_limited: bool = False,
) -> Statements[OutboxState]:
    """Record the outcome of a send that was begun, or give a claim back. Return it.

    If the chat has another id by now, a dead message becomes due there.
    """
    if state is OutboxState.DEAD and (yield from _is_moved(delivery)):
        state = OutboxState.DUE
    yield from _settle(delivery, worker, state, receipt, error, due, times_unclear=delivery.times_unclear)
    if rate_limited:
        yield "UPDATE outbox SET rate_limited = 1 WHERE id = ?", (delivery.number,)
    return state


def _is_moved(delivery: Delivery) -> Statements[bool]:
    rows = yield (
        "UPDATE outbox SET chat = m.new_chat FROM chat_moves m"
        " WHERE id = ? AND m.account = ? AND m.server = ? AND m.chat = ? RETURNING id",
        (delivery.number, *chat_columns(delivery.outbound)),
    )
    return bool(rows)


@transaction
def rewrite(number: int, outbound: Outbound) -> Statements[None]:
    """Write the content of a send anew."""
    yield f"UPDATE outbox SET {SET_BODY} WHERE id = ?", (*body_values(outbound_body(outbound)), number)


@transaction
def resend_as(delivery: Delivery, plain: Outbound, worker: str, now: datetime, *, error: str) -> Statements[None]:
    """Make it due again as a plainer message: without an edit, a thread or a reply that the platform refused."""
    yield from rewrite(delivery.number, plain)
    yield from settle_send(delivery, worker, OutboxState.DUE, error=error, due=now)


@transaction
def mark_unclear(
    delivery: Delivery, worker: str, due: datetime, *, safe: bool, error: str, crashed: bool = False
) -> Statements[OutboxState]:
    """Nobody knows whether it arrived: `resolve_unclear` says what is done about it, not before it is due."""
    state, times = resolve_unclear(delivery, safe=safe, crashed=crashed)
    yield from _settle(delivery, worker, state, None, error, due, times_unclear=times)
    return state


def _settle(
    delivery: Delivery,
    worker: str,
    state: OutboxState,
    receipt: str | None,
    error: str | None,
    due: datetime | None,
    *,
    times_unclear: int,
) -> Statements[None]:
    advance(delivery.state, state)
    rows = yield (
        "UPDATE outbox SET state = ?, receipt = ?, error = ?, due = coalesce(?, due), times_unclear = ?,"
        " claim_until = NULL, worker = NULL, rate_limited = 0"
        f" WHERE {_HELD} AND attempts = ? AND state = ? RETURNING id",
        (
            state.value,
            receipt,
            error,
            due and micros(due),
            times_unclear,
            *_fence_of(delivery, worker),
            delivery.attempts,
            delivery.state.value,
        ),
    )
    _refuse_stale(delivery, rows)


@transaction
def reclaim_sends(
    worker: str,
    now: datetime,
    *,
    safe: RepeatSafety,
    alone: bool = False,
    kept_back: Collection[Departure] = (),
    running: Collection[int] = (),
) -> Statements[list[Delivery]]:
    """Take messages from workers that are gone. Return those that may have been sent, unlike the claimed ones.

    Those that were `kept_back` were not sent either, although that was recorded as about to happen. Those that are
    `running` here are not lost, however late they are.
    """
    is_lost = (
        f"state IN {OPEN_SEND} AND state = ? AND (claim_until < ? OR (? = 1 AND worker <> ?))"
        f" AND NOT (worker = ? AND id IN ({placeholders((0, *running))}))"
    )
    values = micros(now), int(alone), worker, worker, 0, *running
    waiting = yield (
        "UPDATE outbox SET state = 'due', worker = NULL, claim_until = NULL WHERE id IN ("
        f" SELECT id FROM outbox WHERE {is_lost} /*pg FOR UPDATE SKIP LOCKED*/) RETURNING id",
        (OutboxState.CLAIMED.value, *values),
    )
    rows: list[Row] = yield (
        f"SELECT {_CLAIMED}, worker FROM outbox WHERE {is_lost} ORDER BY +id /*pg FOR UPDATE SKIP LOCKED*/",
        (OutboxState.SENDING.value, *values),
    )
    owners = {row[0]: row[-1] for row in rows}
    lost: list[Delivery] = []
    for delivery in (yield from _trusted([row[:-1] for row in rows])):
        owner = owners[delivery.number]
        if Departure("send", delivery.number, delivery.attempts, owner) in kept_back:
            times = delivery.times_unclear
            yield from _settle(delivery, owner, OutboxState.DUE, None, None, None, times_unclear=times)
            continue
        is_safe = safe.covers(delivery.outbound)
        yield from mark_unclear(delivery, owner, now, safe=is_safe, error="its sender disappeared", crashed=True)
        lost.append(delivery)
    if rows or waiting:
        yield _SEND
    return lost


@transaction
def release_claims(worker: str, known: Collection[int]) -> Statements[None]:
    """Make due again what this worker claimed, but for what it knows: the claim was not answered."""
    yield (
        f"UPDATE outbox SET state = 'due', worker = NULL, claim_until = NULL WHERE state IN {OPEN_SEND}"
        f" AND state = 'claimed' AND worker = ? AND id NOT IN ({placeholders((0, *known))})",
        (worker, 0, *known),
    )


@transaction
def list_unreported(now: datetime) -> Statements[list[Delivery]]:
    """Return the first sends that have stayed unclear since the last report of such sends."""
    reported = "SELECT 1 FROM outbox n WHERE n.cause_kind = ? AND n.created >= o.due"
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS} FROM outbox o WHERE state = 'unclear' AND due <= ?"
        f" AND NOT EXISTS ({reported}) ORDER BY due, id LIMIT 32",
        (micros(now), CauseKind.UNCLEAR.value),
    )
    return list(readable(delivery_of, rows))


@transaction
def count_due() -> Statements[int]:
    rows = yield "SELECT count(*) FROM outbox WHERE state = 'due'", ()
    return rows[0][0]


@transaction
def get_delivery(number: int) -> Statements[Delivery | None]:
    rows = yield f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id = ?", (number,)
    return next(readable(delivery_of, rows), None)


@transaction
def get_cause(number: int) -> Statements[SendCause | None]:
    rows = yield f"SELECT {CAUSE_COLUMNS} FROM outbox WHERE id = ?", (number,)
    return cause_of(*rows[0]) if rows else None


@transaction
def settle_unclear(number: int, state: OutboxState, now: datetime) -> Statements[bool]:
    """Settle an unclear send after a person checked it: delivered, or to be sent again."""
    return bool((yield from settle_by_hand([number], OutboxState.UNCLEAR, state, now)))


@transaction
def settle_by_hand(
    numbers: Sequence[int], before: OutboxState, state: OutboxState, now: datetime
) -> Statements[list[int]]:
    """Settle sends that are unclear or given up, as a person says. Return those that were in that state.

    What may have arrived stays marked; crashes can make it unclear as often as before.
    """
    advance(before, state)
    settled: list[int] = []
    for number in numbers:
        rows = yield (
            "UPDATE outbox SET state = ?, receipt = NULL, due = ?,"
            " times_unclear = CASE WHEN times_unclear > 0 OR state = 'unclear' THEN 1 ELSE 0 END,"
            " chat = coalesce((SELECT m.new_chat FROM chat_moves m"
            " WHERE m.account = outbox.account AND m.server = outbox.server AND m.chat = outbox.chat), chat)"
            " WHERE id = ? AND state = ? RETURNING id",
            (state.value, micros(now), number, before.value),
        )
        settled += [row[0] for row in rows]
    yield _SEND
    return settled
