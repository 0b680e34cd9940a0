"""Backups beside SQLite's own copy, and moving a store to PostgreSQL and back."""

import shutil
import sqlite3
import statistics
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from bench.measure import Bare, Figure, once, ratio_at_least
from bench.reads import MANY
from bench.workshop import Workshop, say
from palaver.cli.loop import run
from palaver.store.backup.backups import Backups
from palaver.store.transfer import transfer

__all__ = ["backup", "migrate"]

_NOW = datetime(2026, 11, 1, tzinfo=UTC)
_ROUNDS = 5


def backup(workshop: Workshop) -> Iterator[Figure]:
    path = workshop.conversations(MANY, length=10)
    folder = workshop.folder / "backups"
    size = path.stat().st_size

    def ours() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        Backups(database=path, files=path.parent / "files", folder=folder).make({}, _NOW)

    def bare() -> None:
        _copy(path, workshop.folder / "bare.db")

    pairs = [(once(ours), once(bare)) for _ in range(_ROUNDS)]
    seconds, other = (statistics.median(pair[side] for pair in pairs) for side in (0, 1))
    yield Figure(
        name="store.backup",
        value=size / seconds / 1e6,
        unit="MB/s",
        bare=Bare(name="sqlite3 .backup", value=size / other / 1e6),
        limit=ratio_at_least(0.25),
        note=f"{size / 1e6:.0f} MB, with checksums and flushed",
    )


def _copy(path: Path, copy: Path) -> None:
    """As `.backup` of the shell does."""
    copy.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
        source.backup(target)


def migrate(workshop: Workshop) -> Iterator[Figure]:
    path = workshop.conversations(10_000, length=10)
    server = workshop.new_on_postgres()
    back = workshop.folder / "back" / "palaver.db"
    back.parent.mkdir()
    for name, source, target in (("pg.migrate", str(path), server), ("store.migrate", server, str(back))):
        say(f"moving a store to {name.partition('.')[0]}")
        seconds: dict[str, float] = {}
        start = time.perf_counter()

        def note_time(what: str, _: int, start: float = start, seconds: dict[str, float] = seconds) -> None:
            seconds[what.partition(" ")[0]] = time.perf_counter() - start

        done = run(transfer(source, target, name, progress=note_time))
        copied, compared = seconds["copy"], seconds["compare"]
        note = f"{done.rows:,} rows: copied in {copied:.1f} s, compared in {compared - copied:.1f} s,"
        note += f" indexed in {seconds['index'] - compared:.1f} s, which does not count"
        yield Figure(name=name, value=done.rows / compared, unit="/s", note=note)
