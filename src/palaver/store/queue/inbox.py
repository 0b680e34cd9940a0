"""Inbox: every message is accepted once and ends in a named state. Ready queue: conversations with waiting messages."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import INBOX, Lock, Notify, Row, Statements, Value, key_topic, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.addressing import address_whole_bursts, in_same_burst
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.source import MessageAddress, identity_of, message_address
from palaver.model.turn import Cause, Inbound, InboxState, Received
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.records import (
    INBOX_COLUMNS,
    OPEN_TURN,
    SELECT_RECEIVED,
    SET_BODY,
    body_values,
    inbound_body,
    key_in,
    micros,
    placeholders,
    readable,
    received_of,
)
from palaver.store.results import BusyNotices

_ASKS = "state = 'parked' AND pending_call IS NOT NULL"
"""Of a turn: it waits for an approval. A parked turn without a pending call waits for its client."""
ASKED_IN_CHAT = (
    f"turns t JOIN outbox o ON o.cause_kind = '{CauseKind.HALT}' AND o.cause_id = CAST(t.no AS TEXT)"
    f" AND o.cause_detail = CAST(t.fence AS TEXT) WHERE t.state IN {OPEN_TURN} AND t.state = 'parked'"
    " AND o.account = ? AND o.server = ? AND o.chat = ?"
)
"""The parked turns `t`, with each send `o` to a chat that shows what they ask."""
_NEXT_POSITION = "(SELECT coalesce(max(position), 0) + 1 FROM ready_queue)"
_ADD_READY = (
    f"INSERT INTO ready_queue (key, position) VALUES (?, {_NEXT_POSITION})"
    " ON CONFLICT (key) DO UPDATE SET position = ready_queue.position"
)
_MOVE_TO_END = f"UPDATE ready_queue SET position = {_NEXT_POSITION} WHERE key = ?"
_REMOVE_IF_EMPTY = (
    "DELETE FROM ready_queue WHERE key = ?"
    " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.key = ready_queue.key AND i.state = 'waiting')"
)


@transaction
def add_ready(key: SessionKey) -> Statements[None]:
    """Add a conversation whose key is locked."""
    # Write the row even if it exists: then nobody who does not see the message can remove it.
    yield _ADD_READY, (key.text,)


@transaction
def lock_and_add_ready(key: SessionKey) -> Statements[None]:
    """Add a conversation whose key is not locked."""
    yield _queue_lock(key)
    yield from add_ready(key)


@transaction
def requeue_or_remove(key: SessionKey) -> Statements[None]:
    """Move a conversation that was served to the end, or remove it if nothing waits in it."""
    yield _queue_lock(key)
    yield _MOVE_TO_END, (key.text,)
    # A statement of its own: it sees every message accepted before the first one locked the row.
    yield _REMOVE_IF_EMPTY, (key.text,)


@transaction
def remove_ready_if_empty(key: SessionKey) -> Statements[None]:
    """Remove a conversation whose key is locked, unless a message was moved there meanwhile."""
    yield _queue_lock(key)
    yield _REMOVE_IF_EMPTY, (key.text,)


def _queue_lock(key: SessionKey) -> Lock:
    """Return the lock that orders moving a message in and taking the last one out."""
    return Lock(f"ready {key.text}")


@transaction
def list_ready(limit: int) -> Statements[list[SessionKey]]:
    """Return keys with waiting messages and no open turn, longest unserved first.

    So neither a busy conversation nor new ones keep others waiting.
    """
    rows = yield (
        "SELECT q.key FROM ready_queue q"
        f" WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.key = q.key AND t.state IN {OPEN_TURN})"
        " ORDER BY q.position, q.key LIMIT ?",
        (limit,),
    )
    return list(readable(key_in, rows))


RUNNING = f"state IN {OPEN_TURN} AND state = 'running'"
"""Repeats the condition of the index that finds it."""
_NOTIFY_INBOX = Notify(INBOX)
MAX_WAITING = 64


ADDRESS_COLUMNS = ", ".join(MessageAddress._fields)
SAME_MESSAGE = " AND ".join(f"{column} = ?" for column in MessageAddress._fields)
"""Finds a message by its `MessageAddress`, with its edits and with the retries that follow its edits."""
ORIGINAL = "version = '' AND retried_in = 0"
"""Of the rows with one address: the message as it was received."""
CHANGE = "(version <> '' OR retried_in <> 0)"
"""Of the rows with one address: all others."""
_NO_ADDRESS = MessageAddress(message_id=None)
_OPEN_OR_EDITED = (
    f"SELECT no, CASE WHEN {_ASKS} THEN 'asks' ELSE state END FROM turns"
    f" WHERE key = ? AND state IN {OPEN_TURN} AND state <> 'interrupted'"
    f" UNION ALL SELECT no, NULL FROM inbox WHERE {SAME_MESSAGE} AND version <> ''"
)
"""Finds the open turn of a conversation, and edits of a message."""


class Retry(NamedTuple):
    """A message that is answered once more in a session of its own."""

    session: int
    follows_edits: bool
    """Later edits of the first message change this one, too."""


@transaction
def accept(
    inbound: Inbound,
    key: SessionKey,
    now: datetime,
    *,
    role: AccessRole | None = None,
    basis: Basis | None = Basis.IDENTITY,
    refused: str | None = None,
    busy_notices: BusyNotices | None = None,
    retry: Retry | None = None,
) -> Statements[int | None]:
    """Store a message; return its number, or None for a redelivery, or if another continues the same entry.

    Acknowledge the platform only after this.

    `key` is that of its place; where that is attached to another conversation, the message goes there. A turn that is
    open in the conversation is notified. One that waits for a person goes on if the message answers its question, and
    ends if it withdraws it, as `busy_notices` says. A message that `/retry` sends once more is no redelivery of the
    first.
    """
    address = message_address(inbound.source)
    if not refused:
        # Wait for a turn that is just starting without this message, so that it can be notified.
        yield Lock(key.text)
        if inbound.cause is Cause.CALL:
            yield from _forget_refused_call(inbound, address)
    body = body_values(inbound_body(inbound, role, basis))
    rows = yield _ACCEPT, (*_columns(inbound, address, key, now, refused, retry), *body, key.text)
    if not rows:
        return None
    number, led = rows[0]
    if refused:
        if led != key.text:
            yield _FOLLOW, (*(key.text,) * 3, number)
        return number
    key = yield from _follow_attachment(number, led, key)
    yield from add_ready(key)
    is_changed = yield from _notify_open_turn(key, now, busy_notices, _NO_ADDRESS if retry else address, message=number)
    yield _NOTIFY_INBOX
    if is_changed:
        yield from _apply_early_edit(number, inbound, role, basis)
    return number


@transaction
def insert_message(address: MessageAddress, body: bytes, columns: Mapping[str, Value]) -> Statements[int | None]:
    """Insert a message that does not wait yet; return its number, or None for a redelivery."""
    names = (*address._fields, *columns, "body", "checksum")
    rows = yield (
        f"INSERT INTO inbox ({', '.join(names)}) VALUES ({placeholders(names)}) ON CONFLICT DO NOTHING RETURNING no",
        (*address, *columns.values(), *body_values(body)),
    )
    return rows[0][0] if rows else None


def _columns(
    inbound: Inbound, address: MessageAddress, key: SessionKey, now: datetime, refused: str | None, retry: Retry | None
) -> tuple[Value, ...]:
    """Return the columns of a new message, up to its body."""
    return (
        *(_NO_ADDRESS if retry and not retry.follows_edits else address),
        key.text,
        (InboxState.REFUSED if refused else InboxState.WAITING).value,
        micros(now),
        refused,
        identity_of(inbound.source),
        retry.session if retry else 0,
        None if retry else inbound.request_key,
        None if retry or refused else inbound.continues,
    )


def _forget_refused_call(inbound: Inbound, address: MessageAddress) -> Statements[None]:
    """Programs repeat a call with the same id: one that was refused does not count as accepted."""
    yield (
        "UPDATE inbox SET message_id = NULL, request_key = NULL WHERE state = 'refused'"
        f" AND (({SAME_MESSAGE} AND {ORIGINAL}) OR (identity = ? AND request_key = ?))",
        (*address, identity_of(inbound.source), inbound.request_key),
    )


# The columns key and place of a message from this place.
_CONVERSATION = "coalesce((SELECT key FROM attached_chats WHERE place = ?), ?)"
_PLACE = "(SELECT place FROM attached_chats WHERE place = ?)"
_ACCEPT = (
    f"INSERT INTO inbox ({ADDRESS_COLUMNS}, key, state, received, reason, identity, retried_in, request_key,"
    f" continues, body, checksum) VALUES ({', '.join('?' * (len(_NO_ADDRESS) + 10))})"
    " ON CONFLICT DO NOTHING RETURNING no, coalesce((SELECT a.key FROM attached_chats a WHERE a.place = ?), key)"
)
"""Under the key of its place, which is locked: it comes to the conversation once that one is locked, too."""
_FOLLOW = f"UPDATE inbox SET key = {_CONVERSATION}, place = {_PLACE} WHERE no = ? RETURNING key"


def _follow_attachment(number: int, led: str, place: SessionKey) -> Statements[SessionKey]:
    """Lock the conversation of a message. Its place can be attached elsewhere while we wait for the lock."""
    held = place.text
    while led != held:
        held = led
        yield Lock(held)
        rows = yield _FOLLOW, (*(place.text,) * 3, number)
        led = rows[0][0]
    return SessionKey.parse(led)


@transaction
def move_waiting(place: SessionKey, old: SessionKey, new: SessionKey) -> Statements[None]:
    """Move the messages of a place that wait in one conversation to another."""
    moved = yield (
        "UPDATE inbox SET key = ?, place = nullif(?, ?)"
        " WHERE key = ? AND state = 'waiting' AND coalesce(place, key) = ? RETURNING no",
        (new.text, place.text, new.text, old.text, place.text),
    )
    if moved:
        yield from lock_and_add_ready(new)
        yield from requeue_or_remove(old)
        yield _NOTIFY_INBOX


@transaction
def move_message(received: Received, place: SessionKey) -> Statements[None]:
    """Move one waiting message to the conversation of another place."""
    rows = yield (
        f"UPDATE inbox SET key = {_CONVERSATION}, place = {_PLACE} WHERE no = ? AND state = 'waiting' RETURNING key",
        (*(place.text,) * 3, received.number),
    )
    for (key,) in rows:
        yield from lock_and_add_ready(SessionKey.parse(key))
        yield from requeue_or_remove(received.key)
        yield _NOTIFY_INBOX


@transaction
def move_messages(messages: Sequence[tuple[Received, SessionKey]]) -> Statements[None]:
    """Move waiting messages, each to the conversation of its place."""
    for received, place in messages:
        yield from move_message(received, place)


def _notify_open_turn(
    key: SessionKey,
    now: datetime,
    notices: BusyNotices | None = None,
    address: MessageAddress = _NO_ADDRESS,
    *,
    message: int = 0,
) -> Statements[bool]:
    """Notify an open turn. Return whether edits of the message with that address came before it."""
    found = yield _OPEN_OR_EDITED, (key.text, *address)
    busy = [(number, state == "asks") for number, state in found if state]
    for number, asks in busy:
        yield Notify(key_topic(key))
        if asks and notices and notices.answer and (yield from notices.answer(key, message, now)):
            continue
        if notices and notices.withdraw and asks:
            yield from notices.withdraw(key, message, now)
        elif asks and notices and notices.place and notices.parked:
            notice = replace(notices.place.notices(notices.parked)[0], is_passing=True)
            yield from outbox.enqueue(notice, SendCause(CauseKind.PARKED, number), now)
    return len(busy) < len(found)


_MAX_EARLY_EDITS = 16


def _apply_early_edit(number: int, inbound: Inbound, role: AccessRole | None, basis: Basis | None) -> Statements[None]:
    """Apply the last edit by its author that came before the message."""
    rows = yield (
        f"{SELECT_RECEIVED}"
        f" WHERE {SAME_MESSAGE} AND version <> '' AND i.state = 'done' AND length(i.body) > 0"
        " ORDER BY i.no DESC LIMIT ?",
        (*message_address(inbound.source), _MAX_EARLY_EDITS),
    )
    authors = {None, identity_of(inbound.source)}
    changes = (each for each in readable(received_of, rows) if identity_of(each.inbound.source) in authors)
    for change in changes:
        if change.inbound.revision and change.inbound.revision.deleted:
            yield from withdraw(number, "it was deleted before it arrived")
        else:
            yield from replace_text(number, inbound, change.inbound.text, role, basis)
        yield "UPDATE inbox SET reason = ? WHERE no = ?", (f"it arrived before in:{number} and applies", change.number)
        return


@transaction
def replace_text(
    number: int, inbound: Inbound, text: str, role: AccessRole | None, basis: Basis | None
) -> Statements[None]:
    """Change the text of a waiting message; the earlier text stays with it."""
    changed = replace(inbound, text=text, earlier=(*inbound.earlier, inbound.text), revision=None)
    body = inbound_body(changed, role, basis)
    yield f"UPDATE inbox SET {SET_BODY} WHERE no = ? AND state = 'waiting'", (*body_values(body), number)


@transaction
def withdraw(number: int, reason: str) -> Statements[None]:
    """End a waiting message without an answer."""
    yield from _finish(number, "done", reason)


@transaction
def fail(number: int, reason: str) -> Statements[bool]:
    """End a waiting message that cannot be answered."""
    return (yield from _finish(number, "failed", reason))


@transaction
def list_waiting(key: SessionKey) -> Statements[list[Received]]:
    """Return all messages that wait in a conversation, oldest first."""
    rows = yield f"{_IN_LINE} ORDER BY i.no", (key.text,)
    return list(readable(received_of, rows))


@transaction
def fail_waiting(key: SessionKey, reason: str, *, before: int) -> Statements[bool]:
    """End all messages to the agent that wait before a command, or all if it has no number. False if none waits."""
    waiting = [each for each in (yield from list_waiting(key)) if not each.inbound.observed]
    earlier = [each for each in waiting if each.number < before or not before]
    for each in earlier:
        yield from fail(each.number, reason)
    return bool(earlier)


@transaction
def get_message(number: int, principal: Principal) -> Statements[Received | None]:
    """Return a message if the principal sent it or sees everything."""
    rows = yield f"{SELECT_RECEIVED} WHERE i.no = ?", (number,)
    received = next(readable(received_of, (row for row in rows if row[_BODY])), None)
    if received and (principal.sees_all or identity_of(received.inbound.source) in principal.identities):
        return received
    return None


_BODY = 6  # of INBOX_COLUMNS; an erased message has none


@transaction
def refuse(number: int, reason: str) -> Statements[bool]:
    """Refuse a waiting message, and delete its content."""
    is_refused = yield from _finish(number, "refused", reason)
    if is_refused:
        yield from delete_content((yield f"{SELECT_RECEIVED} WHERE i.no = ?", (number,)))
    return is_refused


@transaction
def was_told_of_lost_access(received: Received) -> Statements[bool]:
    """Return whether the sender learned here, since this message came, that they have no access any more."""
    rows = yield (
        "SELECT 1 FROM outbox o JOIN inbox i ON CAST(i.no AS TEXT) = o.cause_id"
        " WHERE o.cause_kind = 'lost' AND i.key = ? AND i.identity = ? AND o.created >= ? LIMIT 1",
        (received.key.text, identity_of(received.inbound.source), micros(received.received)),
    )
    return bool(rows)


@transaction
def rewrite(received: Received, inbound: Inbound) -> Statements[None]:
    """Write the content of a message anew."""
    body = inbound_body(inbound, received.role, received.basis)
    yield f"UPDATE inbox SET {SET_BODY} WHERE no = ?", (*body_values(body), received.number)


@transaction
def delete_content(rows: Sequence[Row]) -> Statements[None]:
    """Delete the content of refused messages."""
    for received in readable(received_of, (row for row in rows if row[_BODY])):
        yield from rewrite(received, received.inbound.without_content())
        yield from drop_refs("kind = 'in' AND holder = ?", received.number)


def _finish(number: int, state: str, reason: str) -> Statements[bool]:
    rows = yield (
        "UPDATE inbox SET state = ?, reason = ? WHERE no = ? AND state = 'waiting' RETURNING key",
        (state, reason, number),
    )
    for (key,) in rows:
        yield from requeue_or_remove(SessionKey.parse(key))
        yield _NOTIFY_INBOX
    return bool(rows)


@transaction
def mark_ready(key: SessionKey, now: datetime) -> Statements[None]:
    """Make a conversation ready because something waits in it now."""
    yield Lock(key.text)
    yield from add_ready(key)
    yield from _notify_open_turn(key, now)
    yield _NOTIFY_INBOX


@transaction
def list_behind_turns() -> Statements[set[tuple[int, int | None]]]:
    """Return the messages that wait behind an open turn; with the fence of the turn if it is parked."""
    rows = yield (
        "SELECT i.no, CASE t.state WHEN 'parked' THEN t.fence END FROM turns t"
        f" JOIN inbox i ON i.key = t.key AND i.state = 'waiting' WHERE t.state IN {OPEN_TURN}",
        (),
    )
    return {(number, fence) for number, fence in rows}


@transaction
def count_waiting() -> Statements[int]:
    rows = yield "SELECT count(*) FROM inbox WHERE state = 'waiting'", ()
    return rows[0][0]


_IN_LINE = f"{SELECT_RECEIVED} WHERE i.key = ? AND i.state = 'waiting'"
_HELD = " ORDER BY i.no LIMIT ? /*pg FOR UPDATE OF i*/"
_WAITING = f"{_IN_LINE} ORDER BY i.no LIMIT ?"
_WAITING_HELD = f"{_IN_LINE}{_HELD}"
_WAITING_ALONE = (
    f"{_IN_LINE} AND NOT EXISTS (SELECT 1 FROM turns o WHERE o.key = i.key AND o.state IN {OPEN_TURN}){_HELD}"
)


@transaction
def read_waiting(key: SessionKey, *, held: bool = True) -> Statements[list[Received]]:
    """Return what waits in a conversation, oldest first. If `held`, nobody else can take it meanwhile."""
    rows: list[Row] = yield _WAITING_HELD if held else _WAITING, (key.text, MAX_WAITING)
    return address_whole_bursts(list(readable(received_of, rows)))


@transaction
def read_waiting_if_idle(key: SessionKey, most: int) -> Statements[list[Received]]:
    """Return and hold what waits, or nothing while a turn is open. A message that cannot be read fails."""
    rows: list[Row] = yield _WAITING_ALONE, (key.text, most)
    line = list(readable(received_of, rows))
    if len(line) == len(rows):
        return address_whole_bursts(line)
    for number in {row[0] for row in rows} - {each.number for each in line}:
        yield from fail(number, "its content cannot be read")
    return (yield from read_waiting_if_idle(key, most))


@transaction
def assign_to_turn(turn: int, messages: Sequence[Received], *, more_wait: bool | None = None) -> Statements[None]:
    """Assign messages to a turn. `more_wait` says whether others wait in the conversation, where that is known."""
    key = messages[0].key
    taken: list[tuple[Value, ...]] = [(turn, each.number) for each in messages]
    yield "UPDATE inbox SET state = 'in-turn', turn_no = ? WHERE no = ?", taken
    if more_wait is None:
        yield from requeue_or_remove(key)
    elif more_wait:
        yield _MOVE_TO_END, (key.text,)
    else:
        yield from remove_ready_if_empty(key)


_RECENT = (
    f"SELECT {INBOX_COLUMNS} FROM inbox i JOIN turns t ON t.no = i.turn_no WHERE length(i.body) > 0 AND i.turn_no IN"
    " (SELECT no FROM turns WHERE session_no = (SELECT no FROM sessions WHERE key = ? AND ended IS NULL)"
    " ORDER BY no DESC LIMIT 3)"
)


@transaction
def settle_overheard(received: Received) -> Statements[None]:
    """Drop a waiting part of a burst unless another part of it addresses us.

    That other part waits, or is in one of the last turns.
    """
    yield Lock(received.key.text)
    waiting = yield from list_waiting(received.key)
    rows = yield _RECENT, (received.key.text,)
    for part in [each for each in waiting if each.number == received.number]:
        parts = [each for each in (*waiting, *readable(received_of, rows)) if in_same_burst(each, part)]
        if all(each.inbound.observed for each in parts):
            yield from withdraw(part.number, "it was for others")
            yield f"UPDATE inbox SET {SET_BODY} WHERE no = ?", (*body_values(b""), part.number)
        else:
            yield from rewrite(part, replace(part.inbound, observed=False))
    yield Notify(INBOX)
