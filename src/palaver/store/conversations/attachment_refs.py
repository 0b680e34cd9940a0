"""Who has which file: entries, what waits in the inbox, what is owed."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from palaver.db.transaction import Statements, Value, transaction

__all__ = [
    "copy_files",
    "drop_files",
    "held_among",
    "note_files",
]

_PAGE = 500


@transaction
def note_files(kind: Literal["entry", "in", "out"], held: Mapping[int, Sequence[str]]) -> Statements[None]:
    """As long as one of these is there, its files are kept."""
    rows: list[tuple[Value, ...]] = [(name, kind, holder) for holder, files in held.items() for name in files]
    if rows:
        yield "INSERT INTO attachments (sha256, kind, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows


@transaction
def drop_files(which: str, *values: Value) -> Statements[list[str]]:
    """Their holders go: gives the files that nobody has any more."""
    rows = yield f"DELETE FROM attachments WHERE {which} RETURNING sha256", values
    names = {row[0] for row in rows}
    return sorted(names - (yield from held_among(names)))


@transaction
def held_among(names: Collection[str]) -> Statements[set[str]]:
    """Which of these files somebody has."""
    wanted, held = sorted(names), set[str]()
    for start in range(0, len(wanted), _PAGE):
        page = tuple(wanted[start : start + _PAGE])
        rows = yield f"SELECT DISTINCT sha256 FROM attachments WHERE sha256 IN ({', '.join('?' * len(page))})", page
        held.update(row[0] for row in rows)
    return held


@transaction
def copy_files(start: int, copy: int, count: int) -> Statements[None]:
    """Of entries that were copied from one range to another, the copies have the same files."""
    yield (
        "INSERT INTO attachments (sha256, kind, holder) SELECT a.sha256, a.kind, a.holder + ? FROM attachments a"
        " JOIN entries e ON e.id = a.holder + ? WHERE a.kind = 'entry' AND a.holder >= ? AND a.holder < ?"
        " ON CONFLICT DO NOTHING",
        (copy - start, copy - start, start, start + count),
    )
