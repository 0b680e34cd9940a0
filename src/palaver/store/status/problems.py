"""Current problems: agents that fail and accounts without a connection, each until it works again."""

from collections.abc import Collection
from datetime import datetime

from palaver.db.transaction import Row, Statements, Transaction, transaction
from palaver.model.problem import (
    Problem,
    ProblemArea,
    describe_account_problem,
    describe_agent_problem,
    is_agent_problem,
)
from palaver.model.turn import Turn
from palaver.store import accounts
from palaver.store.accounts import AccountHealth
from palaver.store.records import instant, micros


@transaction
def settle_failed(
    settle: Transaction[int], turn: Turn, failure: str, model: str | None, now: datetime
) -> Statements[None]:
    """Settle a turn whose agent failed, and record the problem. The same failure again keeps the time it began."""
    yield from settle
    yield from _record(turn, failure, model, now)


@transaction
def settle_switched(
    settle: Transaction[int], turn: Turn, failure: str, model: str | None, now: datetime
) -> Statements[bool]:
    """Settle a turn that another model answered, and record the problem; return whether it is new."""
    yield from settle
    known = yield "SELECT 1 FROM agent_problems WHERE profile = ?", (turn.key.profile,)
    yield from _record(turn, failure, model, now)
    return not known


def _record(turn: Turn, failure: str, model: str | None, now: datetime) -> Statements[None]:
    yield (
        "INSERT INTO agent_problems (profile, failure, model, since, last, turn_no) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (profile) DO UPDATE SET failure = excluded.failure, model = excluded.model,"
        " last = excluded.last, turn_no = excluded.turn_no, since = CASE WHEN agent_problems.failure = excluded.failure"
        " THEN agent_problems.since ELSE excluded.since END",
        (turn.key.profile, failure, model, micros(now), micros(now), turn.number),
    )


@transaction
def settle_answered(settle: Transaction[int], profile: str) -> Statements[None]:
    """Settle a turn whose agent answered, and end its problem."""
    yield from settle
    yield "DELETE FROM agent_problems WHERE profile = ?", (profile,)


@transaction
def failing_profiles() -> Statements[Collection[str]]:
    rows = yield "SELECT profile FROM agent_problems", ()
    return {row[0] for row in rows}


@transaction
def list_problems(now: datetime) -> Statements[list[Problem]]:
    """Return what does not work now, the longest problem first. For the owner only."""
    rows = yield (
        "SELECT p.profile, p.failure, p.model, p.since, p.last, p.turn_no, t.error FROM agent_problems p"
        " LEFT JOIN turns t ON t.no = p.turn_no",
        (),
    )
    agents = [_agent_problem(row) for row in rows if is_agent_problem(row[1])]
    down = [found for each in (yield from accounts.list_health(now)) if (found := account_problem(each))]
    return sorted([*agents, *down], key=lambda each: each.since)


def _agent_problem(row: Row) -> Problem:
    profile, failure, model, since, last, turn, detail = row
    cause, fix = describe_agent_problem(failure, model, profile)
    return Problem(
        area=ProblemArea.AGENT,
        subject=profile,
        kind=failure,
        cause=cause,
        fix=fix,
        since=instant(since),
        last=instant(last),
        turn=turn,
        detail=detail,
    )


def account_problem(health: AccountHealth) -> Problem | None:
    """Return why a served account has no connection; None if it has one, or has just begun to connect."""
    if health.worker is None or not (health.down_since and health.last_error):
        return None
    cause, fix = describe_account_problem(health.name, health.last_error, is_refused=health.is_refused)
    return Problem(
        area=ProblemArea.ACCOUNT,
        subject=health.name,
        kind="refused" if health.is_refused else "down",
        cause=cause,
        fix=fix,
        since=health.down_since,
        last=health.failed_at or health.down_since,
    )
