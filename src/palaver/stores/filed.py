"""Who has which file: entries, what waits in the inbox, what is owed."""

from collections.abc import Mapping, Sequence
from typing import Literal

from palaver.ports.work import Steps, Value

__all__ = ["copy_files", "note_files"]


def note_files(kind: Literal["entry", "in", "out"], held: Mapping[int, Sequence[str]]) -> Steps[None]:
    """As long as one of these is there, its files are kept."""
    rows: list[tuple[Value, ...]] = [(name, kind, holder) for holder, files in held.items() for name in files]
    if rows:
        yield "INSERT INTO attachments (sha256, kind, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows


def copy_files(start: int, copy: int, count: int) -> Steps[None]:
    """Of entries that were copied from one range to another, the copies have the same files."""
    yield (
        "INSERT INTO attachments (sha256, kind, holder) SELECT a.sha256, a.kind, a.holder + ? FROM attachments a"
        " JOIN entries e ON e.id = a.holder + ? WHERE a.kind = 'entry' AND a.holder >= ? AND a.holder < ?"
        " ON CONFLICT DO NOTHING",
        (copy - start, copy - start, start, start + count),
    )
