"""The directory of one process: what its supervisor has written, whether it lives, and its output."""

import fcntl
import os
import re
import shutil
import signal
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from palaver.model.value import value
from palaver.processes.supervisor.process_table import start_time
from palaver.processes.supervisor.segments import SEGMENT_NAME

SEGMENT_BYTES = 1 << 20
SEGMENTS = 10
"""How many segments of output are kept: the first one and the last ones."""
BUFFER_BYTES = 200_000
"""How much of the end of the output a person or an agent sees."""
_SEGMENT = re.compile(r"out\.([0-9]{6,})", re.ASCII)
_MAX_STATUS_BYTES = 4096


@value
class SupervisorStatus:
    """What the supervisor has recorded."""

    pid: int | None = None
    pid_started: str | None = None
    exit_code: int | None = None
    exited: timedelta | None = None
    """How long after its start the command ended."""
    ended: timedelta | None = None
    """How long after its start everything had ended."""


@value(kw_only=False)
class ProcessDirectory:
    path: Path

    @property
    def lock(self) -> Path:
        return self.path / "lock"

    @property
    def control(self) -> Path:
        return self.path / "control"

    def make(self) -> int:
        """Make the directory and return its locked file. The lock is held until the last holder of the file ends."""
        self.path.mkdir(mode=0o700)
        file = os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file

    def is_supervised(self) -> bool:
        """Tell whether the supervisor lives."""
        try:
            file = os.open(self.lock, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(file)
        return False

    def status(self) -> SupervisorStatus:
        try:
            text = (self.path / "status").read_bytes()[:_MAX_STATUS_BYTES].decode()
        except FileNotFoundError:
            return SupervisorStatus()
        lines = {
            line.partition(" ")[0]: line.split()[1:] for line in text.splitlines(keepends=True) if line[-1] == "\n"
        }
        started, exited, ended = lines.get("started"), lines.get("exited"), lines.get("ended")
        if started is None:
            return SupervisorStatus()
        begun = int(started[0])
        return SupervisorStatus(
            pid=int(started[1]),
            pid_started=started[2],
            exit_code=int(exited[1]) if exited else None,
            exited=timedelta(microseconds=int(exited[0]) - begun) if exited else None,
            ended=timedelta(microseconds=int(ended[0]) - begun) if ended else None,
        )

    def kill_orphan(self) -> bool:
        """Kill the command if its supervisor has died before it. Return whether it still ran."""
        status = self.status()
        if self.is_supervised() or not (status.pid and is_running(status.pid, status.pid_started or "")):
            return False
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(status.pid, signal.SIGKILL)
        return True

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    # Output

    def segments(self) -> dict[int, int]:
        """Return the sizes of the segments that are kept, by number."""
        found: dict[int, int] = {}
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    if match := _SEGMENT.fullmatch(entry.name):
                        found[int(match[1])] = entry.stat().st_size
        except FileNotFoundError:
            return {}
        return dict(sorted(found.items()))

    def size(self) -> int:
        """Return how much output there was, including what is no longer kept."""
        segments = self.segments()
        return max(((number * SEGMENT_BYTES) + size for number, size in segments.items()), default=0)

    def read(self, start: int, end: int) -> list[tuple[int, bytes]]:
        """Return the output between two offsets that is kept, in pieces with their offsets."""
        pieces: list[tuple[int, bytes]] = []
        for number in range(start // SEGMENT_BYTES, -(-end // SEGMENT_BYTES)):
            base = number * SEGMENT_BYTES
            first, last = max(start - base, 0), min(end - base, SEGMENT_BYTES)
            try:
                with (self.path / (SEGMENT_NAME % number)).open("rb") as file:
                    file.seek(first)
                    data = file.read(last - first)
            except FileNotFoundError:
                continue
            if data:
                pieces.append((base + first, data))
        return pieces

    def tail(self, count: int) -> tuple[int, bytes]:
        """Return the last bytes of the output and their offset."""
        size = self.size()
        pieces = self.read(max(size - count, 0), size)
        return (pieces[0][0], b"".join(data for _, data in pieces)) if pieces else (size, b"")


def is_running(pid: int, pid_started: str) -> bool:
    """Tell whether this process, and not a later one with its id, still runs."""
    return start_time(pid) == pid_started
