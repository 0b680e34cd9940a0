"""Trace a message: what was received, the turn that answered it, and what was sent."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.errors import BadArgument, NotFound
from palaver.model.process import Process, parse_process_name
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import MessageAddress, decode_id, encode_id, shorten_id
from palaver.model.transcript import Entry
from palaver.model.turn import Delivery, Inbound, InboxState, Turn, Usage
from palaver.model.value import value
from palaver.store.conversations.sessions import AUTOMATIC_ENDS
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import Filter, find, messages_visible_to, visible_to
from palaver.store.jobs.firings import messages_of
from palaver.store.jobs.jobs import find as find_job
from palaver.store.processes import list_where
from palaver.store.queue.cause import CAUSE_COLUMNS, OF_MESSAGE, OF_TURN, CauseKind, cause_of
from palaver.store.queue.inbox import ADDRESS_COLUMNS, CHANGE, OPEN_TURN, ORIGINAL
from palaver.store.queue.outbox import REPLIES
from palaver.store.queue.turns import TITLE_USAGE
from palaver.store.records import (
    DELIVERY_COLUMNS,
    SELECT_RECEIVED,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    delivery_of,
    details_of,
    entries_of,
    instant,
    instant_or_none,
    micros,
    placeholders,
    read_one,
    readable,
    received_of,
    stop_text,
    turn_of,
)

NAMES = "in:42, turn:7, out:7168, job:3, p3, a platform's message id, telegram:CHAT:MESSAGE, or a session"
"""What `find_traces` accepts."""


@value
class InboundTrace:
    """A received message."""

    number: int
    key: str
    state: InboxState
    received: datetime
    reason: str | None = None
    """Why it was refused or failed."""
    role: AccessRole | None = None
    basis: Basis | None = None
    """The basis of the grant that admitted the sender, if it is known."""
    inbound: Inbound | None = None
    """None if its content was deleted with its session, or cannot be read."""
    place: str | None = None
    """The key of the chat it was sent in, if that chat was attached to another conversation."""
    behind_turn: int | None = None
    """While it waits: the turn that has to end first."""
    behind: int = 0
    """While it waits: how many messages come before it."""
    withdrew: int | None = None
    """The turn whose question it withdrew."""
    answered: int | None = None
    """The turn whose question it answered."""


@value
class TurnTrace:
    turn: Turn
    ended: datetime | None
    stop: str | None
    """Who asked it to stop, and when."""
    usage: Usage
    title_usage: Usage | None = None
    """What the title used that was generated after it."""
    titled_at: datetime | None = None
    withdrawn_by: int | None = None
    """The message that withdrew its question."""
    entries: tuple[Entry, ...] = ()
    reset: EndReason | None = None
    """Why its message started a fresh session, unless a person asked for that."""
    session_before: str | None = None
    """The session that this reset left."""
    taken_back: bool = False
    """Some of its entries were undone or deleted, so people see no content of it."""
    processes: tuple[Process, ...] = ()
    """What its agent started, as far as it is kept."""


@value
class DeliveryTrace:
    """A message we owe or have sent."""

    delivery: Delivery
    why: str
    """What it answers: `reply`, `command`, `busy`, `halt`, `welcome`, …"""
    worker: str | None = None
    """The worker that has claimed it."""
    claim_until: datetime | None = None


@value
class Trace:
    """A turn with the messages it answers and the sends it owes; or a message or send without a turn."""

    messages: tuple[InboundTrace, ...] = ()
    turn: TurnTrace | None = None
    deliveries: tuple[DeliveryTrace, ...] = ()


class _Anchor(NamedTuple):
    """The row a trace starts from: `in`, `turn` or `out`, and its number."""

    kind: str
    number: int

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.number}"


@transaction
def find_traces(name: str, principal: Principal, *, limit: int = 20) -> Statements[list[Trace]]:
    """Return the one trace of a message, turn or send; of a session or job those of its newest turns, oldest first."""
    if job := _JOB.fullmatch(name.strip()):
        found = yield from find_job(job[1], principal)
        messages = yield from messages_of(found.number, limit)
        return list((yield from _load_traces([_Anchor("in", each) for each in messages], principal)).values())
    anchors = yield from _anchors_named(name.strip())
    found = yield from _load_traces(anchors, principal)
    if len(found) > 1:
        texts = [anchor.text for anchor in found]
        raise BadArgument("Several messages are called", found=name, allowed=", ".join(texts[:5]), example=texts[0])
    if not found:
        session = yield from _find_session(name, principal)
        turns = yield "SELECT no FROM turns WHERE session_no = ? ORDER BY no DESC LIMIT ?", (session.number, limit)
        found = yield from _load_traces([_Anchor("turn", row[0]) for row in reversed(turns)], principal)
    return list(found.values())


def _find_session(name: str, principal: Principal) -> Statements[Session]:
    try:
        return (yield from find(name, principal))
    except NotFound:
        raise NotFound("message, turn or session", name) from None


def _load_traces(anchors: Iterable[_Anchor], principal: Principal) -> Statements[dict[_Anchor, Trace]]:
    found: dict[_Anchor, Trace] = {}
    for anchor in anchors:
        root = yield from _root_of(anchor)
        trace = yield from _LOADERS[root.kind](root.number, principal)
        if trace and root not in found:
            found[root] = trace if principal.sees_all else _redacted(trace)
    return found


# Names


_JOB = re.compile(r"job:([0-9]{1,18})", re.ASCII)
_NUMBERED = re.compile(r"(in|out|turn):(-?[0-9]{1,18})", re.ASCII)


def _anchors_named(name: str) -> Statements[list[_Anchor]]:
    if found := _NUMBERED.fullmatch(name):
        return [_Anchor(found[1], int(found[2]))]
    if (process := parse_process_name(name)) is not None and name.startswith("p"):
        rows = yield "SELECT turn_no FROM processes WHERE no = ?", (process,)
        return [_Anchor("turn", row[0]) for row in rows]
    parts = name.rsplit(":", _MAX_COLONS)
    endings = [":".join(parts[start:]) for start in range(len(parts))]
    received = yield from _received_with_id(name, endings)
    if not received and (refused := shorten_id(name)) != name:
        received = yield from _received_with_id(refused, [refused])
    sent = yield from _sent_with_id(name, endings)
    return [*(_Anchor("in", number) for number in received), *(_Anchor("out", number) for number in sent)]


_MAX_COLONS = 16


def _received_with_id(name: str, endings: Sequence[str]) -> Statements[list[int]]:
    """Match the platform's message id, alone or with platform, account and chat. Edits belong to their message."""
    rows = yield (
        f"SELECT no, CASE WHEN {CHANGE} THEN 1 ELSE 0 END, {ADDRESS_COLUMNS} FROM inbox"
        f" WHERE message_id IN ({placeholders(endings)}) ORDER BY no",
        tuple(map(encode_id, endings)),
    )
    found = [(number, bool(change), MessageAddress(*columns)) for number, change, *columns in rows]
    named = [(number, change, address) for number, change, address in found if name in _names_of(address)]
    originals = {address for _, change, address in named if not change}
    return [number for number, change, address in named if not change or address not in originals]


def _names_of(address: MessageAddress) -> set[str]:
    chat = address.chat or address.alt_chat or address.chat_user
    return _names(*map(decode_id, (address.platform, address.account, chat, address.message_id or "")))


def _sent_with_id(name: str, endings: Sequence[str]) -> Statements[list[int]]:
    rows = yield (
        f"SELECT id, account, chat, receipt FROM outbox WHERE receipt IN ({placeholders(endings)}) ORDER BY id",
        tuple(endings),
    )
    found = [(row[0], *map(decode_id, (*row[1].split(":"), row[2])), row[3]) for row in rows]
    return [number for number, *parts in found if name in _names(*parts)]


def _names(platform: str, account: str, chat: str, message: str) -> set[str]:
    return {message, f"{platform}:{chat}:{message}", f"{platform}:{account}:{chat}:{message}"}


def _root_of(anchor: _Anchor) -> Statements[_Anchor]:
    """Return the turn of a message or send, the message that a command's answer belongs to, or the anchor itself."""
    if anchor.kind == "in":
        rows = yield "SELECT turn_no FROM inbox WHERE no = ? AND turn_no IS NOT NULL", (anchor.number,)
        return _Anchor("turn", rows[0][0]) if rows else anchor
    if anchor.kind == "out" and anchor.number > 0:
        return _Anchor("turn", anchor.number // REPLIES)
    if anchor.kind == "out":
        rows = yield f"SELECT {CAUSE_COLUMNS} FROM outbox WHERE id = ?", (anchor.number,)
        cause = cause_of(*rows[0]) if rows else None
        if cause and cause.kind in _ROOTS and cause.number is not None:
            return (yield from _root_of(_Anchor(_ROOTS[cause.kind], cause.number)))
    return anchor


_OF_TURN = OF_TURN - {CauseKind.DELIVERED}
_ROOTS = dict.fromkeys(_OF_TURN, "turn") | {CauseKind.COMMAND: "in", CauseKind.REVISION: "in"}
"""What a send belongs to that is no reply of a turn, by its cause."""


# Loading


def _trace_of_turn(number: int, principal: Principal) -> Statements[Trace | None]:
    turn = yield from _turn_trace(number, principal)
    if turn is None:
        return None
    messages = yield from _inbound_where(
        f"i.turn_no = ? OR (i.turn_no IS NULL AND {_CHANGE_OF.format('turn_no')})", (number, number)
    )
    deliveries = yield from _deliveries_where(
        f"(id >= ? AND id < ?) OR ({_CAUSED_BY.format(_in(_OF_TURN))})"
        f" OR ({_CAUSED_BY.format(_in([CauseKind.WELCOME]))} AND created = ?)",
        (number * REPLIES, (number + 1) * REPLIES, str(number), turn.turn.session, micros(turn.turn.started)),
    )
    return Trace(messages=tuple(messages), turn=turn, deliveries=tuple(deliveries))


def _trace_of_message(number: int, principal: Principal) -> Statements[Trace | None]:
    seen = messages_visible_to(principal)
    messages = yield from _inbound_where(
        f"(i.no = ? OR {_CHANGE_OF.format('no')}) AND {seen.sql}", (number, number, *seen.values)
    )
    if number not in {message.number for message in messages}:
        return None
    deliveries = yield from _deliveries_where(_CAUSED_BY.format(_in(OF_MESSAGE)), (str(number),))
    return Trace(messages=tuple(messages), deliveries=tuple(deliveries))


def _trace_of_send(number: int, principal: Principal) -> Statements[Trace | None]:
    """Only the operator sees a send that belongs to no message and no turn."""
    deliveries = yield from _deliveries_where("id = ?", (number,))
    return Trace(deliveries=tuple(deliveries)) if deliveries and principal.sees_all else None


_CHANGE_OF = f"{CHANGE} AND ({ADDRESS_COLUMNS}) IN (SELECT {ADDRESS_COLUMNS} FROM inbox WHERE {{}} = ? AND {ORIGINAL})"
_LOADERS = {"turn": _trace_of_turn, "in": _trace_of_message, "out": _trace_of_send}
_CAUSED_BY = "cause_kind IS NOT NULL AND cause_kind IN ({}) AND cause_id = ?"


def _in(kinds: Iterable[CauseKind]) -> str:
    return ", ".join(f"'{kind.value}'" for kind in sorted(kinds))


_USAGE = ("model", *USAGE_COLUMNS, "prompt_tokens")


@transaction
def visible_turn(number: int, principal: Principal) -> Statements[TurnTrace | None]:
    """Return a turn without its entries, or None unless the principal may see its session."""
    seen = visible_to(principal)
    rows = yield (
        f"SELECT {TURN_COLUMNS}, t.ended, t.stopped_by, t.stopped_at, t.withdrawn_by,"
        f" {', '.join(f't.{name}' for name in _USAGE)}"
        f" FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ? AND {seen.sql}",
        (number, *seen.values),
    )
    if not rows:
        return None
    *columns, ended, by, at, withdrawn_by = rows[0][: -len(_USAGE)]
    turn = read_one(turn_of, [tuple(columns)], "turn")
    return turn and TurnTrace(
        turn=turn,
        ended=instant_or_none(ended),
        stop=stop_text(by, at),
        withdrawn_by=withdrawn_by,
        usage=Usage(**dict(zip(_USAGE, rows[0][-len(_USAGE) :], strict=True))),
    )


def _turn_trace(number: int, principal: Principal) -> Statements[TurnTrace | None]:
    found = yield from visible_turn(number, principal)
    if found is None:
        return None
    first = found.turn.session_number * SEQS
    rows = yield (
        "SELECT e.id, e.body, coalesce(o.kind, 'compaction') <> 'compaction' FROM entries e"
        " LEFT JOIN operations o ON o.no = e.hidden_by WHERE e.id >= ? AND e.id < ? AND e.turn_no = ? ORDER BY e.id",
        (first, first + SEQS, number),
    )
    shown = [row for row in rows if principal.sees_all or not row[2]]
    taken_back = any(row[2] for row in rows)
    started = (
        ()
        if taken_back and not principal.sees_all
        else tuple((yield from list_where(Filter("p.turn_no = ?", (number,)))))
    )
    found = replace(found, entries=tuple(entries_of(shown)), taken_back=taken_back, processes=started)
    titled = yield f"SELECT at, {', '.join(TITLE_USAGE)} FROM title_usage WHERE turn_no = ?", (number,)
    for at, *used in titled:
        found = replace(found, titled_at=instant(at), title_usage=Usage(**dict(zip(TITLE_USAGE, used, strict=True))))
    resets = yield _RESET_BY, (number, found.turn.session_number)
    for details, before in resets:
        reason = details_of(details).get("because")
        if reason in AUTOMATIC_ENDS:
            found = replace(found, reset=EndReason(reason), session_before=before)
    return found


_RESET_BY = (
    "SELECT details, from_session FROM operations WHERE kind = 'reset'"
    " AND (SELECT min(no) FROM turns WHERE session_no = operations.session_no) = ? AND session_no = ?"
)


def _redacted(trace: Trace) -> Trace:
    """Remove undone content, and errors and worker names: an error of an agent or platform may quote content."""
    turn = trace.turn and replace(trace.turn, turn=replace(trace.turn.turn, error=None, worker=""))
    return Trace(
        messages=tuple(_redacted_message(message, turn) for message in trace.messages),
        turn=turn,
        deliveries=tuple(_redacted_delivery(delivery, turn) for delivery in trace.deliveries),
    )


def _redacted_message(message: InboundTrace, turn: TurnTrace | None) -> InboundTrace:
    if turn and turn.taken_back and message.inbound:
        message = replace(message, inbound=replace(message.inbound, text="", earlier=(), files=()))
    return replace(message, reason=None) if turn and message.state is not InboxState.REFUSED else message


def _redacted_delivery(sent: DeliveryTrace, turn: TurnTrace | None) -> DeliveryTrace:
    delivery = replace(sent.delivery, error=None)
    if turn and turn.taken_back:
        delivery = replace(delivery, outbound=replace(delivery.outbound, text="", file=None, choices=()))
    return replace(sent, delivery=delivery, worker=None)


def _inbound_where(condition: str, values: Sequence[Value]) -> Statements[list[InboundTrace]]:
    rows = yield (
        f"{SELECT_RECEIVED} WHERE {condition} ORDER BY i.no",
        tuple(values),
    )
    numbers = tuple(row[0] for row in rows)
    withdrawn = yield f"SELECT withdrawn_by, no FROM turns WHERE withdrawn_by IN ({placeholders(numbers)})", numbers
    answers = yield (
        f"SELECT no, turn_no FROM inbox WHERE answers IS NOT NULL AND no IN ({placeholders(numbers)})",
        numbers,
    )
    found: list[InboundTrace] = []
    for row in rows:
        for trace in readable(inbound_trace, [row]):
            message = replace(trace, withdrew=dict(withdrawn).get(row[0]), answered=dict(answers).get(row[0]))
            found.append((yield from _with_position(message)) if message.state is InboxState.WAITING else message)
    return found


def inbound_trace(row: Row) -> InboundTrace:
    number, key, state, received_at, _, reason, body, *_ = row
    received = next(readable(received_of, [row] if body else []), None)
    if received is None:
        return InboundTrace(
            number=number, key=key, state=InboxState(state), received=instant(received_at), reason=reason
        )
    return InboundTrace(
        number=number,
        key=key,
        state=received.state,
        received=received.received,
        reason=received.reason,
        role=received.role,
        basis=received.basis,
        inbound=received.inbound,
        place=received.place.text if received.place else None,
    )


def _with_position(message: InboundTrace) -> Statements[InboundTrace]:
    turns = yield f"SELECT no FROM turns WHERE key = ? AND state IN {OPEN_TURN}", (message.key,)
    ahead = yield (
        "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting' AND no < ?",
        (message.key, message.number),
    )
    return replace(message, behind_turn=turns[0][0] if turns else None, behind=ahead[0][0])


def _deliveries_where(condition: str, values: Sequence[Value]) -> Statements[list[DeliveryTrace]]:
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS}, cause_kind, worker, claim_until FROM outbox WHERE {condition}"
        " ORDER BY created, id",
        tuple(values),
    )
    return list(readable(delivery_trace, rows))


def delivery_trace(row: Row) -> DeliveryTrace:
    *columns, kind, worker, claim_until = row
    return DeliveryTrace(
        delivery=delivery_of(tuple(columns)),
        why=kind or "reply",
        worker=worker,
        claim_until=instant_or_none(claim_until),
    )
