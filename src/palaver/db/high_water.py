"""The high-water mark: how far a database has got, as somebody has seen it who does not forget it with the database.

For SQLite it is in a small file beside the database. It is written after each commit and before the commit is
acknowledged. So if the log or the newest rows are gone, the database is behind its mark. It is flushed with each
checkpoint only: after a power failure the mark can be behind the database, which does no harm. For PostgreSQL each
process remembers it.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from palaver.db.transaction import Statements, transaction
from palaver.model.epochs import Epochs, HighWater

MEASURE = (
    "SELECT coalesce((SELECT max(no) FROM inbox), 0), coalesce((SELECT max(pos) FROM journal), 0),"
    " -coalesce((SELECT min(id) FROM outbox WHERE id < 0), 0),"
    " coalesce((SELECT /*pg max(no) FROM turns), 0) --*/ seq FROM sqlite_sequence WHERE name = 'turns'), 0)\n"
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


_REMEMBERED = 2_000


class Seen(NamedTuple):
    """Something that this process has seen committed, and that others outside may know."""

    kind: str
    """`in` for a message that was accepted, `out` for a send that arrived."""
    number: int
    place: str
    """The conversation or chat."""
    at: datetime
    """For a send, when it was enqueued."""
    receipt: str = ""


class Loss(NamedTuple):
    """What a process has seen committed and no longer finds. There can be more."""

    check: str
    """That of the epoch which began then."""
    began: datetime
    missing: Sequence[Seen]


@dataclass(kw_only=True)
class Witness:
    """What this process has seen of a database that can lose commits when it fails over."""

    check: str = ""
    """That of the newest epoch; nothing before the first look."""
    mark: HighWater = field(default_factory=HighWater)
    is_synchronous: bool = False
    """A commit was confirmed by a standby before anybody saw it."""
    seen: deque[Seen] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def saw(self, seen: Seen) -> None:
        self.seen.append(seen)
        if seen.kind == "in":
            self.mark = self.mark.raised_to(HighWater(messages=seen.number))

    def start_again(self, check: str) -> None:
        """Forget what was before this epoch."""
        if check != self.check:
            self.check, self.mark = check, HighWater()
            self.seen.clear()


class Reckoned(NamedTuple):
    epochs: Epochs
    loss: Loss | None
