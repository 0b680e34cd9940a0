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
from palaver.processes.supervisor.process_table import UNKNOWN, signal_process, start_time, with_variable
from palaver.processes.supervisor.segments import SEGMENT_NAME

SEGMENT_BYTES = 1 << 20
SEGMENTS = 10
"""How many segments of output are kept: the first one and the last ones."""
BUFFER_BYTES = 200_000
"""How much of the end of the output a person or an agent sees."""
_SEGMENT = re.compile(r"out\.([0-9]{6,})", re.ASCII)
_MAX_STATUS_BYTES = 4096
_SUPERVISOR = 4
"""Where a line about the start has what is known of the supervisor."""
_KILL_ROUNDS = 100


@value
class SupervisorStatus:
    """What the supervisor has recorded."""

    pid: int | None = None
    pid_started: str | None = None
    supervisor: int | None = None
    supervisor_started: str | None = None
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

    @property
    def cleanup(self) -> Path:
        """The arguments of the program that ends what the command has started elsewhere."""
        return self.path / "cleanup"

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
            supervisor=int(started[3]) if len(started) > _SUPERVISOR else None,
            supervisor_started=started[4] if len(started) > _SUPERVISOR else None,
            exit_code=int(exited[1]) if exited else None,
            exited=timedelta(microseconds=int(exited[0]) - begun) if exited else None,
            ended=timedelta(microseconds=int(ended[0]) - begun) if ended else None,
        )

    def kill_orphan(self) -> bool:
        """Kill everything of the command if its supervisor has died before it. Return whether anything still ran."""
        if self.is_supervised():
            return False
        status, has_run = self.status(), False
        if status.pid and is_running(status.pid, status.pid_started or ""):
            has_run = True
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(status.pid, signal.SIGKILL)
        for _ in range(_KILL_ROUNDS):  # it may start more meanwhile
            marked = [pid for pid in with_variable(f"PALAVER_PROCESS={self.path.name}".encode()) if pid != os.getpid()]
            if not marked:
                break
            has_run = True
            for pid in marked:
                signal_process(pid, signal.SIGKILL)
        return has_run

    def end_supervisor(self) -> bool:
        """Ask the supervisor to kill everything, without its control socket. Return whether it lives."""
        status = self.status()
        if not status.supervisor or not is_running(status.supervisor, status.supervisor_started or ""):
            return False
        signal_process(status.supervisor, signal.SIGTERM)
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
    """Tell whether this process, and not a later one with its id, still runs. One of unknown start does not."""
    return pid_started != UNKNOWN and start_time(pid) == pid_started
