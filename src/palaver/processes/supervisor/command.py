"""The command: started with a terminal or with pipes, fed from a queue, its output moved into segments."""

import errno
import os
import select
import sys
import termios
import tty

from palaver.processes.supervisor.lean import signal
from palaver.processes.supervisor.segments import CHUNK_BYTES, PIPE_BYTES, SegmentWriter, widen_pipe

MAX_INPUT_BYTES = 1 << 20
CANNOT_RUN, NOT_FOUND = 126, 127
END_OF_FILE = b"\x04"
CHANGED_SIGNALS = (
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGXFSZ,
)
"""Signals that Python or the supervisor handles, and the command must not ignore."""


class Spec:
    def __init__(self, options: list[bytes], argv: list[bytes], env: list[bytes], cleanup: list[bytes]) -> None:
        self.options = dict(_pair(each.decode("utf-8", "surrogateescape")) for each in options)
        self.argv = argv
        self.env = {name: value for name, _, value in (each.partition(b"=") for each in env)}
        self.cleanup = cleanup


def _pair(option: str) -> tuple[str, str]:
    name, _, value = option.partition("=")
    return name, value


class Command:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._has_terminal = spec.options["terminal"] == "1"
        self.output = SegmentWriter(int(spec.options["segment_bytes"]), int(spec.options["segments"]))
        self.pid = 0
        """0 before it started and after it ended."""
        self._reading = self._writing = -1
        self._input = bytearray()
        self._closes_input = False
        self._gate, self._release = os.pipe()

    # Start

    def start(self) -> None:
        """Make the process of the command. It does nothing before `release`, and ends if the supervisor dies first."""
        if self._has_terminal:
            self._start_with_terminal()
        else:
            self._start_with_pipes()
        for end in {self._reading, self._writing} - {-1}:
            os.set_blocking(end, False)
        os.close(self._gate)

    def release(self) -> None:
        os.write(self._release, b"+")
        os.close(self._release)

    def _start_with_terminal(self) -> None:
        master, slave = os.openpty()
        if self._spec.options["raw"] == "1":
            tty.setraw(slave)
        termios.tcsetwinsize(slave, (int(self._spec.options["rows"]), int(self._spec.options["columns"])))
        self.pid = os.fork()
        if self.pid == 0:
            os.login_tty(slave)
            self._execute((0, 1, 2))
        os.close(slave)
        self._reading = self._writing = master

    def _start_with_pipes(self) -> None:
        self._reading, writing = os.pipe()
        widen_pipe(self._reading, PIPE_BYTES)
        if self._spec.options["input"] == "1":
            reading, self._writing = os.pipe()
        else:
            reading = os.open(os.devnull, os.O_RDONLY)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            self._execute((reading, writing, writing))
        os.close(writing)
        os.close(reading)

    def _execute(self, streams: tuple[int, int, int]) -> None:
        os.close(self._release)
        if not os.read(self._gate, 1):
            os._exit(CANNOT_RUN)
        _prefer_to_be_killed()
        execute(self._spec.argv, self._spec.env, streams, self._spec.options["folder"])

    # Output

    def wanted(self) -> dict[int, int]:
        """Return what to wait for, by descriptor."""
        wanted = {self._reading: select.POLLIN}
        if self._input or self._closes_input:
            wanted[self._writing] = wanted.get(self._writing, 0) | select.POLLOUT
        wanted.pop(-1, None)
        return wanted

    def handle(self, ready: set[int]) -> bool:
        """Read and write. Return whether there is new output."""
        if self._writing in ready:
            self._write()
        return self._reading in ready and self.read(PIPE_BYTES)

    def read(self, limit: int) -> bool:
        before = self.output.size
        while self._reading >= 0 and self.output.size - before < limit:
            moved = self.output.take(self._reading)
            if moved == 0:
                self._close_output()
            if moved <= 0:
                break
        return self.output.size > before

    def _close_output(self) -> None:
        if self._has_terminal:
            self._writing = -1
        os.close(self._reading)
        self._reading = -1

    # Input

    def take_input(self, data: bytes) -> bool:
        """Queue data. Return False if the command takes no more."""
        is_open = self._writing >= 0 and self.pid and not self._closes_input
        if not is_open or len(self._input) + len(data) > MAX_INPUT_BYTES:
            return False
        self._input += data
        return True

    def close_input(self) -> bool:
        if self._has_terminal:
            return self.take_input(END_OF_FILE)
        is_open = self.take_input(b"")
        self._closes_input |= is_open
        return is_open

    def _write(self) -> None:
        try:
            while self._input:
                del self._input[: os.write(self._writing, self._input[:CHUNK_BYTES])]
        except BlockingIOError:
            return
        except OSError:  # nobody reads it any more
            self._input.clear()
            self._closes_input = not self._has_terminal
        if self._closes_input:
            os.close(self._writing)
            self._writing, self._closes_input = -1, False


def execute(argv: list[bytes], env: dict[bytes, bytes], streams: tuple[int, int, int], folder: str = ".") -> None:
    """Replace this process, a child of the supervisor, or end it and say why."""
    try:
        for number, end in enumerate(streams):
            os.dup2(end, number)
        for number in CHANGED_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.chdir(folder)
        os.execvpe(argv[0], argv, env)  # noqa: S606 - that is the point
    except OSError as error:
        what = f"in {folder}" if error.filename == folder else argv[0].decode(errors="replace")
        os.write(2, f"Cannot run {what}: {error.strerror}\n".encode(errors="replace"))
        os._exit(NOT_FOUND if error.errno == errno.ENOENT else CANNOT_RUN)


def _prefer_to_be_killed() -> None:
    """Let the kernel end the command rather than the gateway when memory runs out."""
    if sys.platform == "linux":
        try:
            with open("/proc/self/oom_score_adj", "w") as file:
                file.write("500")
        except OSError:
            pass
