"""Find out what became of a process from what its supervisor has left."""

from datetime import datetime

from palaver.model.process import Process
from palaver.processes.directory import ProcessDirectory, SupervisorStatus, is_running
from palaver.store.processes import Findings

KILLED = "its supervisor was killed, so it was killed too"
"""Of a process that still ran when this was found out."""


def look(process: Process, directory: ProcessDirectory, now: datetime) -> Findings:
    """Return what is known now. It has ended if its supervisor has, even if nobody knows how."""
    # Ask first whether the supervisor lives: what it wrote before its end is read then.
    is_supervised = directory.is_supervised()
    status = directory.status()
    is_over = status.ended is not None or not is_supervised
    ended = now if status.ended is None else process.started + status.ended
    return Findings(
        pid=status.pid,
        pid_started=status.pid_started,
        exited=None if status.exited is None else process.started + status.exited,
        exit_code=status.exit_code,
        ended=ended if is_over else None,
        problem=_explain_loss(status) if is_over and status.exited is None else None,
        output_bytes=directory.size(),
    )


def _explain_loss(status: SupervisorStatus) -> str:
    """Say why nobody knows how the command ended."""
    if status.pid is None or status.pid_started is None:
        return "it was never started"
    if is_running(status.pid, status.pid_started):
        return KILLED
    return "its supervisor was killed, or the machine was restarted"
