"""The check of `palaver doctor` on background processes: their rows, their directories and their supervisors agree."""

from datetime import datetime, timedelta
from pathlib import Path

from palaver.model.process import Process
from palaver.processes.directory import ProcessDirectory
from palaver.processes.home import find_home
from palaver.store.conversations.visibility import Filter
from palaver.store.damage.health_check import HealthCheck, listed
from palaver.store.processes import list_where
from palaver.store.store import Store

_STARTING = timedelta(minutes=1)
"""So long, a process can be without a directory, or its end unrecorded, while a gateway runs."""


async def check_processes(store: Store, data_dir: Path, now: datetime) -> HealthCheck | None:
    """Check the processes that this machine keeps; None if it has never kept any."""
    home = await find_home(store, data_dir)
    if home is None:
        return None
    # Directories first: a process is in the store before it has one.
    ids = home.ids()
    known = await store.read(list_where(Filter("p.home = ?", (home.token,))))
    stray = sorted(set(ids) - {process.id for process in known})
    problems = [f"{home.directory(id_).path} belongs to no process" for id_ in stray]
    problems += [
        f"{process.name} {problem}"
        for process in known
        if (problem := _problem(process, home.directory(process.id))) and now - process.started > _STARTING
    ]
    running = sum(process.ended is None for process in known)
    fine = f"running: {running}, ended: {len(known) - running}"
    return HealthCheck(
        name="background processes",
        ok=not problems,
        found=listed(problems) or fine,
        public=f"{fine}, problems: {len(problems)}",
        fix="start the gateway: it records and reports what has ended, and removes the rest within a day",
    )


def _problem(process: Process, directory: ProcessDirectory) -> str | None:
    if not directory.path.is_dir():
        return "has lost its output: its directory is gone"
    if process.ended or directory.is_supervised() or directory.status().ended:
        return None
    return "counts as running, but its supervisor is dead"
