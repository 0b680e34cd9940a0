"""The working directory of a job: on this machine, the tools of its turn work there."""

from dataclasses import replace
from pathlib import Path

from palaver.model.access import AccessRole
from palaver.processes.backends.base import Backend, LocalBackend
from palaver.protocols.tools import ToolContext, ToolFailed


def backend_for(backend: Backend, context: ToolContext) -> Backend:
    """Return the back end for a turn. Raises ToolFailed if the owner of its job can no longer choose a directory."""
    job = context.last.inbound.job
    if job is None or job.workdir is None or not isinstance(backend, LocalBackend):
        return backend
    if context.role < AccessRole.ADMIN:
        raise ToolFailed("This job has a working directory, and its owner is no longer an admin.")
    return replace(backend, folder=Path(job.workdir))
