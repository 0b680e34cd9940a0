"""Current problems: agents that fail and accounts without a connection, each until it works again."""

from collections.abc import Collection
from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
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
def record(turn: Turn, failure: str, model: str | None, now: datetime) -> Statements[bool]:
    """Record why an agent failed in a turn; return whether its profile had no problem before.

    The same failure again keeps the time it began.
    """
    known = yield "SELECT 1 FROM agent_problems WHERE profile = ?", (turn.key.profile,)
    yield (
        "INSERT INTO agent_problems (profile, failure, model, since, last, turn_no) VALUES (?, ?, ?, ?, ?, ?)"
        " ON CONFLICT (profile) DO UPDATE SET failure = excluded.failure, model = excluded.model,"
        " last = excluded.last, turn_no = excluded.turn_no, since = CASE WHEN agent_problems.failure = excluded.failure"
        " THEN agent_problems.since ELSE excluded.since END",
        (turn.key.profile, failure, model, micros(now), micros(now), turn.number),
    )
    return not known


@transaction
def end(profile: str) -> Statements[None]:
    """End the problem of an agent that answers again."""
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
