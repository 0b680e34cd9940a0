"""Jobs for tests: made and fired directly in the store."""

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from palaver.db.transaction import Transaction
from palaver.model.access import AccessRole
from palaver.model.job import Job, firing_id
from palaver.model.schedule import due_occurrence, parse_schedule
from palaver.model.source import Source, identity_of
from palaver.model.turn import BusyMode, Cause, Inbound
from palaver.store.jobs.firings import Fired, Occurrence, fire
from palaver.store.store import Store
from tests.store.world import NOON, dm

__all__ = ["GRACE", "UTC", "add_job", "fire_due", "firing"]

UTC = ZoneInfo("UTC")
GRACE = timedelta(hours=6)


async def add_job(
    store: Store,
    when: str,
    prompt: str = "do it",
    *,
    source: Source | None = None,
    now: datetime = NOON,
    zone: ZoneInfo = UTC,
    **fields: object,
) -> Job:
    source = source or dm()
    schedule = parse_schedule(when, zone, now)
    job = Job(
        number=0,
        owner=identity_of(source) or "",
        name=prompt,
        schedule=schedule,
        prompt=prompt,
        targets="origin",
        origin=source,
        created=now,
        role=AccessRole.OWNER,
        next_due=schedule.next_after(now),
    )
    number = await store.transact(store.jobs.add(replace(job, **fields)))  # pyright: ignore[reportArgumentType]
    added = await store.read(store.jobs.get(number))
    assert added
    return added


async def fire_due(store: Store, job: Job, now: datetime) -> Fired | None:
    return await store.transact(firing(job, now))


def firing(job: Job, now: datetime, grace: timedelta = GRACE) -> Transaction[Fired | None]:
    """What the scheduler of one worker does with a job as it has read it."""
    at, following = job.requested, job.next_due
    if at is None:
        assert job.next_due
        at, following = due_occurrence(job.schedule, job.next_due, now, grace)
    source = replace(job.origin, message_id=firing_id(job.number, at or now))
    inbound = Inbound(
        source=source,
        text=job.prompt,
        at=at or now,
        cause=Cause.SCHEDULE,
        busy=BusyMode.QUEUE,
        job=job.fired,
    )
    occurrence = Occurrence(
        at=at or job.next_due or now,
        following=following,
        key=job.key,
        inbound=inbound,
        skipped=None if at else "the gateway was away",
    )
    return fire(job, occurrence, now)
