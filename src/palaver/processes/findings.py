"""Find out what became of a process from what its supervisor has left."""

from datetime import datetime

from palaver.model.process import Process
from palaver.processes.directory import ProcessDirectory, is_running
from palaver.store.processes import Findings

_KILLED = "its supervisor was killed, so it was killed too"
"""Of a process that still ran when this was found out."""


def look(process: Process, directory: ProcessDirectory, now: datetime) -> Findings:
    """Return what is known now. It has ended if its supervisor has, even if nobody knows how."""
    # Ask first whether the supervisor lives: what it wrote before its end is read then.
    is_supervised = directory.is_supervised()
    status = directory.status()
    is_over = status.ended is not None or not is_supervised
    # If its directory is gone, what was recorded of it is still known.
    pid, pid_started = status.pid or process.pid, status.pid_started or process.pid_started
    ended = now if status.ended is None else process.started + status.ended
    return Findings(
        pid=pid,
        pid_started=pid_started,
        exited=None if status.exited is None else process.started + status.exited,
        exit_code=status.exit_code,
        ended=ended if is_over else None,
        problem=_explain_loss(pid, pid_started) if is_over and status.exited is None else None,
        output_bytes=directory.size(),
    )


def _explain_loss(pid: int | None, pid_started: str | None) -> str:
    """Say why nobody knows how the command ended."""
    if pid is None or pid_started is None:
        return "it was never started"
    if is_running(pid, pid_started):
        return _KILLED
    return "its supervisor was killed, or the machine was restarted"
