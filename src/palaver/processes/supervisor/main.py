"""Run one command until everything that it started has ended.

The gateway starts the supervisor in a session of its own and in the directory of the process, with the spec on
standard input. It leaves in that directory:

- `out.000000`, `out.000001`, …: the output (see `segments`)
- `status`: the lines `started TIME PID START SUPERVISOR START`, `exited TIME CODE` and `ended TIME`, each when it
  happened. The command does nothing before the first of them is there.
- `control`: a socket for orders (see `control`), as long as the supervisor lives
- `lock`: a file that it keeps locked until it ends. If somebody removes it, the supervisor kills everything.
"""

import os
import select
import sys
import time

from palaver.processes.supervisor.command import Command, Spec, execute
from palaver.processes.supervisor.control import ControlServer
from palaver.processes.supervisor.lean import signal
from palaver.processes.supervisor.process_table import children_by_parent, signal_process, start_time
from palaver.processes.supervisor.segments import CHUNK_BYTES

PR_SET_CHILD_SUBREAPER = 36
DRAIN_BYTES = 4 << 20
"""How much to read at most before the end of the command is recorded: others may still be writing."""
KILL_AGAIN_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""How often to look whether the directory is still there."""
CLEANUP_SECONDS = 20.0


def main() -> None:
    spec = read_spec()
    os.set_inheritable(int(spec.options["lock"]), False)
    become_reaper()
    supervisor = Supervisor(spec)
    supervisor.start()
    try:
        os.write(1, b"ready\n")
    except BrokenPipeError:
        pass  # The gateway has died; the next one finds the process.
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    try:
        supervisor.run()
    except BaseException:
        supervisor.kill_now()  # Nobody would look after it.
        raise


def read_spec() -> Spec:
    """Read four lists of fields that end with NUL, each after its length."""
    data = b""
    while piece := os.read(0, CHUNK_BYTES):
        data += piece
    fields = iter(data.split(b"\0"))
    options, argv, env, cleanup = ([next(fields) for _ in range(int(next(fields)))] for _ in range(4))
    return Spec(options, argv, env, cleanup)


def become_reaper() -> None:
    """Make processes that fork away our children, where the system can do that."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Supervisor:
    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._command = Command(spec)
        self._control = ControlServer("control")
        self._status = os.open("status", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._woken, self._waking = os.pipe()
        self._kill_at: float | None = None
        """When to use force; None unless somebody asked to kill it."""
        self._look_at = 0.0
        self._unwritten = b""
        """Lines of the status for which there was no room."""
        self._cleaner, self._cleanup_until = 0, 0.0
        self._cleans_again = False
        self._exited = ""
        """The line that the command has ended, if it is written with the end of everything."""

    def start(self) -> None:
        for end in (self._woken, self._waking):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._waking, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, _do_nothing)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        self._command.start()
        started = " ".join(f"{pid} {start_time(pid)}" for pid in (self._command.pid, os.getpid()))
        self._write_status(f"started {now_micros()} {started}")
        if self._unwritten:
            raise OSError("the disk is full")
        self._command.release()

    def run(self) -> None:
        while self._is_anything_left():
            self._control.ping()
            ready = self._wait()
            if self._woken in ready and signal.SIGTERM in os.read(self._woken, 256):
                self._kill(float(self._spec.options["grace"]))
            if self._command.handle(ready):
                self._control.mark_changed()
            for letter, payload, answer in self._control.orders(ready):
                answer(self._obey(letter, payload))
            self._reap()
            if self._cleans_again and not self._cleaner:
                self._cleans_again = False
                self._clean_up()
            self._look()
            self._kill_when_due()
        self._command.read(DRAIN_BYTES)
        self._write_status(f"{self._exited}ended {now_micros()}")
        try:
            os.unlink("control")
        except OSError:
            pass  # somebody else removed it

    def _look(self) -> None:
        """Kill everything if nobody can find it any more because its directory was removed."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_SECONDS
        if self._unwritten:
            self._write_status("")
        try:
            is_kept = os.path.samestat(os.stat("lock"), os.fstat(int(self._spec.options["lock"])))
        except OSError:
            is_kept = False
        if not is_kept and self._kill_at is None:
            self._kill(float(self._spec.options["grace"]))

    def _is_anything_left(self) -> bool:
        """Tell whether anything that the command started is left. What forked away is our child by now."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return bool(self._command.pid)
        return True

    def _wait(self) -> set[int]:
        """Return the descriptors with which something can be done."""
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        for number, events in (*self._command.wanted().items(), *self._control.wanted().items()):
            poll.register(number, events)
        moments = [moment for moment in (self._look_at, self._kill_at, self._control.ping_at()) if moment is not None]
        # One millisecond more, so that it is surely time then.
        timeout = max(0.0, min(moments) - time.monotonic()) * 1000 + 1
        return {number for number, _ in poll.poll(timeout)}

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._cleaner:
                self._cleaner = 0
            if pid == self._command.pid:
                self._command.pid = 0
                # It may have started something elsewhere after the cleaner had looked.
                self._cleans_again = self._kill_at is not None
                self._command.read(DRAIN_BYTES)
                code = os.waitstatus_to_exitcode(status)
                line = f"exited {now_micros()} {code}"
                if self._cleans_again or self._is_anything_left():
                    self._write_status(line)
                else:  # At once with the end, so that nobody sees leftovers that there are not.
                    self._exited = f"{line}\n"

    def _write_status(self, line: str) -> None:
        self._unwritten += f"{line}\n".encode() if line else b""
        try:
            self._unwritten = self._unwritten[os.write(self._status, self._unwritten) :]
        except OSError:
            pass  # The disk is full. Try again later.
        self._control.mark_changed()

    def _obey(self, letter: bytes, payload: bytes) -> bool:
        if letter == b"w":
            return self._command.take_input(payload)
        if letter == b"c":
            return self._command.close_input()
        if letter == b"k":
            self._kill(float(payload))
            return True
        return False

    # Kill

    def _kill(self, grace: float) -> None:
        """Ask everything to end, and use force after the grace period."""
        if self._kill_at is None:
            self._clean_up()
        at = time.monotonic() + grace
        self._kill_at = at if self._kill_at is None else min(self._kill_at, at)
        if grace > 0:
            for number in (signal.SIGTERM, signal.SIGCONT):
                for pid in self._tree():
                    signal_process(pid, number)

    def kill_now(self) -> None:
        self._kill_at = 0.0
        self._kill_when_due()

    def _kill_when_due(self) -> None:
        if self._kill_at is None or time.monotonic() < self._kill_at:
            return
        # Stop everything first, so that nothing can start more while it is killed.
        stopped: set[int] = set()
        while new := set(self._tree()) - stopped:
            for pid in new:
                signal_process(pid, signal.SIGSTOP)
            stopped |= new
        for pid in stopped:
            signal_process(pid, signal.SIGKILL)
        if self._cleaner and time.monotonic() > self._cleanup_until:
            signal_process(self._cleaner, signal.SIGKILL)
        self._kill_at = time.monotonic() + KILL_AGAIN_SECONDS

    def _clean_up(self) -> None:
        """Run the command that ends what a back end runs elsewhere."""
        if not self._spec.cleanup:
            return
        self._cleanup_until = time.monotonic() + CLEANUP_SECONDS
        self._cleaner = os.fork()
        if self._cleaner == 0:
            null = os.open(os.devnull, os.O_RDWR)
            execute(self._spec.cleanup, self._spec.env, (null, null, null))

    def _tree(self) -> list[int]:
        """Return every process below this one, parents first, except the cleaner and what it started."""
        children = children_by_parent()
        if not children:
            return [self._command.pid] if self._command.pid else []
        found = [os.getpid()]
        for parent in found:
            found += [pid for pid in children.get(parent, ()) if pid != self._cleaner]
        return found[1:]


def _do_nothing(_number: int, _frame: object) -> None:
    """Only wake the loop."""


def now_micros() -> int:
    return time.time_ns() // 1000
