"""The high-water mark: how far a SQLite database has got, in a small file beside it.

It is written after each commit and before the commit is acknowledged. So if the log or the newest rows are gone, the
database is behind its mark. It is flushed with each checkpoint only: after a power failure the mark can be behind the
database, which does no harm.
"""

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from palaver.db.transaction import Statements, transaction


class HighWater(NamedTuple):
    """The highest number of each kind that was given. Deletions do not lower them."""

    messages: int = 0
    changes: int = 0
    """Positions of the journal."""
    notices: int = 0
    """Sends that are no replies, which are numbered downwards."""
    turns: int = 0

    def raised_to(self, other: "HighWater") -> "HighWater":
        return HighWater(*map(max, self, other))

    def beyond(self, other: "HighWater") -> dict[str, int]:
        """Return by how much it is beyond another, by name."""
        return {
            name: mine - theirs for name, mine, theirs in zip(self._fields, self, other, strict=True) if mine > theirs
        }


MEASURE = (
    "SELECT coalesce((SELECT max(no) FROM inbox), 0), coalesce((SELECT max(pos) FROM journal), 0),"
    " -coalesce((SELECT min(id) FROM outbox WHERE id < 0), 0),"
    " coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'turns'), 0)"
)


@transaction
def measure() -> Statements[HighWater]:
    rows = yield MEASURE, ()
    return HighWater(*rows[0])


def mark_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.mark")


def read_mark(path: Path) -> HighWater:
    """Return the mark of a database; zeros if there is none, or it cannot be read."""
    with suppress(OSError):
        content = mark_path(path).read_bytes()
        return parse_slot(content[:SLOT_BYTES]).raised_to(parse_slot(content[SLOT_BYTES:]))
    return HighWater()


SLOT_BYTES = 96
"""The file has two slots, and what is higher counts: one of the gateway, and one of everybody else."""


def parse_slot(content: bytes) -> HighWater:
    with suppress(ValueError, TypeError):
        *numbers, checksum = content.split()
        if int(checksum, 16) == crc32(b" ".join(numbers)):
            return HighWater(*map(int, numbers))
    return HighWater()
