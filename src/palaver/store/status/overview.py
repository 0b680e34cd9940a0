"""List open turns, and the newest received and sent messages."""

from collections.abc import Collection
from datetime import datetime

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.session import Principal, Session
from palaver.model.source import account_text, encode_id
from palaver.model.tools import Question, parse_question
from palaver.model.transcript import ToolCall
from palaver.model.turn import InboxState, OutboxState, Turn, TurnState
from palaver.model.value import value
from palaver.store.conversations.transcript import find_call
from palaver.store.conversations.visibility import Filter, visible_to
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    OPEN_TURN,
    SESSION_COLUMNS,
    TURN_COLUMNS,
    instant,
    micros,
    placeholders,
    readable,
    session_of,
    stop_text,
    turn_of,
)
from palaver.store.status.trace import DeliveryTrace, InboundTrace, delivery_trace, inbound_trace

_SCANNED_ROWS = 10_000
"""How many of the newest rows to search for those in certain states. It bounds the cost."""
_TURN_WIDTH = TURN_COLUMNS.count(",") + 1


@value
class OldestWork:
    """Since when the oldest message waits, and since when the oldest send is due; None if there is none."""

    waiting: datetime | None
    due: datetime | None


@transaction
def oldest_work() -> Statements[OldestWork]:
    waiting = yield "SELECT min(received) FROM inbox WHERE state = 'waiting'", ()
    due = yield "SELECT min(due) FROM outbox WHERE state = 'due'", ()
    first, second = waiting[0][0], due[0][0]
    return OldestWork(
        waiting=None if first is None else instant(first), due=None if second is None else instant(second)
    )


@value
class OpenTurn:
    """A turn that has not ended, and its session."""

    turn: Turn
    session: Session
    stop: str | None = None
    """Who asked it to stop, and when."""
    asked: ToolCall | None = None
    """The tool call that waits for a person."""
    question: str | None = None
    """The id of that question, so that an answer counts for no later one."""
    waiting: int = 0
    """How many messages wait behind it."""

    @property
    def wants(self) -> Question | None:
        """What the agent asks in words; None if it waits for an approval, or for nothing."""
        return parse_question(self.asked) if self.asked else None

    @property
    def waits_for_client(self) -> bool:
        """Whether it waits for the result of a tool that the client runs."""
        return self.turn.state is TurnState.PARKED and self.question is None


@transaction
def list_open_turns(
    principal: Principal,
    limit: int,
    session: str | None = None,
    *,
    number: int | None = None,
    states: Collection[TurnState] = (),
) -> Statements[list[OpenTurn]]:
    wanted = Filter.all([visible_to(principal), *Filter.given({"s.id = ?": session, "t.no = ?": number})])
    rows = yield (
        f"SELECT {TURN_COLUMNS}, t.stopped_by, t.stopped_at, t.pending_call,"
        f" (SELECT count(*) FROM inbox i WHERE i.key = t.key AND i.state = 'waiting'), {SESSION_COLUMNS}"
        " FROM turns t JOIN sessions s ON s.no = t.session_no"
        f" WHERE t.state IN {OPEN_TURN} AND {wanted.sql} AND {_state_in('t.state', states)}"
        " ORDER BY t.no LIMIT ?",
        (*wanted.values, *(state.value for state in states), limit),
    )
    found: list[OpenTurn] = []
    turns = {turn.number: turn for turn in readable(turn_of, (row[:_TURN_WIDTH] for row in rows))}
    sessions = {each.number: each for each in readable(session_of, (row[_TURN_WIDTH + 4 :] for row in rows))}
    for row in rows:
        by, at, asked, waiting, session_number, *_ = row[_TURN_WIDTH:]
        if row[0] not in turns or session_number not in sessions:
            continue
        turn = turns[row[0]]
        call = (yield from find_call(turn.session_number, turn.number, asked)) if asked else None
        question = turn.question_id if turn.state is TurnState.PARKED and asked else None
        found.append(
            OpenTurn(
                turn=turn,
                session=sessions[session_number],
                stop=stop_text(by, at),
                asked=call,
                question=question,
                waiting=waiting,
            )
        )
    return found


@transaction
def list_inbound(
    principal: Principal, *, states: Collection[InboxState] = (), before: int | None = None, limit: int = 50
) -> Statements[list[InboundTrace]]:
    """Only the operator sees messages outside a turn, so only the operator gets this list."""
    if not principal.sees_all:
        return []
    rows = yield (
        f"SELECT {INBOX_COLUMNS} FROM (SELECT * FROM inbox WHERE no < ? ORDER BY no DESC LIMIT {_SCANNED_ROWS}) i"
        f" LEFT JOIN turns t ON t.no = i.turn_no WHERE {_state_in('i.state', states)} ORDER BY i.no DESC LIMIT ?",
        (_LAST if before is None else before, *(state.value for state in states), limit),
    )
    return list(readable(inbound_trace, rows))


_LAST = 1 << 62


@transaction
def list_outbound(
    principal: Principal, *, states: Collection[OutboxState] = (), limit: int = 50
) -> Statements[list[DeliveryTrace]]:
    """Replies of turns have positive numbers, everything else negative ones."""
    if not principal.sees_all:
        return []
    rows: list[Row] = []
    for half in ("id > 0 ORDER BY id DESC", "id < 0 ORDER BY id"):
        rows += yield (
            f"SELECT {DELIVERY_COLUMNS}, cause_kind, worker, claim_until"
            f" FROM (SELECT * FROM outbox WHERE {half} LIMIT {_SCANNED_ROWS}) o"
            f" WHERE {_state_in('state', states)} ORDER BY created DESC, abs(id) DESC LIMIT ?",
            (*(state.value for state in states), limit),
        )
    found = readable(delivery_trace, rows)
    return sorted(found, key=lambda each: (each.delivery.created, each.delivery.number), reverse=True)[:limit]


@transaction
def list_stuck(
    state: OutboxState,
    *,
    platform: str = "",
    account: str | None = None,
    chat: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> Statements[list[DeliveryTrace]]:
    """Return all sends in a state, of one account or chat and of one time, if one is named, the oldest first."""
    conditions: dict[str, Value] = {"state = ?": state.value}
    if platform:
        named = f"{platform}:" if account is None else account_text(platform, account)
        conditions[f"substr(account, 1, {len(named)}) = ?" if account is None else "account = ?"] = named
    if chat is not None:
        conditions["chat = ?"] = encode_id(chat)
    if since:
        conditions["created >= ?"] = micros(since)
    if until:
        conditions["created < ?"] = micros(until)
    rows = yield (
        f"SELECT {DELIVERY_COLUMNS}, cause_kind, worker, claim_until FROM outbox"
        f" WHERE {' AND '.join(conditions)} ORDER BY created, abs(id)",
        tuple(conditions.values()),
    )
    return list(readable(delivery_trace, rows))


def _state_in(column: str, states: Collection[object]) -> str:
    return f"{column} IN ({placeholders(states)})" if states else "1 = 1"
