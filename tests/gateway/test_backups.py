"""A running gateway makes backups when they are due, and keeps as many as it should."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.config.loader import load
from palaver.gateway import backups
from palaver.gateway.backups import find_backups, serve_backups
from palaver.settings.gateway import BackupConfig
from palaver.store.opening import open_store
from tests.engine.gateway import until
from tests.store.world import World


@dataclass
class StoppedClock:
    at: datetime = datetime(2026, 11, 1, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


async def test_backups_are_made_when_they_are_due(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backups, "LOOK_EVERY_SECONDS", 0.01)
    off = load(Path(), {"PALAVER_HOME": str(tmp_path)})
    hourly = off.model_copy(update={"backup": BackupConfig(every=timedelta(hours=1), keep=2)})
    current, clock, found = [off], StoppedClock(), find_backups(off)
    async with await open_store(off.store):
        serving = asyncio.create_task(serve_backups(lambda: current[0], None, clock))
        current[0] = hourly
        made: list[datetime] = []
        for _ in range(4):
            made = [clock.at, *made][:2]
            await until(lambda made=made: [each.at for each in found.list_all()] == made)
            clock.at += timedelta(minutes=61)
        serving.cancel()
        await asyncio.wait([serving])


async def test_a_backup_from_the_future_does_not_stop_the_schedule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock was wrong for a while: those archives are not the newest, and do not displace new ones."""
    monkeypatch.setattr(backups, "LOOK_EVERY_SECONDS", 0.01)
    config = load(Path(), {"PALAVER_HOME": str(tmp_path)})
    config = config.model_copy(update={"backup": BackupConfig(every=timedelta(hours=1), keep=2)})
    clock, found = StoppedClock(), find_backups(config)
    later = clock.at + timedelta(days=4000)
    async with await open_store(config.store):
        for hours in range(2):
            found.make({}, later + timedelta(hours=hours))
        serving = asyncio.create_task(serve_backups(lambda: config, None, clock))
        await until(lambda: [each.at for each in found.list_all()] == [later + timedelta(hours=1), clock.at])
        clock.at += timedelta(minutes=61)
        await until(lambda: [each.at for each in found.list_all()] == [clock.at, clock.at - timedelta(minutes=61)])
        serving.cancel()
        await asyncio.wait([serving])


async def test_a_clock_that_is_behind_what_is_stored_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(backups, "LOOK_EVERY_SECONDS", 0.01)
    config = load(Path(), {"PALAVER_HOME": str(tmp_path)})
    config = config.model_copy(update={"backup": BackupConfig(every=timedelta(hours=1))})
    async with await open_store(config.store) as store:
        world = World(store)
        await world.exchange("hello")
        clock, found = StoppedClock(world.now), find_backups(config)
        serving = asyncio.create_task(serve_backups(lambda: config, None, clock))
        await until(lambda: len(found.list_all()) == 1)
        clock.at -= timedelta(days=400)
        await until(lambda: "the backup is dated before what is in it" in caplog.text)
        assert (len(found.list_all()), len(caplog.records)) == (2, 1), "the first was right"
        serving.cancel()
        await asyncio.wait([serving])
