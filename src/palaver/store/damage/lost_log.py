"""Notice that a database lacks what was stored last, and go on without giving a number twice."""

import sqlite3
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path

from palaver.db.high_water import measure, read_mark
from palaver.db.sqlite import SqliteDatabase, connect
from palaver.db.transaction import Statements, transaction
from palaver.model.epochs import HighWater
from palaver.model.key import SessionKey
from palaver.model.source import MAIN
from palaver.model.text import counted
from palaver.store.damage.health_check import HealthCheck
from palaver.store.damage.losses import record_loss
from palaver.store.epochs import begin_epoch
from palaver.store.queue.outbox import NOBODY, keep_notice_number
from palaver.store.records import micros

_WORDS = {
    "messages": ("message", "messages"),
    "changes": ("change of a transcript", "changes of transcripts"),
    "notices": ("notice", "notices"),
    "turns": ("turn", "turns"),
}


def known_mark(path: Path, key: bytes | None = None) -> HighWater:
    """Return how far a database had got: what its mark says, or else how far the search index had followed it."""
    mark = read_mark(path)
    return HighWater(changes=_indexed_position(path, key)) if mark == HighWater() else mark


def _indexed_position(path: Path, key: bytes | None) -> int:
    """Return the position in the journal; 0 if the index does not tell, since it can be built again."""
    index = path.with_name(f"{path.name}.search")
    with suppress(sqlite3.Error, OSError), closing(connect(index, key, read_only=True)) as db:
        found = next(iter(db.execute("SELECT value FROM meta WHERE name = 'pos'")), (0,))[0]
        return found if isinstance(found, int) and 0 <= found < _MAX_POSITION else 0
    return 0


_MAX_POSITION = 1 << 40
"""No journal gets so far: a larger number is damage."""


def describe_lost(reached: HighWater, mark: HighWater) -> str:
    """Say how much a database lacks; nothing if it has all that was stored."""
    lost = mark.beyond(reached)
    return ", ".join(counted(count, *_WORDS[name]) for name, count in lost.items())


async def check_mark(database: SqliteDatabase) -> HealthCheck:
    mark, reached = known_mark(database.path, database.key), await database.read(measure())
    lost = describe_lost(reached, mark)
    kept = f", but no mark is kept from now on: {database.mark_problem}" if database.mark_problem else ""
    return HealthCheck(
        name="newest rows",
        ok=not lost,
        found=f"the database lacks what was stored last: {lost}"
        if lost
        else f"everything that was stored is there{kept}",
        public=f"lost: {lost or 'nothing'}",
        is_warning=bool(kept and not lost),
        fix="let this user write the file palaver.db.mark beside the database"
        if kept and not lost
        else f"if you have the log {database.path.name}-wal or a newer copy of the database, put it back; else stop the"
        " gateway and run palaver doctor --salvage NEW_STORE: the new store gives no number twice",
    )


@transaction
def skip_numbers(mark: HighWater, now: datetime) -> Statements[None]:
    """Take the numbers that were given before, so that nobody gets them again."""
    reached = yield from measure()
    lost = mark.beyond(reached)
    for name, count in lost.items():
        numbers = f"{getattr(reached, name) + 1} to {getattr(mark, name)}"
        yield from record_loss("database", f"{name} {numbers}", f"{count} were stored and are missing", now)
    if "messages" in lost:
        key = SessionKey(MAIN, person=NOBODY).text
        yield (
            "INSERT INTO inbox (no, key, state, received, reason, body) VALUES (?, ?, 'failed', ?, ?, ?)",
            (mark.messages, key, micros(now), "it was stored and is missing: nothing else gets its number", b""),
        )
    if "changes" in lost:
        sql = "INSERT INTO journal (pos, session_no, kind, first_seq, last_seq) VALUES (?, 0, 'settle', 1, 0)"
        yield sql, (mark.changes,)
    if "notices" in lost:
        yield from keep_notice_number(-mark.notices, now)
    if "turns" in lost:
        yield "DELETE FROM sqlite_sequence WHERE name = 'turns'", ()
        yield "INSERT INTO sqlite_sequence (name, seq) VALUES ('turns', ?)", (mark.turns,)
    if lost:
        yield from begin_epoch(now, after=mark.raised_to(reached), had=reached)
