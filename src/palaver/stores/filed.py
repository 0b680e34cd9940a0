"""Who has which file: entries, what waits in the inbox, what is owed."""

from collections.abc import Mapping, Sequence
from typing import Literal

from palaver.ports.work import Steps, Value

__all__ = ["note_files"]


def note_files(kind: Literal["entry", "in", "out"], held: Mapping[int, Sequence[str]]) -> Steps[None]:
    """As long as one of these is there, its files are kept."""
    rows: list[tuple[Value, ...]] = [(name, kind, holder) for holder, files in held.items() for name in files]
    if rows:
        yield "INSERT INTO attachments (sha256, kind, holder) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows
