"""Put together what runs commands: the processes of this gateway, and the agent's terminal."""

import socket

from palaver.config.model import Config
from palaver.processes.home import make_home
from palaver.processes.manager import ProcessManager
from palaver.protocols.clock import Clock
from palaver.store.opening import sqlite_path
from palaver.store.processes import Keeper
from palaver.store.store import Store
from palaver.tools.terminal import TerminalTools

_SHARE_OF_TOOL_LIMIT = 0.9
"""A call that reaches the limit for tools would be stopped, with an unknown effect."""


async def make_process_manager(config: Config, store: Store, clock: Clock, worker: str) -> ProcessManager:
    """Return what looks after processes, also those from before the terminal was switched off."""
    home = await make_home(store, config.data_dir)
    keeper = Keeper(
        home=home.token,
        host=socket.gethostname(),
        worker=worker,
        alone=sqlite_path(config.store) is not None,
        lease=config.limits.lease,
    )
    return ProcessManager(
        store=store,
        home=home,
        keeper=keeper,
        clock=clock,
        limits=config.tools.terminal.limits(),
        keep_finished=config.tools.terminal.keep_finished,
    )


def make_terminal_tools(config: Config, processes: ProcessManager) -> TerminalTools | None:
    terminal, longest = config.tools.terminal, config.limits.tool_limit * _SHARE_OF_TOOL_LIMIT
    backend = terminal.make_backend(config.data_dir)
    if backend is None:
        return None
    if backend.files is not None:
        backend.files.mkdir(mode=0o700, parents=True, exist_ok=True)
    return TerminalTools(
        manager=processes,
        backend=backend,
        policy=terminal.policy(),
        wait_limit=min(terminal.wait_limit, longest),
        timeout=min(terminal.timeout, longest),
    )
