"""A gateway in a process of its own: `python -m bench.worker URL SOCKET NAME ACCOUNT…`, until its input ends."""

import asyncio
import gc
import sys
from contextlib import suppress

from bench.gateway import AT_ONCE, SETTINGS
from palaver.agents.echo import EchoAgent
from palaver.cli.loop import run
from palaver.commands.builtin import builtin_commands
from palaver.engine.engine import Engine
from palaver.gateway.gateway import GC_THRESHOLD
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.socket import SocketClient

__all__: list[str] = []


async def _serve(url: str, socket: str, name: str, *accounts: str) -> None:
    gc.set_threshold(GC_THRESHOLD)
    async with await open_store(url) as store:
        engine = Engine(
            store=store,
            adapters=[FakeAdapter(SocketClient(socket), account, concurrency=AT_ONCE) for account in accounts],
            agent=EchoAgent(),
            commands=builtin_commands(store),
            settings=SETTINGS,
            clock=SystemClock(),
            worker=name,
            alone=False,
        )
        serving = asyncio.create_task(engine.serve())
        await asyncio.to_thread(sys.stdin.read)
        serving.cancel()
        with suppress(asyncio.CancelledError):
            await serving


if __name__ == "__main__":
    run(_serve(*sys.argv[1:]))
