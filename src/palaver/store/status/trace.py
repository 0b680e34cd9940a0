"""Trace a message: what was received, the turn that answered it, and what was sent."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.errors import BadArgument, NotFound
from palaver.model.process import Process
from palaver.model.session import EndReason, Principal, Session
from palaver.model.transcript import Entry
from palaver.model.turn import Delivery, Inbound, InboxState, Turn, Usage
from palaver.model.value import value
from palaver.store.conversations.sessions import AUTOMATIC_ENDS
from palaver.store.conversations.visibility import Filter, find, messages_visible_to, visible_to
from palaver.store.epochs import load_epochs
from palaver.store.jobs.firings import messages_of
from palaver.store.jobs.jobs import find as find_job
from palaver.store.processes import list_where
from palaver.store.queue.cause import OF_MESSAGE, CauseKind, kinds_in
from palaver.store.queue.inbox import ADDRESS_COLUMNS, CHANGE, ORIGINAL
from palaver.store.queue.turns import TITLE_USAGE
from palaver.store.records import (
    DELIVERY_COLUMNS,
    OPEN_TURN,
    SELECT_RECEIVED,
    SEQS,
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
    reply_span,
    stop_text,
    turn_of,
)
from palaver.store.status.trace_names import OWED_BY_TURN, Anchor, find_anchors, root_of

NAMES = "in:42, turn:7, out:7.0, job:3, p3, a platform's message id, telegram:CHAT:MESSAGE, or a session"
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


_JOB = re.compile(r"job:([0-9]{1,18})", re.ASCII)


@transaction
def find_traces(name: str, principal: Principal, *, limit: int = 20, bare: bool = True) -> Statements[list[Trace]]:
    """Return the one trace of a message, turn or send; of a session or job those of its newest turns, oldest first.

    Programs name messages and sends by their ids. What a person types can be `bare`: without the check.
    """
    if job := _JOB.fullmatch(name.strip()):
        found = yield from find_job(job[1], principal)
        messages = yield from messages_of(found.number, limit)
        return list((yield from _load_traces([Anchor("in", each) for each in messages], principal)).values())
    epochs = yield from load_epochs()
    anchors = yield from find_anchors(name.strip(), epochs, bare=bare)
    found = yield from _load_traces(anchors, principal)
    if len(found) > 1:
        texts = [epochs.name(*anchor) for anchor in found]
        raise BadArgument("Several messages are called", found=name, allowed=", ".join(texts[:5]), example=texts[0])
    if not found:
        session = yield from _find_session(name, principal)
        turns = yield "SELECT no FROM turns WHERE session_no = ? ORDER BY no DESC LIMIT ?", (session.number, limit)
        found = yield from _load_traces([Anchor("turn", row[0]) for row in reversed(turns)], principal)
    return list(found.values())


def _find_session(name: str, principal: Principal) -> Statements[Session]:
    try:
        return (yield from find(name, principal))
    except NotFound:
        raise NotFound("message, turn or session", name) from None


def _load_traces(anchors: Iterable[Anchor], principal: Principal) -> Statements[dict[Anchor, Trace]]:
    found: dict[Anchor, Trace] = {}
    for anchor in anchors:
        root = yield from root_of(anchor)
        trace = yield from _LOADERS[root.kind](root.number, principal)
        if trace and root not in found:
            found[root] = trace if principal.sees_all else _redacted(trace)
    return found


# Loading


def _trace_of_turn(number: int, principal: Principal) -> Statements[Trace | None]:
    turn = yield from _turn_trace(number, principal)
    if turn is None:
        return None
    messages = yield from _inbound_where(
        f"i.turn_no = ? OR (i.turn_no IS NULL AND {_CHANGE_OF.format('turn_no')})", (number, number)
    )
    deliveries = yield from _deliveries_where(
        f"(id >= ? AND id < ?) OR ({_CAUSED_BY.format(kinds_in(OWED_BY_TURN))})"
        f" OR ({_CAUSED_BY.format(kinds_in([CauseKind.WELCOME]))} AND created = ?)",
        (*reply_span(number), str(number), turn.turn.session, micros(turn.turn.started)),
    )
    return Trace(messages=tuple(messages), turn=turn, deliveries=tuple(deliveries))


def _trace_of_message(number: int, principal: Principal) -> Statements[Trace | None]:
    seen = messages_visible_to(principal)
    messages = yield from _inbound_where(
        f"(i.no = ? OR {_CHANGE_OF.format('no')}) AND {seen.sql}", (number, number, *seen.values)
    )
    if number not in {message.number for message in messages}:
        return None
    deliveries = yield from _deliveries_where(_CAUSED_BY.format(kinds_in(OF_MESSAGE)), (str(number),))
    return Trace(messages=tuple(messages), deliveries=tuple(deliveries))


def _trace_of_send(number: int, principal: Principal) -> Statements[Trace | None]:
    """Only the operator sees a send that belongs to no message and no turn."""
    deliveries = yield from _deliveries_where("id = ?", (number,))
    return Trace(deliveries=tuple(deliveries)) if deliveries and principal.sees_all else None


_CHANGE_OF = f"{CHANGE} AND ({ADDRESS_COLUMNS}) IN (SELECT {ADDRESS_COLUMNS} FROM inbox WHERE {{}} = ? AND {ORIGINAL})"
_LOADERS = {"turn": _trace_of_turn, "in": _trace_of_message, "out": _trace_of_send}
_CAUSED_BY = "cause_kind IS NOT NULL AND cause_kind IN ({}) AND cause_id = ?"


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
    rows = yield f"{SELECT_RECEIVED} WHERE {condition} ORDER BY i.no", tuple(values)
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
