"""A running gateway makes backups when they are due, and keeps as many as it should."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from palaver.config.backup import BackupConfig
from palaver.config.loader import load
from palaver.gateway import backups
from palaver.gateway.backups import find_backups, serve_backups
from palaver.store.opening import open_store
from tests.engine.gateway import until


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
