"""Which requests have left, in a file that outlives a killed process.

That a request leaves is committed before it does. A commit takes milliseconds until it is on the disk and answered, and
a gateway that is killed meanwhile has sent nothing, although its database says that it may have. So each request is
written here before that commit, as kept back, and as left when it leaves: one byte, which the kernel keeps even if the
process is killed with its next step.

A file counts only if the process that wrote it is gone, and if the machine has not been restarted since, which can lose
what is not on the disk. It counts only for what its gateway had claimed last: another one, with a file elsewhere or
none, can have sent the same message since. Everything that is not known to have been kept back may have left.
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
_HEADER_BYTES = 512
"""When the machine was started, and which gateway writes."""
_SLOT_BYTES = 64
_KEPT_BACK, _LEFT, _ENDED = b"-", b"+", b"."
_MAX_AGE_SECONDS = 7 * 86_400.0


class Departures:
    """One file for each gateway that ever ran, in a folder. Without a folder nothing is known."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._boot = _boot_id() if folder else ""
        self._file: int | None = None
        self._name = ""
        self._has_failed = False
        self._free: list[int] = []
        self._slots = 0
        """They count from 1."""
        self._known: dict[Path, frozenset[Departure]] = {}
        """What was kept back, by file of a process that is gone."""

    @contextmanager
    def opened(self, worker: str) -> Generator[None]:
        """Write into a new file, if that is possible. It stays if the outcome of a request is not stored."""
        if self._folder and self._boot:
            try:
                self._open(self._folder, worker)
            except OSError as error:
                self._stop(error)
        try:
            yield
        finally:
            if len(self._free) == self._slots:  # else a task that is being cancelled can still write
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
        os.pwrite(self._file, f"{self._boot} {worker}".encode().ljust(_HEADER_BYTES), 0)

    def keep_back(self, kind: str, number: int, attempt: int) -> int:
        """Write down that a request is about to leave; return its slot, or 0 if that cannot be written."""
        if self._file is None or self._has_failed:
            return 0
        if not self._free:
            self._slots += 1
            self._free.append(self._slots)
        slot = self._free.pop()
        try:
            os.pwrite(self._file, f"-{kind} {number} {attempt}".encode().ljust(_SLOT_BYTES), _position(slot))
        except OSError as error:
            self._free.append(slot)
            self._stop(error)
            return 0
        return slot

    def leave(self, slot: int) -> None:
        """Write down that a request leaves with the very next step.

        If that fails, remove the file, which would say that it was kept back. Raises OSError if that fails, too: then
        the request must not leave.
        """
        if not slot or self._file is None or self._folder is None:
            return
        try:
            os.pwrite(self._file, _LEFT, _position(slot))
        except OSError as error:
            self._stop(error)
            (self._folder / self._name).unlink(missing_ok=True)

    def end(self, slot: int) -> None:
        """Use the slot for another request: the outcome of this one is stored."""
        if slot and self._file is not None:
            with suppress(OSError):
                os.pwrite(self._file, _ENDED, _position(slot))
            self._free.append(slot)

    def kept_back(self) -> frozenset[Departure]:
        """Return the requests of killed gateways on this machine that certainly have not left."""
        if self._folder is None:
            return frozenset()
        others = set[Path]()
        with suppress(OSError):
            others = {path for path in self._folder.iterdir() if path.name != self._name}
        self._known = {path: known for path, known in self._known.items() if path in others}
        for path in others - self._known.keys():
            if content := _read(path):  # else it still runs, or has only just made its file
                self._known[path] = self._parse(content)
        return frozenset(chain.from_iterable(self._known.values()))

    def _parse(self, content: bytes) -> frozenset[Departure]:
        boot, _, worker = content[:_HEADER_BYTES].decode(errors="replace").strip().partition(" ")
        if boot != self._boot:
            return frozenset()
        found: dict[bytes, set[Departure]] = {_KEPT_BACK: set(), _LEFT: set()}
        for at in range(_HEADER_BYTES, len(content), _SLOT_BYTES):
            with suppress(ValueError, KeyError):  # it has ended, or is damaged
                kind, number, attempt = content[at + 1 : at + _SLOT_BYTES].decode().split()
                found[content[at : at + 1]].add(Departure(kind, int(number), int(attempt), worker))
        return frozenset(found[_KEPT_BACK] - found[_LEFT])

    def _stop(self, error: OSError) -> None:
        self._has_failed = True
        log.warning("requests are no longer written down: %s", error, extra={"action": "departures.failed"})

    def _close(self) -> None:
        if self._file is not None and self._folder is not None:
            with suppress(OSError):
                (self._folder / self._name).unlink(missing_ok=True)
            os.close(self._file)
            self._file = None


def _position(slot: int) -> int:
    return _HEADER_BYTES + (slot - 1) * _SLOT_BYTES


def _boot_id() -> str:
    """Return what is another value after each start of the machine; nothing where that is not known."""
    with suppress(OSError):
        return _BOOT.read_text().strip()
    return ""


def _read(path: Path) -> bytes | None:
    """Return what a gateway wrote that is gone; None if it still runs, or nobody knows."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return file.read()
    except OSError:
        return None
