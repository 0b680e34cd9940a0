"""The square behind a relay: the fake platform is reached through a connector, which is killed again and again, too."""

import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.engine.engine import Engine
from palaver.model.key import ProfileRule
from palaver.platforms.relayed.adapter import join
from palaver.protocols.adapter import PlatformDown
from palaver.protocols.clock import SystemClock
from palaver.protocols.relay import digest, new_secret
from palaver.store.clock import StoreClock
from palaver.store.opening import open_store
from palaver.store.people.api_tokens import CredentialKind
from palaver.store.store import Store
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from palaver.testkit.socket import SocketClient, serve
from palaver.web.relay import RelayServer
from tests.crash.square import FAULTS, FakeSquare
from tests.ports import free_port
from tests.settings import settings

__all__ = ["relay_square"]

_LEASE = timedelta(seconds=3)
_LIVES = 2.0, 9.0
"""How long a connector lives, in seconds."""
_TENANT = "acme"


@dataclass(kw_only=True)
class RelaySquare(FakeSquare):
    database: Path
    """The connector's."""
    spoken: asyncio.Event
    """Set while people speak: only then the connector is killed."""

    async def speak(self, chance: random.Random, number: int, order: str) -> str:
        self.spoken.set()
        return await super().speak(chance, number, order)

    async def waiting(self, store: Store) -> int:
        """Count what the platform keeps and what the connector keeps for the gateway."""
        with closing(sqlite3.connect(f"file:{self.database}?mode=ro", uri=True)) as connection:
            relayed = connection.execute("SELECT count(*) FROM inbox WHERE state = 'relay'").fetchone()[0]
        return await super().waiting(store) + relayed


@asynccontextmanager
async def relay_square(seed: int = 1) -> AsyncGenerator[RelaySquare]:
    world = FakePlatform(faults=FAULTS, seed=seed, clock=SystemClock())
    with tempfile.TemporaryDirectory(prefix="palaver-relay-") as name:
        folder = Path(name)
        async with serve(world, folder / "world"):
            port, code, spoken = free_port(), await _invite(folder), asyncio.Event()
            chance = random.Random(seed)  # noqa: S311 - it only chooses when to kill
            killing = asyncio.create_task(_kill_again_and_again(folder, port, chance, spoken))
            try:
                enrolment = await _join(f"ws://127.0.0.1:{port}", code)
                (folder / "relay.json").write_text(enrolment)
                where = {"relay_file": str(folder / "relay.json")}
                yield RelaySquare(world=world, where=where, database=folder / "connector.db", spoken=spoken)
            finally:
                killing.cancel()
                with suppress(asyncio.CancelledError):
                    await killing


async def _invite(folder: Path) -> str:
    code, now = new_secret(), SystemClock().now()
    async with await open_store(f"sqlite:///{folder}/connector.db") as store:
        until = now + timedelta(hours=1)
        kind = CredentialKind.RELAY_CODE
        add = store.api_tokens.add(digest(code), kind, now, name=_TENANT, rights=(), profile=_TENANT, expires=until)
        await store.transact(add)
    return code


async def _join(url: str, code: str) -> str:
    key = new_secret()
    async with asyncio.timeout(60):
        while True:
            try:
                return (await join(url, code, key)).model_dump_json()
            except PlatformDown as error:
                if type(error) is not PlatformDown:
                    raise
                await asyncio.sleep(0.05)


async def _kill_again_and_again(folder: Path, port: int, chance: random.Random, spoken: asyncio.Event) -> None:
    number = 0
    while True:
        number += 1
        command = [sys.executable, "-m", "tests.crash.square_relay", str(folder), str(port), f"connector {number}"]
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(command, stderr=log)  # noqa: ASYNC220 - it returns at once
        try:
            await _listens(port)
            await asyncio.sleep(chance.uniform(*_LIVES))
            spoken.clear()
            await spoken.wait()
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


async def _listens(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return


# The connector


async def _serve(folder: Path, port: int, worker: str) -> None:
    engine_settings = settings(
        tenants=(ProfileRule(profile=_TENANT, platform="fake"),),
        lease=_LEASE,
        send_limit=_LEASE,
        repeat_after=_LEASE,
        poll=_LEASE,
        crash_limit=1_000_000,
    )
    async with await open_store(f"sqlite:///{folder}/connector.db", exclusive=True) as store:
        clock = StoreClock(store.database, SystemClock())
        engine = Engine(
            store=store,
            adapters=[FakeAdapter(SocketClient(folder / "world"))],
            agent=EchoAgent(),
            commands=builtin_commands(store),
            settings=engine_settings,
            clock=clock,
            worker=worker,
            alone=True,
        )
        server = RelayServer(store=store, engine=engine, clock=clock, file_key="k")
        async with server.serve("127.0.0.1", port):
            await engine.serve()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
    os._exit(1)
