"""Schedules over a year on a virtual clock, with workers that die at any point: no firing is lost, none comes twice."""

import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.job import Job
from palaver.model.local_time import to_local
from palaver.model.schedule import Schedule
from palaver.store.jobs import firings
from palaver.store.jobs.jobs import get
from palaver.store.opening import open_store
from palaver.store.records import SELECT_RECEIVED, received_of
from palaver.store.status.invariants import violations
from tests.store.jobs import add_job, firing

START = datetime(2026, 1, 1, 12, tzinfo=UTC)
GRACE = timedelta(hours=6)
RULES = {
    "every day at 02:30": "Europe/Berlin",
    "every 2d from 2026-01-02T01:30": "America/New_York",
    "0 9 * * MON-FRI": "Australia/Lord_Howe",
    "30 0 1 * *": "America/Santiago",
    "every 50h": "UTC",
    "every 1w": "Africa/Casablanca",
}
"""Schedules that meet both clock changes of their zones, and one that meets none."""


def _answer_all() -> Statements[None]:
    yield "UPDATE inbox SET state = 'done' WHERE state = 'waiting'", ()
    yield "DELETE FROM ready_queue", ()


@transaction
def _fired() -> Statements[dict[int, list[datetime]]]:
    """When each job fired, by the messages that it has in the inbox."""
    found: dict[int, list[datetime]] = {}
    for row in (yield f"{SELECT_RECEIVED} ORDER BY i.no", ()):
        inbound = received_of(row).inbound
        assert inbound.job
        found.setdefault(inbound.job.number, []).append(inbound.at)
    return found


@transaction
def _look(now: datetime, chance: random.Random | None = None) -> Statements[tuple[bool, datetime | None]]:
    """Three workers look at once, and have all read the jobs before any of them fires one.

    By chance some die then, and some do not learn that they fired and try again. Return whether anybody lived, and when
    the next job is due.
    """
    jobs = list[Job]()
    for number in (yield from firings.list_due(now, 100)):
        jobs += filter(None, [(yield from get(number))])
    living = [worker for worker in range(3) if chance.random() < 0.7] if chance else [0]
    for _ in living:
        for job in chance.sample(jobs, len(jobs)) if chance else jobs:
            for _ in range(chance.choice((1, 1, 2)) if chance else 1):
                yield from firing(job, now, GRACE)
    yield from _answer_all()
    return bool(living), (yield from firings.next_due())


def _wanted(schedule: Schedule, looks: list[datetime]) -> list[datetime]:
    """The rule, said again: at each look, the latest occurrence since the last one, if it is not too old."""
    occurrences: list[datetime] = []
    moment = schedule.next_after(START)
    while moment and moment <= looks[-1]:
        occurrences.append(moment)
        moment = schedule.next_after(moment)
    fired: list[datetime] = []
    for before, now in pairwise([START, *looks]):
        due = [each for each in occurrences if before < each <= now]
        fired += [due[-1]] if due and now - due[-1] <= GRACE else []
    return fired


@pytest.mark.parametrize("seed", range(2))
async def test_no_firing_is_lost_and_none_comes_twice(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - of the test
    async with await open_store(f"sqlite:///{tmp_path}/palaver.db") as store:
        jobs = [await add_job(store, when, when, now=START, zone=ZoneInfo(zone)) for when, zone in RULES.items()]
        now, looks, due = START, list[datetime](), await store.read(firings.next_due())
        while now < START + timedelta(days=370):
            # Mostly a gateway looks in time; sometimes all are away for hours or days.
            away = timedelta(hours=chance.choice((0,) * 9 + (3, 30, 200)))
            now = max(due or now, now) + away + timedelta(seconds=chance.randrange(30))
            somebody_lived, due = await store.transact(_look(now, chance))
            looks += [now] if somebody_lived else []
        fired = await store.read(_fired())
        for job in jobs:
            assert fired[job.number] == _wanted(job.schedule, looks), job.schedule.text
        assert await store.read(violations()) == []


async def test_days_keep_their_time_on_the_wall_clock(tmp_path: Path) -> None:
    """Through both clock changes of each zone, while a gateway runs all the time."""
    async with await open_store(f"sqlite:///{tmp_path}/palaver.db") as store:
        zones = [ZoneInfo(name) for name in ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Tokyo")]
        for zone in zones:
            await add_job(store, "every day at 18:00", zone.key, now=START, zone=zone)
        due, end = await store.read(firings.next_due()), START + timedelta(days=370)
        while due and due < end:
            _, due = await store.transact(_look(due))
        for zone, moments in zip(zones, (await store.read(_fired())).values(), strict=True):
            read = [to_local(moment, zone) for moment in moments]
            assert {f"{each:%H:%M}" for each in read} == {"18:00"}
            assert [later.date() - earlier.date() for earlier, later in pairwise(read)] == [timedelta(days=1)] * 369
