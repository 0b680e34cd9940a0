"""Jobs: made, listed, paused and removed on behalf of the person they belong to."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from itertools import count

from palaver.db.transaction import JOBS, Notify, Row, Statements, transaction
from palaver.model.access import AccessRole, Basis
from palaver.model.errors import BadArgument, NotFound
from palaver.model.job import NAME_LIMIT, Job, JobAction
from palaver.model.schedule import read_schedule
from palaver.model.session import ModelOverride, Principal
from palaver.model.source import Source
from palaver.model.text import one_line
from palaver.store.conversations.visibility import Filter
from palaver.store.queue import inbox
from palaver.store.records import (
    UNREADABLE,
    from_json,
    instant,
    instant_or_none,
    json_text,
    micros,
    placeholders,
    read_one,
    readable,
    source_of,
    source_text,
)

COLUMNS = (
    "no, owner, name, rule, prompt, target, origin, role, basis, model, workdir, script, uses_model, skips_silent,"
    " attached, mirrors, repeats, created, next_due, paused, requested"
)
MIN_INTERVAL = timedelta(minutes=1)
"""Runs that somebody asks for are at least this far from the run before."""
KEEP_ENDED = timedelta(days=30)
"""How long a job that has ended is kept."""
KEPT_ENDED = 200
"""How many jobs of a person that have ended are kept."""
_TRIMMED = 100
_CHANGED = Notify(JOBS)
_LARGEST_NUMBER = 1 << 62


def job_of(row: Row) -> Job:
    no, owner, name, rule, prompt, target, origin, role, basis, model, workdir, script, *rest = row
    uses_model, skips_silent, attached, mirrors, repeats, created, next_due, paused, requested = rest
    return Job(
        number=no,
        owner=owner,
        name=name,
        schedule=read_schedule(rule),
        prompt=prompt,
        targets=target,
        origin=source_of(origin),
        role=role and AccessRole.parse(role),
        basis=basis and Basis(basis),
        model=ModelOverride(**from_json(model)) if model else None,
        workdir=workdir,
        script=script,
        uses_model=bool(uses_model),
        skips_silent=bool(skips_silent),
        attached=bool(attached),
        mirrors=bool(mirrors),
        repeats=repeats,
        created=instant(created),
        next_due=instant_or_none(next_due),
        paused=instant_or_none(paused),
        requested=instant_or_none(requested),
    )


@transaction
def add(job: Job) -> Statements[int]:
    """Store a new job and return its number."""
    rows = yield (
        f"INSERT INTO schedules ({COLUMNS.removeprefix('no, ')}) VALUES ({', '.join('?' * 20)}) RETURNING no",
        (
            job.owner,
            job.name,
            job.schedule.text,
            job.prompt,
            job.targets,
            source_text(job.origin),
            job.role and job.role.text,
            job.basis and job.basis.value,
            json_text(asdict(job.model)) if job.model else None,
            job.workdir,
            job.script,
            *(int(flag) for flag in (job.uses_model, job.skips_silent, job.attached, job.mirrors)),
            job.repeats,
            micros(job.created),
            *(moment and micros(moment) for moment in (job.next_due, job.paused, job.requested)),
        ),
    )
    yield _CHANGED
    return rows[0][0]


@transaction
def count_active(owners: Iterable[str]) -> Statements[int]:
    """Return how many jobs of these identities have not ended."""
    theirs = Filter.among("owner", owners)
    rows = yield f"SELECT count(*) FROM schedules WHERE {theirs.sql} AND next_due IS NOT NULL", theirs.values
    return rows[0][0]


def _visible_to(principal: Principal) -> Filter:
    """People see the jobs that they made; the operator sees all."""
    return Filter("1 = 1") if principal.sees_all else Filter.among("owner", principal.identities)


@transaction
def list_jobs(principal: Principal, *, ended: bool = False, after: int = 0, limit: int = 100) -> Statements[list[Job]]:
    """Return the jobs that a principal sees, active ones first, the newest first; ended ones only if asked.

    `after` is the number of the last job of the page before.
    """
    seen, following = _visible_to(principal), Filter("1 = 1")
    if after:
        last = yield "SELECT 1 FROM schedules WHERE no = ? AND next_due IS NULL", (after,)
        following = Filter("next_due IS NULL AND no < ?" if last else "(next_due IS NULL OR no < ?)", (after,))
    rows = yield (
        f"SELECT {COLUMNS} FROM schedules WHERE {seen.sql} AND {following.sql}"
        f"{'' if ended else ' AND next_due IS NOT NULL'} ORDER BY next_due IS NULL, no DESC LIMIT ?",
        (*seen.values, *following.values, limit),
    )
    return list(readable(job_of, rows))


@transaction
def free_name(name: str, owners: Iterable[str]) -> Statements[str]:
    """Return the name, with a number if an active job of these identities has it."""
    theirs = Filter.among("owner", owners)
    rows = yield f"SELECT name FROM schedules WHERE {theirs.sql} AND next_due IS NOT NULL", theirs.values
    taken = {row[0] for row in rows}
    numbered = (f"{one_line(name, NAME_LIMIT - len(str(n)) - 1)} {n}" for n in count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


@transaction
def find(name: str, principal: Principal) -> Statements[Job]:
    """Find a job by its number, or by its name if only one is called so. Raises NotFound."""
    text, seen = name.strip().removeprefix("job:"), _visible_to(principal)
    is_number = text.isascii() and text.isdecimal()
    numbers = [min(int(text), _LARGEST_NUMBER)] if is_number else (yield from _numbers_of(text, seen))
    rows = yield (
        f"SELECT {COLUMNS} FROM schedules WHERE {seen.sql} AND no IN ({placeholders(numbers)})"
        " ORDER BY next_due IS NULL, no",
        (*seen.values, *numbers),
    )
    found = list(readable(job_of, rows))
    if not found and read_one(job_of, rows, "job") is None:
        raise NotFound("job", name)
    active = [job for job in found if job.next_due is not None] or found
    if len(active) > 1:
        numbers = [str(job.number) for job in active]
        raise BadArgument("Several jobs are called", found=name, allowed=", ".join(numbers), example=numbers[0])
    return active[0]


def _numbers_of(name: str, seen: Filter) -> Statements[list[int]]:
    """Return the numbers of the jobs of a name, in the case of the name or else in any.

    Not in SQL: SQLite folds ASCII alone.
    """
    rows = yield f"SELECT no, name FROM schedules WHERE {seen.sql}", seen.values
    exact = [row[0] for row in rows if row[1] == name]
    return exact or [row[0] for row in rows if row[1].casefold() == name.casefold()]


@transaction
def get(number: int) -> Statements[Job | None]:
    rows = yield f"SELECT {COLUMNS} FROM schedules WHERE no = ?", (number,)
    return read_one(job_of, rows, "job")


@transaction
def pause(name: str, principal: Principal, now: datetime) -> Statements[Job]:
    """Pause a job: nothing of it runs until it is resumed, not even a firing that has not begun."""
    job = yield from find(name, principal)
    yield from pause_unreadable(job.number, now)
    yield from _withdraw_waiting(job.number, "its job was paused")
    yield _CHANGED
    return (yield from find(str(job.number), principal))


@transaction
def pause_unreadable(number: int, now: datetime) -> Statements[tuple[str, Source] | None]:
    """Pause a job, even one that cannot be read.

    Return its name and where it was made; None if it was paused before, or if those cannot be read.
    """
    yield "UPDATE schedules SET requested = NULL WHERE no = ?", (number,)
    rows = yield (
        "UPDATE schedules SET paused = ? WHERE no = ? AND paused IS NULL RETURNING name, origin",
        (micros(now), number),
    )
    try:
        return (rows[0][0], source_of(rows[0][1])) if rows else None
    except UNREADABLE:
        return None


@transaction
def resume(name: str, principal: Principal, now: datetime) -> Statements[Job]:
    """Resume a paused job with its next occurrence. What came due meanwhile does not run."""
    job = yield from find(name, principal)
    if job.next_due is None:
        raise BadArgument("This job has ended:", found=job.name, allowed="a new one", example="/jobs add 30m Call Ann")
    if job.paused is not None:
        following = job.next_due if job.next_due > now else job.schedule.next_after(now)
        yield (
            "UPDATE schedules SET paused = NULL, next_due = ? WHERE no = ?",
            (following and micros(following), job.number),
        )
        yield _CHANGED
    return (yield from find(str(job.number), principal))


@transaction
def request_run(name: str, principal: Principal, now: datetime) -> Statements[Job]:
    """Ask for a run now, besides the schedule, even of a job that is paused or has ended; once in a minute.

    Return the job as it was. If it has `requested`, a run waits to begin already, and no other is added.
    """
    job = yield from find(name, principal)
    if job.requested is None and (waiting := (yield from first_waiting(job.number))):
        job = replace(job, requested=waiting)
    if job.requested is not None:
        return job
    rows = yield (
        "SELECT max(at) FROM firings WHERE schedule_no = ? AND inbox_no IS NOT NULL AND at <= ?",
        (job.number, micros(now)),
    )
    if (last := instant_or_none(rows[0][0])) and now - last < MIN_INTERVAL:
        raise BadArgument(
            "The job {found} ran less than a minute ago.",
            found=job.name,
            allowed="",
            example="",
            fix="Wait a minute, then run it again.",
        )
    yield "UPDATE schedules SET requested = ? WHERE no = ?", (micros(now), job.number)
    yield _CHANGED
    return job


@transaction
def first_waiting(number: int) -> Statements[datetime | None]:
    """Return when a firing of the job was due that waits to begin. It is one of the last two."""
    rows = yield (
        "SELECT f.at FROM (SELECT at, inbox_no FROM firings WHERE schedule_no = ? AND inbox_no IS NOT NULL"
        " ORDER BY at DESC LIMIT 2) f JOIN inbox i ON i.no = f.inbox_no AND i.state = 'waiting' LIMIT 1",
        (number,),
    )
    return instant(rows[0][0]) if rows else None


@transaction
def remove(name: str, principal: Principal) -> Statements[Job]:
    """Remove a job with the record of its firings. A firing that has not begun does not run."""
    job = yield from find(name, principal)
    yield from _delete([job.number])
    yield _CHANGED
    return job


@transaction
def drop_ended(before: datetime) -> Statements[int]:
    """Delete jobs that have ended and were made and fired before a moment. Return how many."""
    rows = yield (
        "SELECT no FROM schedules s WHERE next_due IS NULL AND requested IS NULL AND created < ? AND NOT EXISTS"
        " (SELECT 1 FROM firings f WHERE f.schedule_no = s.no AND f.at >= ?) ORDER BY no LIMIT 100",
        (micros(before), micros(before)),
    )
    yield from _delete([row[0] for row in rows])
    return len(rows)


@transaction
def trim_ended(owners: Iterable[str]) -> Statements[None]:
    """Delete the oldest jobs of these identities that have ended, beyond those that are kept."""
    theirs = Filter.among("owner", owners)
    rows = yield (
        f"SELECT no FROM schedules WHERE {theirs.sql} AND next_due IS NULL AND requested IS NULL"
        f" ORDER BY no DESC LIMIT {_TRIMMED} OFFSET ?",
        (*theirs.values, KEPT_ENDED),
    )
    yield from _delete([row[0] for row in rows])


def _delete(numbers: Sequence[int]) -> Statements[None]:
    for number in numbers:
        yield from _withdraw_waiting(number, "its job was removed")
        yield "DELETE FROM firings WHERE schedule_no = ?", (number,)
        yield "DELETE FROM schedules WHERE no = ?", (number,)


def _withdraw_waiting(number: int, reason: str) -> Statements[None]:
    rows = yield (
        "SELECT i.no FROM firings f JOIN inbox i ON i.no = f.inbox_no AND i.state = 'waiting' WHERE f.schedule_no = ?",
        (number,),
    )
    for (message,) in rows:
        yield from inbox.withdraw(message, reason)


@transaction
def change(name: str, action: JobAction, principal: Principal, now: datetime) -> Statements[Job]:
    """Do one of these to a job; return it as it is then, or was."""
    match action:
        case JobAction.PAUSE:
            return (yield from pause(name, principal, now))
        case JobAction.RESUME:
            return (yield from resume(name, principal, now))
        case JobAction.RUN:
            return (yield from request_run(name, principal, now))
        case JobAction.REMOVE:
            return (yield from remove(name, principal))
