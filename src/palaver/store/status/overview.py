"""What is going on in a store, and what went on lately: turns in flight, messages in and out, the newest first."""

from collections.abc import Collection, Sequence

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.lifecycle import InboxState, OutboxState, TurnState
from palaver.model.session import Principal
from palaver.model.transcript import ToolCall
from palaver.model.turn import Turn
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import visible_to
from palaver.store.queue.inbox import OPEN_TURN
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    entries_of,
    session_of,
    turn_of,
)
from palaver.store.status.trace import DeliveryTrace, InboundTrace, OpenTurn, delivery_trace, inbound_trace

__all__ = [
    "list_inbound",
    "list_open_turns",
    "list_outbound",
]

_LOOK_BACK = 10_000
"""Among how many of the newest rows those in certain states are looked for: what it costs does not grow."""
_TURN_WIDTH = TURN_COLUMNS.count(",") + 1


@transaction
def list_open_turns(
    principal: Principal,
    limit: int,
    session: str | None = None,
    *,
    number: int | None = None,
    states: Collection[TurnState] = (),
) -> Statements[list[OpenTurn]]:
    seen = visible_to(principal)
    wanted = {"s.id": session, "t.no": number}
    only: dict[str, Value] = {column: value for column, value in wanted.items() if value is not None}
    narrowed = "".join(f" AND {column} = ?" for column in only)
    rows = yield (
        f"SELECT {TURN_COLUMNS}, t.stop, t.asked, (SELECT count(*) FROM inbox i WHERE i.key = t.key"
        f" AND i.state = 'waiting'), {SESSION_COLUMNS} FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.state IN {OPEN_TURN} AND {seen.sql}{narrowed} AND {_among('t.state', states)} ORDER BY t.no LIMIT ?",
        (*seen.values, *only.values(), *(state.value for state in states), limit),
    )
    found: list[OpenTurn] = []
    for row in rows:
        turn, (stop, asked, waiting, *columns) = turn_of(row[:_TURN_WIDTH]), row[_TURN_WIDTH:]
        call = (yield from _call(turn, asked)) if asked else None
        question = turn.question_id if turn.state is TurnState.PARKED else None
        found.append(
            OpenTurn(
                turn=turn,
                session=session_of(tuple(columns)),
                stop=stop,
                asked=call,
                question=question,
                waiting=waiting,
            )
        )
    return found


def _call(turn: Turn, name: str) -> Statements[ToolCall]:
    """What a call is, as the agent has written it down."""
    first = turn.session_number * SEQS
    rows = yield (
        "SELECT body FROM entries WHERE id >= ? AND id < ? AND turn_no = ? AND role = 'assistant' ORDER BY id DESC",
        (first, first + SEQS, turn.number),
    )
    calls = (call for entry in entries_of(row[0] for row in rows) for call in entry.calls)
    return next((call for call in calls if call.id == name), ToolCall(id=name, name=name))


@transaction
def list_inbound(
    principal: Principal, *, states: Collection[InboxState] = (), before: int | None = None, limit: int = 50
) -> Statements[list[InboundTrace]]:
    """What belongs to no turn is the operator's, so the list is, too."""
    if not principal.sees_all:
        return []
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM (SELECT * FROM inbox WHERE no < ? ORDER BY no DESC LIMIT {_LOOK_BACK}) i"
        f" LEFT JOIN turns t ON t.no = i.turn_no WHERE {_among('i.state', states)} ORDER BY i.no DESC LIMIT ?",
        (_LAST if before is None else before, *(state.value for state in states), limit),
    )
    return [inbound_trace(row) for row in rows]


_LAST = 1 << 62


@transaction
def list_outbound(
    principal: Principal, *, states: Collection[OutboxState] = (), limit: int = 50
) -> Statements[list[DeliveryTrace]]:
    """What turns owe is numbered upwards, everything else downwards."""
    if not principal.sees_all:
        return []
    rows: list[Row] = []
    for half in ("id > 0 ORDER BY id DESC", "id < 0 ORDER BY id"):
        values: Sequence[Value] = (*(state.value for state in states), limit)
        rows += yield (
            f"SELECT {DELIVERY_COLUMNS}, dedup, worker, claim_until"
            f" FROM (SELECT * FROM outbox WHERE {half} LIMIT {_LOOK_BACK}) o"
            f" WHERE {_among('state', states)} ORDER BY created DESC, abs(id) DESC LIMIT ?",
            tuple(values),
        )
    told = [delivery_trace(row) for row in rows]
    return sorted(told, key=lambda each: (each.delivery.created, each.delivery.number), reverse=True)[:limit]


def _among(column: str, states: Collection[object]) -> str:
    return f"{column} IN ({', '.join('?' * len(states))})" if states else "1 = 1"
