"""The inbox in the store: every message is accepted once and ends in a named state."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from palaver.db.database import INBOX, key_topic
from palaver.db.transaction import Lock, Notify, Row, Statements, Transaction, Value, transaction
from palaver.model.access import AccessRole
from palaver.model.busy import address_whole_bursts, in_same_burst
from palaver.model.ids import encode_id
from palaver.model.key import SessionKey
from palaver.model.lifecycle import InboxState, TurnState
from palaver.model.reset import Cause
from palaver.model.session import Principal, Session, identity_of
from palaver.model.source import Source
from palaver.model.turn import Inbound, Outbound, Received
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.ready_queue import OPEN_TURN, add, list_ready, lock_and_add, remove_if_empty, requeue_or_remove
from palaver.store.records import INBOX_COLUMNS, inbound_body, micros, received_of
from palaver.store.results import BusyNotices

__all__ = [
    "MAX_WAITING",
    "OPEN_TURN",
    "RUNNING",
    "Retry",
    "accept",
    "assign_to_turn",
    "count_waiting",
    "dedup_name",
    "fail",
    "get_message",
    "list_behind_turns",
    "list_ready",
    "list_waiting",
    "mark_ready",
    "move_message",
    "move_waiting",
    "read_waiting",
    "read_waiting_if_idle",
    "record_mentions",
    "refuse",
    "replace_text",
    "run_command",
    "settle_overheard",
    "withdraw",
]

RUNNING = f"state IN {OPEN_TURN} AND state = 'running'"
"""In the words of the index that finds it."""
_LOOK = Notify(INBOX)
MAX_WAITING = 64
_NO_NOTICES = BusyNotices()


def dedup_name(source: Source) -> str | None:
    """What makes a redelivery the same message; a message without an id cannot be known again."""
    if source.message_id is None:
        return None
    parts = (source.platform, source.account or "", source.chat_id or source.participant or "", source.message_id)
    return ":".join(map(encode_id, parts))


class Retry(NamedTuple):
    """A message that is answered once more in a session of its own."""

    session: int
    place: int
    """Among the messages that are sent once more together."""
    follows_edits: bool
    """Later edits of the first message change this one, too."""

    @property
    def name(self) -> str:
        return f"retry:{self.session}:{self.place}"


@transaction
def accept(
    inbound: Inbound,
    key: SessionKey,
    now: datetime,
    *,
    role: AccessRole | None = None,
    refused: str | None = None,
    busy_notices: BusyNotices = _NO_NOTICES,
    retry: Retry | None = None,
) -> Statements[int | None]:
    """Put a message into the inbox; None if it is there already. Only after this is a platform acknowledged.

    `key` is that of its place; where that is attached to another conversation, the message goes there. A turn that is
    open in the conversation is notified, and the matching one of `busy_notices` is sent once for each such turn. A
    message that `/retry` sends once more is not a redelivery of the first.
    """
    name = dedup_name(inbound.source)
    state = InboxState.REFUSED if refused else InboxState.WAITING
    if not refused:
        # A turn that is just beginning without this message is waited for, so that it can be told.
        yield Lock(key.text)
        if inbound.cause is Cause.CALL:
            # Programs call again under the same id: what was refused and is let in now was never taken.
            yield "UPDATE inbox SET dedup = NULL WHERE dedup = ? AND state = 'refused'", (name,)
    rows = yield (
        _ACCEPT,
        (
            retry.name if retry else name,
            name if retry and retry.follows_edits else None,
            *(key.text,) * 3,
            state.value,
            micros(now),
            refused,
            identity_of(inbound.source),
            retry and retry.session,
            inbound_body(inbound, role),
        ),
    )
    if not rows:
        return None
    number, led = rows[0]
    if not refused:
        key = yield from _followed(number, led, key)
        yield from add(key)
        is_changed = yield from _tell_running(key, now, busy_notices, None if retry else name)
        yield _LOOK
        if is_changed:
            yield from _heed_early_change(number, inbound, role)
    return number


# The columns key and place of what is said in a place.
_CONVERSATION = "coalesce((SELECT key FROM attached WHERE place = ?), ?)"
_PLACE = "(SELECT place FROM attached WHERE place = ?)"
_ACCEPT = (
    "INSERT INTO inbox (dedup, revises, key, place, state, received, reason, identity, retried_in, body)"
    f" VALUES (?, ?, {_CONVERSATION}, {_PLACE}, ?, ?, ?, ?, ?, ?)"
    " ON CONFLICT (dedup) DO NOTHING RETURNING no, key"
)


def _followed(number: int, led: str, place: SessionKey) -> Statements[SessionKey]:
    """The conversation of a message; an attached place may be led elsewhere while we wait for that conversation."""
    held = place.text
    while led != held:
        held = led
        yield Lock(held)
        rows = yield (
            f"UPDATE inbox SET key = {_CONVERSATION}, place = {_PLACE} WHERE no = ? RETURNING key",
            (*(place.text,) * 3, number),
        )
        led = rows[0][0]
    return SessionKey.parse(led)


@transaction
def move_waiting(place: SessionKey, old: SessionKey, new: SessionKey) -> Statements[None]:
    """What was said in a place, and waits in one conversation, from now on waits in another."""
    moved = yield (
        "UPDATE inbox SET key = ?, place = nullif(?, ?)"
        " WHERE key = ? AND state = 'waiting' AND coalesce(place, key) = ? RETURNING no",
        (new.text, place.text, new.text, old.text, place.text),
    )
    if moved:
        yield from lock_and_add(new)
        yield from requeue_or_remove(old)
        yield _LOOK


@transaction
def move_message(received: Received, place: SessionKey) -> Statements[None]:
    """A message that waits was said in another place than was thought."""
    rows = yield (
        f"UPDATE inbox SET key = {_CONVERSATION}, place = {_PLACE} WHERE no = ? AND state = 'waiting' RETURNING key",
        (*(place.text,) * 3, received.number),
    )
    for (key,) in rows:
        yield from lock_and_add(SessionKey.parse(key))
        yield from requeue_or_remove(received.key)
        yield _LOOK


def _tell_running(
    key: SessionKey, now: datetime, notices: BusyNotices = _NO_NOTICES, name: str | None = None
) -> Statements[bool]:
    """Also, in the same look: whether changes of the message of that name came before it."""
    found = yield (
        f"SELECT no, state FROM turns WHERE key = ? AND state IN {OPEN_TURN} AND state <> 'interrupted'"
        " UNION ALL SELECT no, NULL FROM inbox WHERE revises = ?",
        (key.text, name),
    )
    busy = [(number, state == TurnState.PARKED.value) for number, state in found if state]
    for number, is_parked in busy:
        yield Notify(key_topic(key))
        if notice := notices.parked if is_parked else notices.running:
            kind = CauseKind.PARKED if is_parked else CauseKind.BUSY
            yield from outbox.enqueue(notice, SendCause(kind, number), now)
    return len(busy) < len(found)


_MOST_EARLY = 16


def _heed_early_change(number: int, inbound: Inbound, role: AccessRole | None) -> Statements[None]:
    """A change that came before its message counts from the start; the last one of those by its author."""
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE i.revises = ? AND i.state = 'done' AND length(i.body) > 0 ORDER BY i.no DESC LIMIT ?",
        (dedup_name(inbound.source), _MOST_EARLY),
    )
    authors = {None, identity_of(inbound.source)}
    changes = (each for each in map(received_of, rows) if identity_of(each.inbound.source) in authors)
    for change in changes:
        if change.inbound.revision and change.inbound.revision.deleted:
            yield from withdraw(number, "it was deleted before it came")
        else:
            yield from replace_text(number, inbound, change.inbound.text, role)
        yield "UPDATE inbox SET reason = ? WHERE no = ?", (f"it came before in:{number}, and counts", change.number)
        return


@transaction
def replace_text(number: int, inbound: Inbound, text: str, role: AccessRole | None) -> Statements[None]:
    """A message that still waits says something else; what it said before is kept with it."""
    changed = replace(inbound, text=text, earlier=(*inbound.earlier, inbound.text), revision=None)
    yield "UPDATE inbox SET body = ? WHERE no = ? AND state = 'waiting'", (inbound_body(changed, role), number)


@transaction
def withdraw(number: int, reason: str) -> Statements[None]:
    """A message that still waits is not answered."""
    yield from _finish(number, "done", reason)


@transaction
def fail(number: int, reason: str) -> Statements[bool]:
    """A message that still waits cannot be answered."""
    return (yield from _finish(number, "failed", reason))


@transaction
def list_waiting(key: SessionKey) -> Statements[list[Received]]:
    """All that waits in a conversation, the longest waiting first."""
    rows = yield f"{_IN_LINE} ORDER BY i.no", (key.text,)
    return [received_of(row) for row in rows]


@transaction
def get_message(number: int, principal: Principal) -> Statements[Received | None]:
    """A message and what became of it, for whoever sent it or holds the database."""
    rows = yield f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no = ?", (number,)
    received = received_of(rows[0]) if rows and rows[0][_BODY] else None
    if received and (principal.sees_all or identity_of(received.inbound.source) in principal.identities):
        return received
    return None


_BODY = 6  # of INBOX_COLUMNS; what was erased has none


@transaction
def refuse(number: int, reason: str) -> Statements[bool]:
    """End a message that still waits."""
    return (yield from _finish(number, "refused", reason))


def _finish(number: int, state: str, reason: str) -> Statements[bool]:
    rows = yield (
        "UPDATE inbox SET state = ?, reason = ? WHERE no = ? AND state = 'waiting' RETURNING key",
        (state, reason, number),
    )
    for (key,) in rows:
        yield from requeue_or_remove(SessionKey.parse(key))
    return bool(rows)


@transaction
def mark_ready(key: SessionKey, now: datetime) -> Statements[None]:
    """Something waits in a conversation that did not before."""
    yield Lock(key.text)
    yield from add(key)
    yield from _tell_running(key, now)
    yield _LOOK


@transaction
def list_behind_turns() -> Statements[set[tuple[int, int | None]]]:
    """What waits behind an open turn, by its number; where that turn waits for a person, with the turn's fence."""
    rows = yield (
        "SELECT i.no, CASE t.state WHEN 'parked' THEN t.fence END FROM turns t"
        f" JOIN inbox i ON i.key = t.key AND i.state = 'waiting' WHERE t.state IN {OPEN_TURN}",
        (),
    )
    return {(number, fence) for number, fence in rows}


@transaction
def count_waiting() -> Statements[int]:
    """How many messages wait."""
    rows = yield "SELECT count(*) FROM inbox WHERE state = 'waiting'", ()
    return rows[0][0]


_IN_LINE = (
    f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.key = ? AND i.state = 'waiting'"
)
_HELD = " ORDER BY i.no LIMIT ? /*pg FOR UPDATE OF i*/"
_WAITING = f"{_IN_LINE} ORDER BY i.no LIMIT ?"
_WAITING_HELD = f"{_IN_LINE}{_HELD}"
_WAITING_ALONE = (
    f"{_IN_LINE} AND NOT EXISTS (SELECT 1 FROM turns o WHERE o.key = i.key AND o.state IN {OPEN_TURN}){_HELD}"
)


@transaction
def read_waiting(key: SessionKey, *, held: bool = True) -> Statements[list[Received]]:
    """What waits in a conversation, the longest waiting first; held, nobody else takes it until the end of the work."""
    rows: list[Row] = yield _WAITING_HELD if held else _WAITING, (key.text, MAX_WAITING)
    return address_whole_bursts([received_of(row) for row in rows])


@transaction
def read_waiting_if_idle(key: SessionKey, most: int) -> Statements[list[Received]]:
    """The same where no turn is open in the conversation; nothing where one is."""
    rows: list[Row] = yield _WAITING_ALONE, (key.text, most)
    return address_whole_bursts([received_of(row) for row in rows])


@transaction
def assign_to_turn(turn: int, messages: Sequence[Received], *, are_all: bool = False) -> Statements[None]:
    """Whoever holds the conversation may have found that these are all that wait in it."""
    key = messages[0].key
    taken: list[tuple[Value, ...]] = [(turn, each.number) for each in messages]
    yield "UPDATE inbox SET state = 'in-turn', turn_no = ? WHERE no = ?", taken
    if are_all:
        yield from remove_if_empty(key)
    else:
        yield from requeue_or_remove(key)


@transaction
def run_command(
    received: Received,
    does: Transaction[str],
    answers: Callable[[str], Sequence[Outbound]],
    now: datetime,
    *,
    urgent: bool = False,
    failed: str | None = None,
) -> Statements[bool]:
    """Do what a message commands and owe the answer, both or neither. False if it does not wait any more.

    What is not urgent comes after the turn that is at work, and after what was said before it; but no command waits for
    a turn that waits for a person. Where it could not be done, `failed` says why in words that quote nobody, and the
    answer is all there is to do.
    """
    yield Lock(received.key.text)
    if not urgent and (yield _COMES_BEFORE, (*(received.key.text,) * 3, received.number)):
        return False
    mine = yield (
        "UPDATE inbox SET state = ?, reason = ? WHERE no = ? AND key = ? AND state = 'waiting' RETURNING no",
        ("failed" if failed else "done", failed, received.number, received.key.text),
    )
    if not mine:
        return False
    yield from requeue_or_remove(received.key)
    yield _MENTION_OPEN, (received.number, received.key.text)
    answer = yield from does
    yield _MENTION_OPEN, (received.number, received.key.text)
    yield from outbox.enqueue_parts(answers(answer), SendCause(CauseKind.COMMAND, received.number), now)
    yield _LOOK
    return True


_OPEN = f"SELECT state FROM turns WHERE key = ? AND state IN {OPEN_TURN}"
_COMES_BEFORE = (
    f"SELECT 1 FROM ({_OPEN}) t WHERE t.state <> 'parked' UNION ALL SELECT 1 FROM inbox i"
    f" WHERE NOT EXISTS ({_OPEN}) AND i.key = ? AND i.state = 'waiting' AND i.no < ?"
)
_MENTION = "INSERT INTO mentions (inbox_no, session_no) SELECT ?, no FROM sessions WHERE"
_MENTION_OPEN = f"{_MENTION} key = ? AND ended IS NULL ON CONFLICT DO NOTHING"


@transaction
def record_mentions(number: int, sessions: Iterable[Session]) -> Statements[None]:
    """What a command is answered with has words of these sessions: it goes with any of them."""
    for session in sessions:
        yield f"{_MENTION} no = ? ON CONFLICT DO NOTHING", (number, session.number)


_LATELY = (
    f"SELECT {INBOX_COLUMNS} FROM inbox i JOIN turns t ON t.no = i.turn_no WHERE length(i.body) > 0 AND i.turn_no IN"
    " (SELECT no FROM turns WHERE session_no = (SELECT no FROM sessions WHERE key = ? AND ended IS NULL)"
    " ORDER BY no DESC LIMIT 3)"
)


@transaction
def settle_overheard(received: Received) -> Statements[None]:
    """A part waits that was not said to us: unless another part was, nothing of it is kept.

    That other part may wait by now, or have come into a turn lately.
    """
    yield Lock(received.key.text)
    waiting = yield from list_waiting(received.key)
    rows = yield _LATELY, (received.key.text,)
    for part in [each for each in waiting if each.number == received.number]:
        parts = [each for each in (*waiting, *map(received_of, rows)) if in_same_burst(each, part)]
        if all(each.inbound.observed for each in parts):
            yield from withdraw(part.number, "it was said to others")
            body = b""
        else:
            body = inbound_body(replace(part.inbound, observed=False), part.role)
        yield "UPDATE inbox SET body = ? WHERE no = ?", (body, part.number)
    yield Notify(INBOX)
