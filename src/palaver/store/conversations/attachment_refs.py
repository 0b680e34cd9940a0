"""References from entries, inbox and outbox rows to stored files."""

from collections.abc import Collection, Mapping, Sequence
from typing import Literal

from palaver.db.transaction import Statements, Value, transaction
from palaver.store.records import placeholders

_IDS_PER_QUERY = 500
REFERENCED_FILES = "SELECT DISTINCT sha256 FROM attachments ORDER BY 1"


@transaction
def add_refs(kind: Literal["entry", "in", "out"], held: Mapping[int, Sequence[str]]) -> Statements[None]:
    """Keep files for as long as one of these holders exists."""
    rows: list[tuple[Value, ...]] = [(name, kind, holder) for holder, files in held.items() for name in files]
    if rows:
        yield "INSERT INTO attachments (sha256, kind, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows


@transaction
def drop_refs(which: str, *values: Value) -> Statements[list[str]]:
    """Drop references; return the files that nothing references any more."""
    rows = yield f"DELETE FROM attachments WHERE {which} RETURNING sha256", values
    names = {row[0] for row in rows}
    return sorted(names - (yield from referenced_among(names)))


@transaction
def referenced_among(names: Collection[str]) -> Statements[set[str]]:
    """Return which of these files are referenced."""
    wanted = sorted(names)
    held: set[str] = set()
    for start in range(0, len(wanted), _IDS_PER_QUERY):
        page = tuple(wanted[start : start + _IDS_PER_QUERY])
        rows = yield f"SELECT DISTINCT sha256 FROM attachments WHERE sha256 IN ({placeholders(page)})", page
        held.update(row[0] for row in rows)
    return held


@transaction
def referenced_files() -> Statements[list[str]]:
    return [row[0] for row in (yield REFERENCED_FILES, ())]


@transaction
def copy_refs(start: int, copy: int, count: int) -> Statements[None]:
    """Give copies of entries in another id range the files of the originals."""
    yield (
        "INSERT INTO attachments (sha256, kind, holder) SELECT a.sha256, a.kind, a.holder + ? FROM attachments a"
        " JOIN entries e ON e.id = a.holder + ? WHERE a.kind = 'entry' AND a.holder >= ? AND a.holder < ?"
        " ON CONFLICT DO NOTHING",
        (copy - start, copy - start, start, start + count),
    )
