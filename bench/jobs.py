"""Scheduled jobs: what the scheduler reads when it wakes, among many jobs and among few."""

from collections.abc import Iterable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

from bench.engines import Engine
from bench.measure import Bare, Figure, median_of, ratio_at_most, side_by_side
from bench.populate import NOON, person, populate, source
from bench.reads import FEW, MANY
from bench.workshop import Workshop, say
from palaver.cli.loop import run
from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole
from palaver.model.job import Job
from palaver.model.schedule import parse_schedule
from palaver.store.jobs.firings import list_due, next_due
from palaver.store.jobs.jobs import add
from palaver.store.opening import open_store

__all__ = ["due_100k"]

_DUE = 10
"""How many of the jobs are due."""
_SCHEDULE = parse_schedule("every day at 18:00", ZoneInfo("UTC"), NOON)


def due_100k(workshop: Workshop, engine: Engine) -> Iterable[Figure]:
    yield run(_measure(engine, *(engine.copy(_jobs(workshop, count)) for count in (MANY, FEW))))


def _jobs(workshop: Workshop, count: int) -> Path:
    path = workshop.folder / f"{count}-jobs" / "palaver.db"
    if not path.exists():
        say(f"making {count:,} jobs")
        populate(path, works=map(_add, range(count)))
    return path


@transaction
def _add(number: int) -> Statements[None]:
    is_due = number < _DUE
    due = NOON - timedelta(minutes=1) if is_due else NOON + timedelta(seconds=1 + number)
    yield from add(
        Job(
            number=0,
            owner=person(number),
            name=f"job {number}",
            schedule=_SCHEDULE,
            prompt="What is new?",
            targets="origin",
            origin=source(number),
            role=AccessRole.OWNER,
            created=NOON,
            next_due=due,
            paused=NOON if number % 7 == 0 and not is_due else None,
        )
    )


@transaction
def _wake() -> Statements[tuple[list[int], datetime | None]]:
    """What the scheduler asks for when it wakes."""
    return (yield from list_due(NOON, 100)), (yield from next_due())


async def _measure(engine: Engine, many: str, few: str) -> Figure:
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(await open_store(url)) for url in (many, few)]
        found = [await store.read(_wake()) for store in stores]
        assert found[0] == found[1]  # noqa: S101 - the same jobs are due
        assert len(found[0][0]) == _DUE  # noqa: S101
        sides = await side_by_side(lambda _: stores[0].read(_wake()), lambda _: stores[1].read(_wake()), rounds=400)
        raw = await engine.raw(many)
        stack.push_async_callback(raw.close)
        script = await raw.record(_wake())
        bare = await median_of(lambda: raw.replay(script), rounds=100)
    return Figure(
        name=f"{'jobs' if engine.prefix == 'store' else engine.prefix}.due_100k",
        value=sides.ours,
        bare=Bare(name="among 100 jobs", value=sides.other),
        limit=ratio_at_most(1.3),
        note=f"{sides.ours / bare:.2f} × {engine.driver}",
    )
