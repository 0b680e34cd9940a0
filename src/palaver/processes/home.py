"""Where a gateway keeps the output of its processes: a directory for each store, with a token of its own."""

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from palaver.db.private_files import make_private_folder, open_private
from palaver.model.value import value
from palaver.processes.directory import ProcessDirectory
from palaver.processes.findings import look
from palaver.processes.launcher import kill
from palaver.store.conversations.visibility import Filter
from palaver.store.processes import find_store_id, known_ids, list_where, load_store_id, record
from palaver.store.records import placeholders
from palaver.store.store import Store

_TOKEN = "home"  # noqa: S105 - a file name
_CHUNK = 500


@value
class ProcessHome:
    path: Path
    token: str
    """Identifies this directory, no matter on which machine it is."""

    def directory(self, id_: str) -> ProcessDirectory:
        return ProcessDirectory(self.path / id_)

    def ids(self) -> list[str]:
        """Return the ids of the processes that have a directory here."""
        return sorted(entry.name for entry in self.path.iterdir() if entry.is_dir())


async def make_home(store: Store, data_dir: Path) -> ProcessHome:
    """Return the directory of a store, made at first use."""
    path = data_dir / "processes" / await store.transact(load_store_id())
    make_private_folder(path)
    token = path / _TOKEN
    with suppress(FileExistsError), os.fdopen(open_private(token, os.O_WRONLY | os.O_EXCL), "w") as file:
        file.write(secrets.token_hex(8))
    return ProcessHome(path=path, token=token.read_text())


async def find_home(store: Store, data_dir: Path) -> ProcessHome | None:
    """Return the directory of a store if it has one on this machine."""
    store_id = await store.read(find_store_id())
    path = data_dir / "processes" / (store_id or "-")
    token = path / _TOKEN
    return ProcessHome(path=path, token=token.read_text()) if store_id and token.exists() else None


async def end_here(store: Store, home: ProcessHome, ids: Sequence[str], now: datetime) -> list[str]:
    """Kill those of the processes that are on this machine, and record their end, also while no gateway runs.

    Return the ids of those that ran.
    """
    found = await store.read(list_where(Filter(f"p.id IN ({placeholders(ids)})", tuple(ids))))
    killed = await asyncio.gather(*(kill(home.directory(process.id)) for process in found))
    for process in found:
        findings = look(process, home.directory(process.id), now)
        if findings.ended and home.directory(process.id).path.is_dir():
            await store.transact(record(process.number, findings))
    return [process.id for process, is_killed in zip(found, killed, strict=True) if is_killed]


async def find_outputs(store: Store, data_dir: Path) -> Callable[[str], list[tuple[int, bytes]]]:
    """Return what reads the output of a process that is kept on this machine, in pieces with their offsets."""
    home = await find_home(store, data_dir)

    def read(id_: str) -> list[tuple[int, bytes]]:
        directory = home.directory(id_) if home else None
        return directory.read(0, directory.size()) if directory else []

    return read


async def remove_forgotten_outputs(store: Store, data_dir: Path) -> None:
    """Remove the output of processes that the store has forgotten, if there is any on this machine."""
    if home := await find_home(store, data_dir):
        await remove_forgotten(store, home)


async def remove_forgotten(store: Store, home: ProcessHome) -> int:
    """Remove the directories of processes that the store has forgotten, with their output. Return how many."""
    # A process is in the store before it has a directory, so what is found here and not there was forgotten.
    ids = home.ids()
    known: set[str] = set()
    for start in range(0, len(ids), _CHUNK):
        known |= await store.read(known_ids(ids[start : start + _CHUNK]))
    forgotten = [home.directory(id_) for id_ in ids if id_ not in known]
    for directory in forgotten:
        await kill(directory, 0)
        await asyncio.to_thread(directory.remove)
    return len(forgotten)
