"""The commands that every gateway has."""

from typing import cast

from palaver.commands import (
    handoff,
    jobs,
    memory,
    models,
    pairing,
    people,
    platforms,
    search,
    sessions,
    transcripts,
    turns,
    voice,
)
from palaver.commands.connect import Connect, connect_handlers
from palaver.commands.processes import process_handlers
from palaver.commands.registry import Registry
from palaver.processes.manager import ProcessManager
from palaver.store.store import Store

_MODULES = (sessions, handoff, transcripts, search, turns, models, voice, jobs, platforms, people, memory, pairing)


def builtin_commands(store: Store, processes: ProcessManager | None = None, connect: Connect | None = None) -> Registry:
    """Return them. Without `processes` nobody can read the output of a process, without `connect` connect a model."""
    handlers = [handler for module in _MODULES for handler in module.commands.handlers(store)]
    handlers += [*process_handlers(store, processes), *connect_handlers(connect)]
    return Registry(handlers, turns.BUSY_MODE_COMMANDS)


# The names need no store: no handler runs.
BUILTIN_NAMES = builtin_commands(cast("Store", None)).names
