"""Which requests have left, in a file that outlives a killed process.

That a request leaves is committed before it does. A commit takes milliseconds until it is on the disk and answered, and
a gateway that is killed meanwhile has sent nothing, although its database says that it may have. So each request is
written here before that commit, as kept back, and as left when it leaves: one byte, which the kernel keeps even if the
process is killed with its next step.

A file counts only if the process that wrote it is gone, and if the machine has not been restarted since, which can lose
what is not on the disk. Everything that is not known to have been kept back may have left.
"""

import fcntl
import logging
import os
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Literal

from palaver.db.private_files import make_private_folder, open_private
from palaver.store.results import Departure

log = logging.getLogger(__name__)

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_HEADER_BYTES, _SLOT_BYTES = 512, 64
_KEPT_BACK, _LEFT, _ENDED = b"-", b"+", b"."
_MAX_AGE_SECONDS = 3600.0
"""What a killed gateway had begun is taken over long before."""


class Departures:
    """One file for each gateway that ever ran, in a folder. Without a folder nothing is known."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._boot = _boot_id() if folder else b""
        self._file: int | None = None
        self._name = ""
        self._free: list[int] = []
        self._slots = 0
        self._known: dict[str, list[tuple[bytes, Departure]]] = {}
        """By file of a process that is gone."""

    @contextmanager
    def opened(self, worker: str) -> Generator[None]:
        """Write into a new file, if that is possible. It stays if the outcome of a request is not stored."""
        if self._folder and self._boot:
            try:
                self._open(self._folder, worker)
            except OSError as error:
                self._give_up(error)
        try:
            yield
        finally:
            if len(self._free) == self._slots:  # else a task that is being cancelled can still write
                with suppress(OSError):
                    self._close()

    def _open(self, folder: Path, worker: str) -> None:
        make_private_folder(folder)
        for path in folder.iterdir():
            with suppress(OSError):  # another gateway does the same
                if path.stat().st_mtime < time.time() - _MAX_AGE_SECONDS and _read(path) is not None:
                    path.unlink()
        self._name = secrets.token_hex(8)
        self._file = open_private(folder / self._name, os.O_RDWR | os.O_EXCL)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.pwrite(self._file, (self._boot + b" " + worker.encode()).ljust(_HEADER_BYTES), 0)

    def keep_back(self, kind: Literal["send", "draft"], number: int, attempt: int) -> int:
        """Write down that a request is about to leave; return its slot, or 0 if nothing is written down."""
        if self._file is None:
            return 0
        slot = self._free.pop() if self._free else self._slots + 1
        self._slots = max(self._slots, slot)
        self._write(slot, (_KEPT_BACK + f"{kind} {number} {attempt}".encode()).ljust(_SLOT_BYTES))
        return slot

    def leave(self, slot: int) -> None:
        """Write down that a request leaves with the very next step."""
        self._write(slot, _LEFT)

    def end(self, slot: int) -> None:
        """Use the slot for another request: the outcome of this one is stored."""
        if slot:
            self._write(slot, _ENDED)
            self._free.append(slot)

    def kept_back(self) -> frozenset[Departure]:
        """Return the requests of killed gateways on this machine that certainly have not left."""
        if self._file is None or self._folder is None:
            return frozenset()
        found: dict[str, Path] = {}
        with suppress(OSError):
            found = {path.name: path for path in self._folder.iterdir() if path.name != self._name}
        self._known = {name: known for name, known in self._known.items() if name in found}
        for name, path in found.items():
            if name not in self._known and (content := _read(path)) is not None:
                self._known[name] = list(self._parse(content))
        marks = [*chain.from_iterable(self._known.values())]
        kept_back, left = ({each for mark, each in marks if mark == wanted} for wanted in (_KEPT_BACK, _LEFT))
        return frozenset(kept_back - left)  # a file can be about another database

    def _parse(self, content: bytes) -> Generator[tuple[bytes, Departure]]:
        boot, _, worker = content[:_HEADER_BYTES].rstrip().partition(b" ")
        for at in range(_HEADER_BYTES, len(content), _SLOT_BYTES) if boot == self._boot else ():
            slot = content[at : at + _SLOT_BYTES]
            with suppress(ValueError):  # it is damaged
                kind, number, attempt = slot[1:].decode().split()
                if kind == "draft":
                    yield slot[:1], Departure("draft", int(number), int(attempt))
                else:
                    yield slot[:1], Departure("send", int(number), int(attempt), worker.decode())

    def _write(self, slot: int, content: bytes) -> None:
        if self._file is None or not slot:
            return
        try:
            os.pwrite(self._file, content, _HEADER_BYTES + (slot - 1) * _SLOT_BYTES)
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        """Leave no file that says less than the truth. Raises OSError if it cannot be removed."""
        log.warning("requests are no longer written down: %s", error, extra={"action": "departures.failed"})
        self._close()

    def _close(self) -> None:
        if self._file is None or self._folder is None:
            return
        (self._folder / self._name).unlink(missing_ok=True)
        os.close(self._file)
        self._file = None


def _boot_id() -> bytes:
    """Return what is another value after each start of the machine; nothing where that is not known."""
    with suppress(OSError):
        return _BOOT.read_bytes().strip()
    return b""


def _read(path: Path) -> bytes | None:
    """Return what a gateway wrote that is gone; None if it still runs, or nobody knows."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file.read()
    except OSError:
        return None
