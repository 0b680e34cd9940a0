"""Traces: what became of any message, in or out, told for a principal."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument, NotFound
from palaver.model.ids import decode_id, encode_id
from palaver.model.lifecycle import InboxState
from palaver.model.session import Principal, Session, identity_of
from palaver.model.transcript import Entry, ToolCall
from palaver.model.turn import Delivery, Inbound, Turn, Usage
from palaver.model.value import value
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import find, visible_to
from palaver.store.queue.inbox import OPEN_TURN
from palaver.store.queue.outbox import REPLIES
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    TURN_COLUMNS,
    delivery_of,
    entries_of,
    instant,
    micros,
    received_of,
    turn_of,
)

__all__ = [
    "NAMES",
    "DeliveryTrace",
    "InboundTrace",
    "OpenTurn",
    "Trace",
    "TurnTrace",
    "delivery_trace",
    "find_traces",
    "inbound_trace",
]

NAMES = "in:42, turn:7, out:7168, a message id of a platform, telegram:CHAT:MESSAGE, or a session"
"""What can be asked for."""


@value
class InboundTrace:
    """A message that came in."""

    number: int
    key: str
    state: InboxState
    received: datetime
    reason: str | None = None
    """Why it was refused or failed."""
    role: AccessRole | None = None
    inbound: Inbound | None = None
    """None for what was deleted together with its session."""
    place: str | None = None
    """The key of the place it was said in, where that place was attached to the conversation."""
    behind_turn: int | None = None
    """While it waits: the turn that has to end first."""
    behind: int = 0
    """While it waits: how many messages come before it."""


@value
class TurnTrace:
    """A turn, and what it left."""

    turn: Turn
    ended: datetime | None
    stop: str | None
    """Who asked it to stop, and when."""
    usage: Usage
    entries: tuple[Entry, ...]
    taken_back: bool = False
    """Something of it was undone or deleted: whoever does not see everything is told none of its words."""


@value
class DeliveryTrace:
    """Something owed."""

    delivery: Delivery
    why: str
    """What it answers: `reply`, `command`, `busy`, `halt`, `welcome`, …"""
    worker: str | None = None
    """Who has claimed it."""
    claim_until: datetime | None = None


@value
class Trace:
    """A turn with all it answers and owes; or what never came to a turn."""

    messages: tuple[InboundTrace, ...] = ()
    turn: TurnTrace | None = None
    deliveries: tuple[DeliveryTrace, ...] = ()


@value
class OpenTurn:
    """A turn that has not ended, and the conversation it is in."""

    turn: Turn
    session: Session
    stop: str | None = None
    """Who asked it to stop, and when."""
    asked: ToolCall | None = None
    """What it waits for permission for."""
    question: str | None = None
    """The name of that, for an answer to it and to nothing that is asked later."""
    waiting: int = 0
    """How many messages wait behind it."""


class _Anchor(NamedTuple):
    """Where a trace is told from."""

    kind: str
    number: int

    @property
    def text(self) -> str:
        return f"{self.kind}:{self.number}"


@transaction
def find_traces(name: str, principal: Principal, *, limit: int = 20) -> Statements[list[Trace]]:
    """Of a message, a turn or a send one; of a session those of its newest turns, the oldest in front."""
    anchors = yield from _named(name)
    told = yield from _tell(anchors, principal)
    if len(told) > 1:
        texts = [anchor.text for anchor in told]
        raise BadArgument("Several messages are called", found=name, allowed=", ".join(texts[:5]), example=texts[0])
    if not told:
        session = yield from _session(name, principal)
        turns = yield "SELECT no FROM turns WHERE session_no = ? ORDER BY no DESC LIMIT ?", (session.number, limit)
        told = yield from _tell([_Anchor("turn", row[0]) for row in reversed(turns)], principal)
    return list(told.values())


def _session(name: str, principal: Principal) -> Statements[Session]:
    try:
        return (yield from find(name, principal))
    except NotFound:
        raise NotFound("message, turn or session", name) from None


def _tell(anchors: Iterable[_Anchor], principal: Principal) -> Statements[dict[_Anchor, Trace]]:
    told: dict[_Anchor, Trace] = {}
    for anchor in anchors:
        home = yield from _home(anchor)
        trace = yield from _TRACES[home.kind](home.number, principal)
        if trace and home not in told:
            told[home] = trace if principal.sees_all else _for_people(trace)
    return told


# From a name to where its trace is told


_NUMBERED = re.compile(r"(in|out|turn):(-?[0-9]{1,18})", re.ASCII)


def _named(name: str) -> Statements[list[_Anchor]]:
    if found := _NUMBERED.fullmatch(name.strip()):
        return [_Anchor(found[1], int(found[2]))]
    came = yield from _came_as(name.strip())
    went = yield from _went_as(name.strip())
    return [*(_Anchor("in", number) for number in came), *(_Anchor("out", number) for number in went)]


def _came_as(name: str) -> Statements[list[int]]:
    """What makes a message known again is its platform, account, chat and id. Its changes are told with it."""
    ending = re.sub(r"[!%_]", r"!\g<0>", encode_id(name.rpartition(":")[2]))
    rows = yield (
        "SELECT no, coalesce(revises, dedup), revises FROM inbox WHERE coalesce(revises, dedup) LIKE ? ESCAPE '!'"
        " ORDER BY no",
        (f"%{ending}",),
    )
    named = [row for row in rows if name in _names(*map(decode_id, row[1].split(":")))]
    came = {row[1] for row in named if row[2] is None}
    return [number for number, message, revises in named if revises is None or message not in came]


def _went_as(name: str) -> Statements[list[int]]:
    rows = yield (
        "SELECT id, account, chat, receipt FROM outbox"
        " WHERE receipt IS NOT NULL AND substr(?, length(?) - length(receipt) + 1) = receipt ORDER BY id",
        (name, name),
    )
    found = [(row[0], *map(decode_id, (*row[1].split(":"), row[2])), row[3]) for row in rows]
    return [number for number, *parts in found if name in _names(*parts)]


def _names(platform: str, account: str, chat: str, message: str) -> set[str]:
    return {message, f"{platform}:{chat}:{message}", f"{platform}:{account}:{chat}:{message}"}


def _home(anchor: _Anchor) -> Statements[_Anchor]:
    """A message in a turn, and whatever a turn owes, has its trace with the turn; an answer with its command."""
    if anchor.kind == "in":
        rows = yield "SELECT turn_no FROM inbox WHERE no = ? AND turn_no IS NOT NULL", (anchor.number,)
        return _Anchor("turn", rows[0][0]) if rows else anchor
    if anchor.kind == "out" and anchor.number > 0:
        return _Anchor("turn", anchor.number // REPLIES)
    if anchor.kind == "out":
        rows = yield "SELECT dedup FROM outbox WHERE id = ?", (anchor.number,)
        why, _, rest = (rows[0][0] if rows and rows[0][0] else "").partition(":")
        number = rest.partition(":")[0]
        if why in _HOMES and number.isdigit():
            return (yield from _home(_Anchor(_HOMES[why], int(number))))
    return anchor


_HOMES = {"command": "in", "revision": "in", "busy": "turn", "parked": "turn", "halt": "turn", "tool": "turn"}
"""By the beginning of its name, what a send belongs to that no turn owes."""


# Telling


def _of_turn(number: int, principal: Principal) -> Statements[Trace | None]:
    run = yield from _run(number, principal)
    if run is None:
        return None
    arrivals = yield from _arrivals(
        "i.turn_no = ? OR (i.turn_no IS NULL AND i.revises IN (SELECT dedup FROM inbox WHERE turn_no = ?))", number
    )
    welcome = f"welcome:{run.turn.session}:"
    sendings = yield from _sendings(
        "(id >= ? AND id < ?) OR (id < 0 AND (dedup IN (?, ?)"
        f" OR {_BEGINS} OR {_BEGINS} OR ({_BEGINS} AND created = ?)))",
        (
            number * REPLIES,
            (number + 1) * REPLIES,
            f"busy:{number}",
            f"parked:{number}",
            *_begins(f"halt:{number}:"),
            *_begins(f"tool:{number}:"),
            *_begins(welcome),
            micros(run.turn.started),
        ),
    )
    return Trace(messages=tuple(arrivals), turn=run, deliveries=tuple(sendings))


def _of_message(number: int, principal: Principal) -> Statements[Trace | None]:
    found = yield from _arrivals("i.no = ? OR i.revises = (SELECT dedup FROM inbox WHERE no = ?)", number)
    arrivals = [arrival for arrival in found if _may_see(arrival, principal)]
    if number not in {arrival.number for arrival in arrivals}:
        return None
    names = [_begins(f"{why}:{number}:") for why in _ANSWERS]
    begins = " OR ".join([_BEGINS] * len(names))
    sendings = yield from _sendings(f"id < 0 AND ({begins})", [value for name in names for value in name])
    return Trace(messages=tuple(arrivals), deliveries=tuple(sendings))


_ANSWERS = ("command", "revision", "pair", "paired")
"""What is owed in answer to a message that never came to a turn."""


def _may_see(arrival: InboundTrace, principal: Principal) -> bool:
    sender = arrival.inbound and identity_of(arrival.inbound.source)
    return principal.sees_all or sender in principal.identities


def _of_send(number: int, principal: Principal) -> Statements[Trace | None]:
    """What belongs to no message and no turn is the operator's."""
    sendings = yield from _sendings("id = ?", (number,))
    return Trace(deliveries=tuple(sendings)) if sendings and principal.sees_all else None


_TRACES = {"turn": _of_turn, "in": _of_message, "out": _of_send}


_BEGINS = "substr(dedup, 1, ?) = ?"


def _begins(prefix: str) -> tuple[Value, ...]:
    return len(prefix), prefix


def _run(number: int, principal: Principal) -> Statements[TurnTrace | None]:
    seen = visible_to(principal)
    rows = yield (
        f"SELECT {TURN_COLUMNS}, t.ended, t.stop, t.model, t.input_tokens, t.output_tokens, t.cost_micros"
        f" FROM turns t JOIN sessions s ON s.no = t.session_no WHERE t.no = ? AND {seen.sql}",
        (number, *seen.values),
    )
    if not rows:
        return None
    *row, ended, stop, model, tokens_in, tokens_out, cost = rows[0]
    turn = turn_of(tuple(row))
    left = yield (
        "SELECT e.body, coalesce(o.kind, 'compaction') <> 'compaction' FROM entries e"
        " LEFT JOIN operations o ON o.no = e.hidden_by WHERE e.id >= ? AND e.id < ? AND e.turn_no = ? ORDER BY e.id",
        (turn.session_number * SEQS, (turn.session_number + 1) * SEQS, number),
    )
    return TurnTrace(
        turn=turn,
        ended=None if ended is None else instant(ended),
        stop=stop,
        usage=Usage(model=model, input_tokens=tokens_in, output_tokens=tokens_out, cost_micros=cost),
        entries=tuple(entries_of(body for body, is_back in left if principal.sees_all or not is_back)),
        taken_back=any(is_back for _, is_back in left),
    )


def _for_people(trace: Trace) -> Trace:
    """Without words that were taken back; and what agents, platforms and workers say when they fail may quote."""
    run = trace.turn and replace(trace.turn, turn=replace(trace.turn.turn, error=None, worker=""))
    return Trace(
        messages=tuple(_arrival_for_people(each, run) for each in trace.messages),
        turn=run,
        deliveries=tuple(_sending_for_people(each, run) for each in trace.deliveries),
    )


def _arrival_for_people(arrival: InboundTrace, run: TurnTrace | None) -> InboundTrace:
    if run and run.taken_back and arrival.inbound:
        arrival = replace(arrival, inbound=replace(arrival.inbound, text="", earlier=(), files=()))
    return replace(arrival, reason=None) if run and arrival.state is not InboxState.REFUSED else arrival


def _sending_for_people(sending: DeliveryTrace, run: TurnTrace | None) -> DeliveryTrace:
    delivery = replace(sending.delivery, error=None)
    if run and run.taken_back:
        delivery = replace(delivery, outbound=replace(delivery.outbound, text="", file=None, choices=()))
    return replace(sending, delivery=delivery, worker=None)


def _arrivals(condition: str, number: int) -> Statements[list[InboundTrace]]:
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE {condition} ORDER BY i.no",
        (number,) * condition.count("?"),
    )
    arrivals: list[InboundTrace] = []
    for row in rows:
        arrival = inbound_trace(row)
        arrivals.append((yield from _in_line(arrival)) if arrival.state is InboxState.WAITING else arrival)
    return arrivals


def inbound_trace(row: Row) -> InboundTrace:
    number, key, state, received, _, reason, body, *_ = row
    if not body:
        return InboundTrace(number=number, key=key, state=InboxState(state), received=instant(received), reason=reason)
    told = received_of(row)
    return InboundTrace(
        number=number,
        key=key,
        state=told.state,
        received=told.received,
        reason=told.reason,
        role=told.role,
        inbound=told.inbound,
        place=told.place.text if told.place else None,
    )


def _in_line(arrival: InboundTrace) -> Statements[InboundTrace]:
    turns = yield f"SELECT no FROM turns WHERE key = ? AND state IN {OPEN_TURN}", (arrival.key,)
    ahead = yield (
        "SELECT count(*) FROM inbox WHERE key = ? AND state = 'waiting' AND no < ?",
        (arrival.key, arrival.number),
    )
    return replace(arrival, behind_turn=turns[0][0] if turns else None, behind=ahead[0][0])


def _sendings(condition: str, values: Sequence[Value]) -> Statements[list[DeliveryTrace]]:
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS}, dedup, worker, claim_until FROM outbox WHERE {condition} ORDER BY created, id",
        tuple(values),
    )
    return [delivery_trace(row) for row in rows]


def delivery_trace(row: Row) -> DeliveryTrace:
    *columns, dedup, worker, until = row
    return DeliveryTrace(
        delivery=delivery_of(tuple(columns)),
        why=dedup.partition(":")[0] if dedup else "reply",
        worker=worker,
        claim_until=None if until is None else instant(until),
    )
