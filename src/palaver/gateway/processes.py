"""Put together what runs commands: the processes of this gateway, and the agent's terminal."""

import socket
from pathlib import Path

from palaver.config.model import Config
from palaver.db.private_files import make_private_folder
from palaver.processes.backends.apptainer import ApptainerBackend
from palaver.processes.backends.base import Backend, LocalBackend
from palaver.processes.backends.docker import DockerBackend
from palaver.processes.backends.modal import ModalBackend
from palaver.processes.backends.ssh import SshBackend
from palaver.processes.home import make_home
from palaver.processes.manager import ProcessManager
from palaver.protocols.clock import Clock
from palaver.settings.terminal import BackendName, TerminalConfig
from palaver.settings.types import reveal
from palaver.store.opening import sqlite_path
from palaver.store.processes import Keeper
from palaver.store.store import Store
from palaver.tools.terminal import TerminalTools

_MEGABYTE = 1 << 20


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
    terminal = config.tools.terminal
    backend = _make_backend(terminal, config.data_dir)
    if backend is None:
        return None
    if backend.files is not None:
        make_private_folder(backend.files)
    return TerminalTools(
        manager=processes,
        backend=backend,
        policy=terminal.policy(),
        wait_limit=terminal.wait_limit,
        timeout=terminal.timeout,
    )


def _make_backend(terminal: TerminalConfig, data_dir: Path) -> Backend | None:
    """Return the back end, or None if there is no terminal."""
    folder, environment = terminal.folder or data_dir / "work", reveal(terminal.environment)
    match terminal.backend:
        case BackendName.OFF:
            return None
        case BackendName.LOCAL | BackendName.OWNER:
            return LocalBackend(folder=folder, environment=environment)
        case BackendName.SSH:
            return SshBackend(
                host=terminal.ssh.host or "",
                folder=terminal.ssh.remote_folder,
                port=terminal.ssh.port,
                key=terminal.ssh.key_file,
                known_hosts=terminal.ssh.known_hosts_file,
                environment=environment,
            )
        case BackendName.DOCKER:
            return DockerBackend(
                image=terminal.docker.image or "",
                folder=folder,
                socket=Path(terminal.docker.socket),
                network=terminal.docker.network,
                user=terminal.docker.user or "",
                memory=terminal.docker.memory_mb * _MEGABYTE,
                cpus=terminal.docker.cpus,
                environment=environment,
            )
        case BackendName.APPTAINER:
            return ApptainerBackend(image=terminal.apptainer.image or "", folder=folder, environment=environment)
        case BackendName.MODAL:
            return ModalBackend(
                image=terminal.modal.image or "",
                app=terminal.modal.app,
                volume=terminal.modal.volume,
                has_network=terminal.modal.network,
                environment=environment,
            )
