"""Firings: each due occurrence of a job enters the inbox once, by one worker, and its results are read back."""

from collections.abc import Sequence
from datetime import datetime

from palaver.db.transaction import JOBS, Lock, Notify, Row, Statements, transaction
from palaver.model.job import Firing, Job, RunState
from palaver.model.key import SessionKey
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.store.jobs.jobs import find, first_waiting, pause_unreadable
from palaver.store.queue import inbox
from palaver.store.records import instant, instant_or_none, micros, reply_span

KEPT_FIRINGS = 100
"""How many firings of each job are kept."""
DEAD_FIRINGS = 3
"""After so many firings that reached no target, a job pauses."""
CANNOT_SEND = "it cannot send to"
"""The reason of a firing that is skipped because it has no target begins with this."""
_STILL_WAITS = "the run before it has not begun"


@transaction
def list_due(now: datetime, limit: int) -> Statements[list[int]]:
    """Return the numbers of jobs to fire: those that somebody asked for, then those that are due, oldest first."""
    asked = yield "SELECT no FROM schedules WHERE requested IS NOT NULL ORDER BY requested LIMIT ?", (limit,)
    due = yield (
        "SELECT no FROM schedules WHERE paused IS NULL AND next_due IS NOT NULL AND next_due <= ?"
        " ORDER BY next_due LIMIT ?",
        (micros(now), limit),
    )
    return list(dict.fromkeys(row[0] for row in (*asked, *due)))[:limit]


@transaction
def next_due() -> Statements[datetime | None]:
    """Return when the next job is due."""
    rows = yield "SELECT min(next_due) FROM schedules WHERE paused IS NULL AND next_due IS NOT NULL", ()
    return instant_or_none(rows[0][0])


@value
class Occurrence:
    """One occurrence of a job, and what happens to it."""

    at: datetime
    """The time of the schedule, or when somebody asked for it."""
    following: datetime | None
    """When the job is due next; None if it has ended."""
    key: SessionKey
    inbound: Inbound
    skipped: str | None = None
    """Why it does not run."""
    problem: str | None = None
    """Why its answer does not go to one of its targets."""


@value
class Fired:
    message: int | None
    """Its number in the inbox; None if it does not run."""
    skipped: str | None = None


@transaction
def fire(job: Job, occurrence: Occurrence, now: datetime) -> Statements[Fired | None]:
    """Put an occurrence into the inbox and set the next one, in one step. None if another worker was faster.

    While a run of the job waits to begin, another is not added: it would only do the same again.
    """
    yield Lock(occurrence.key.text)
    if not (yield from _take(job, occurrence)):
        return None
    yield Notify(JOBS)
    skipped = occurrence.skipped or (_STILL_WAITS if (yield from first_waiting(job.number)) else None)
    rows = yield (
        "INSERT INTO firings (schedule_no, at, reason) VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING at",
        (job.number, micros(occurrence.at), skipped),
    )
    if not rows:
        return None
    yield from _drop_old(job.number)
    if skipped:
        return Fired(message=None, skipped=skipped)
    number = yield from inbox.accept(occurrence.inbound, occurrence.key, now, role=job.role, basis=job.basis)
    yield (
        "UPDATE firings SET inbox_no = ?, reason = ? WHERE schedule_no = ? AND at = ?",
        (number, None if number else "it had run before", job.number, micros(occurrence.at)),
    )
    if number and job.requested is None and job.repeats is not None:
        yield (
            "UPDATE schedules SET repeats = repeats - 1, next_due = CASE WHEN repeats > 1 THEN next_due END"
            " WHERE no = ?",
            (job.number,),
        )
    return Fired(message=number)


def _take(job: Job, occurrence: Occurrence) -> Statements[bool]:
    """Take the occurrence if nobody else has, and the job is as it was when it was read."""
    if job.requested is not None:
        rows = yield (
            "UPDATE schedules SET requested = NULL WHERE no = ? AND requested = ? RETURNING no",
            (job.number, micros(job.requested)),
        )
    else:
        rows = yield (
            "UPDATE schedules SET next_due = ? WHERE no = ? AND next_due = ? AND paused IS NULL RETURNING no",
            (occurrence.following and micros(occurrence.following), job.number, job.next_due and micros(job.next_due)),
        )
    return bool(rows)


def _drop_old(job: int) -> Statements[None]:
    """Keep the newest firings, and one that waits however many were skipped since."""
    yield (
        "DELETE FROM firings WHERE schedule_no = ? AND at < (SELECT min(at) FROM"
        " (SELECT at FROM firings WHERE schedule_no = ? ORDER BY at DESC LIMIT ?) AS kept)"
        " AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = firings.inbox_no AND i.state = 'waiting')",
        (job, job, KEPT_FIRINGS),
    )


@transaction
def list_firings(name: str, principal: Principal, limit: int = 10) -> Statements[list[Firing]]:
    """Return the newest firings of a job, newest first, each with the result of its run and of its delivery."""
    job = yield from find(name, principal)
    return (yield from _firings(job.number, principal, limit))


@transaction
def last_firings(jobs: Sequence[Job], principal: Principal) -> Statements[dict[int, Firing]]:
    """Return the newest firing of each job that has fired."""
    found: dict[int, Firing] = {}
    for job in jobs:
        for firing in (yield from _firings(job.number, principal, 1)):
            found[job.number] = firing
    return found


def _firings(job: int, principal: Principal, limit: int) -> Statements[list[Firing]]:
    rows = yield (
        "SELECT f.at, f.inbox_no, f.reason, i.state, i.reason, t.no, t.state, t.error, t.failure FROM firings f"
        " LEFT JOIN inbox i ON i.no = f.inbox_no LEFT JOIN turns t ON t.no = i.turn_no"
        " WHERE f.schedule_no = ? ORDER BY f.at DESC LIMIT ?",
        (job, limit),
    )
    found: list[Firing] = []
    for row in rows:
        turn = row[5]
        span = reply_span(turn) if turn else (0, 0)
        sent = yield "SELECT state FROM outbox WHERE id >= ? AND id < ? ORDER BY id", span
        found.append(_firing(row, [each[0] for each in sent], principal))
    return found


_RUN_OF_TURN = {"done": RunState.DONE, "failed": RunState.FAILED}
_RUN_OF_MESSAGE = {
    "waiting": RunState.WAITING,
    "done": RunState.DONE,
    "failed": RunState.FAILED,
    "refused": RunState.REFUSED,
}


def _firing(row: Row, deliveries: Sequence[str], principal: Principal) -> Firing:
    at, message, skipped, state, refused, turn, turn_state, error, failure = row
    if message is None or (turn is None and state == "done" and refused):
        run = RunState.SKIPPED
    elif turn is None:
        run = _RUN_OF_MESSAGE.get(state, RunState.DONE)
    else:
        run = _RUN_OF_TURN.get(turn_state, RunState.RUNNING)
    # The error of an agent can quote content of others.
    why = (error if principal.sees_all else failure) if run is RunState.FAILED and turn else None
    return Firing(
        at=instant(at),
        run=run,
        reason=skipped or refused or why,
        message=message,
        turn=turn,
        deliveries=tuple(deliveries),
    )


@transaction
def job_of_turn(turn: int) -> Statements[int | None]:
    """Return the job that a turn runs for."""
    rows = yield "SELECT f.schedule_no FROM inbox i JOIN firings f ON f.inbox_no = i.no WHERE i.turn_no = ?", (turn,)
    return rows[0][0] if rows else None


@transaction
def pause_if_dead(job: int, now: datetime) -> Statements[tuple[str, Source] | None]:
    """Pause a job whose last firings reached no target. Return its name and where it was made, if it pauses now.

    A firing that had nothing to say does not count.
    """
    recent = yield from _firings(job, Principal.operator(), KEPT_FIRINGS)
    tried = [each for each in recent if each.deliveries or (each.reason or "").startswith(CANNOT_SEND)]
    last = tried[:DEAD_FIRINGS]
    if len(last) < DEAD_FIRINGS or any(state != "dead" for each in last for state in each.deliveries):
        return None
    return (yield from pause_unreadable(job, now))


@transaction
def messages_of(job: int, limit: int) -> Statements[list[int]]:
    """Return the numbers of the messages of its newest firings, oldest first."""
    rows = yield (
        "SELECT inbox_no FROM firings WHERE schedule_no = ? AND inbox_no IS NOT NULL ORDER BY at DESC LIMIT ?",
        (job, limit),
    )
    return [row[0] for row in reversed(rows)]
