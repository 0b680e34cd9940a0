"""The high-water mark: how far a SQLite database has got, in a small file beside it.

It is written after each commit and before the commit is acknowledged. So if the log or the newest rows are gone, the
database is behind its mark. It is flushed with each checkpoint only: after a power failure the mark can be behind the
database, which does no harm.
"""

import fcntl
import logging
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from palaver.db.private_files import open_private
from palaver.db.transaction import Statements, transaction

_log = logging.getLogger(__name__)


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
        return _parse_slot(content[:_SLOT_BYTES]).raised_to(_parse_slot(content[_SLOT_BYTES:]))
    return HighWater()


_SLOT_BYTES = 96


def _parse_slot(content: bytes) -> HighWater:
    with suppress(ValueError, TypeError):
        *numbers, checksum = content.split()
        if int(checksum, 16) == crc32(b" ".join(numbers)):
            return HighWater(*map(int, numbers))
    return HighWater()


class MarkFile:
    """The file of the high-water mark, kept open. It only rises.

    It has two slots, and what is higher counts: one of the gateway that owns the database, which so needs no lock and
    does not read it again, and one that everybody else shares.
    """

    def __init__(self, path: Path, reached: HighWater, *, is_shared: bool) -> None:
        self.problem = ""
        """Why it could not be written."""
        self._is_shared = is_shared
        self._written = HighWater()
        self._handle = open_private(mark_path(path), os.O_RDWR, like=path)
        self.write(reached.raised_to(read_mark(path)))

    def write(self, reached: HighWater) -> None:
        """Raise the mark. That the commit has happened does not change if this fails."""
        if reached == self._written:
            return
        try:
            if self._is_shared:
                with self._locked():
                    self._raise(reached.raised_to(_parse_slot(os.pread(self._handle, _SLOT_BYTES, _SLOT_BYTES))))
            else:
                self._raise(reached.raised_to(self._written))
        except OSError as error:
            if not self.problem:
                _log.warning("The mark of the database cannot be written: %s", error, extra={"action": "mark.failed"})
            self.problem = str(error)

    def _raise(self, mark: HighWater) -> None:
        numbers = b"%d %d %d %d" % mark
        # Of one length, so that nothing is left of a longer one.
        content = (b"%b %08x" % (numbers, crc32(numbers))).ljust(_SLOT_BYTES)
        os.pwrite(self._handle, content, _SLOT_BYTES if self._is_shared else 0)
        self._written, self.problem = mark, ""

    @contextmanager
    def _locked(self) -> Generator[None]:
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def flush(self) -> None:
        with suppress(OSError):
            os.fdatasync(self._handle)

    def close(self) -> None:
        self.flush()
        os.close(self._handle)
