"""Background processes: what is known about one, and what a person or an agent reads about it."""

from datetime import datetime, timedelta
from enum import StrEnum

from palaver.model.text import one_line
from palaver.model.value import value

MAX_COMMAND_LENGTH = 300
"""How much of a command is shown where it stands among others."""


class ProcessState(StrEnum):
    RUNNING = "running"
    LEFTOVERS = "leftovers"
    """The command has ended, and something that it started still runs."""
    ENDED = "ended"
    LOST = "lost"
    """It ended and nobody knows how: its supervisor or its machine died."""


@value
class NewProcess:
    """A command to run, and what to report about it."""

    id: str
    """The name of its directory."""
    command: str
    """As people may read it: without secrets."""
    backend: str
    folder: str
    """Its working directory, where the back end runs it."""
    has_terminal: bool = False
    reports_exit: bool = True
    """Whether the conversation gets a notice when it ends, unless its agent has seen that."""
    watch: str | None = None
    """The conversation gets a notice when this text appears in the output."""
    check_every: timedelta | None = None
    """The conversation gets a notice this often while it runs."""


@value
class Process:
    number: int
    id: str
    session: str
    session_number: int
    command: str
    backend: str
    folder: str
    host: str
    worker: str
    started: datetime
    has_terminal: bool = False
    turn: int | None = None
    """The turn that started it."""
    pid: int | None = None
    pid_started: str | None = None
    """When the kernel started it: no later process with the same id passes for it."""
    exit_code: int | None = None
    """Negative for the signal that ended it."""
    exited: datetime | None = None
    """When the command ended, but not always what it started."""
    ended: datetime | None = None
    problem: str | None = None
    """Why nobody knows how it ended."""
    output_bytes: int = 0
    """All output, once it has ended."""
    stop_asked: datetime | None = None
    reports_exit: bool = False
    """A notice of its end is still to be sent."""
    watch: str | None = None
    watched_to: int = 0
    """How far its output was searched."""
    watch_notices: int = 0
    watch_notified: datetime | None = None
    check_every: timedelta | None = None
    check_at: datetime | None = None

    @property
    def name(self) -> str:
        return process_name(self.number)

    @property
    def state(self) -> ProcessState:
        if self.ended is None:
            return ProcessState.RUNNING if self.exited is None else ProcessState.LEFTOVERS
        return ProcessState.LOST if self.exit_code is None else ProcessState.ENDED

    @property
    def line(self) -> str:
        """Its command, on one line."""
        return one_line(self.command, MAX_COMMAND_LENGTH)

    @property
    def outcome(self) -> str:
        """What became of it: `running`, `exit code 2`, `killed by signal 9`."""
        if self.exit_code is None:
            return "running" if self.ended is None else f"lost: {self.problem or 'unknown'}"
        told = exit_text(self.exit_code)
        return f"{told}, and what it started still runs" if self.ended is None else told


def process_name(number: int) -> str:
    return f"p{number}"


def parse_process_name(text: str) -> int | None:
    """Return the number in `p12` or `12`; None for anything else."""
    digits = text.strip().lower().removeprefix("p")
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _MAX_DIGITS else None


_MAX_DIGITS = 15


def exit_text(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def duration_text(span: timedelta) -> str:
    """Return for example `45 s`, `3 min 20 s` or `2 h 5 min`."""
    seconds = max(int(span.total_seconds()), 0)
    if seconds < _MINUTE:
        return f"{seconds} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE} min {seconds % _MINUTE} s"
    return f"{seconds // _HOUR} h {seconds % _HOUR // _MINUTE} min"


_MINUTE, _HOUR = 60, 3600
