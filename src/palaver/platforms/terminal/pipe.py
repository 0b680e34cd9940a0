"""Talking through a pipe: lines are said one after the other, answers are printed plain and whole."""

import asyncio
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterable
from typing import TextIO

from palaver.platforms.terminal.client import Client
from palaver.platforms.terminal.printable import printable
from palaver.platforms.terminal.wire import Welcome

__all__ = ["PipeScreen", "lines", "say_all"]

_STANDARD_INPUT = 0


class PipeScreen:
    """Prints what is whole, and nothing else."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def welcome(self, welcome: Welcome) -> None: ...

    def lost(self) -> None: ...

    def show(self, message: str, text: str, *, growing: bool) -> None:  # noqa: ARG002 - the same for every screen
        if not growing:
            self._out.write(f"{printable(text)}\n")
            self._out.flush()

    def heard(self, text: str) -> None: ...

    def typing(self) -> None: ...


async def say_all(client: Client, messages: AsyncIterable[str], complaints: TextIO) -> None:
    """Each when the one before is answered."""
    async for message in messages:
        if message.strip() and (refused := await client.say(message)):
            complaints.write(f"palaver: not let in: {refused}\n")


async def lines() -> AsyncGenerator[str]:
    """The lines of standard input, read in a thread that does not keep the process alive."""
    if not sys.stdin:
        return  # it is closed, and its number may be that of another file by now
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[str | None](maxsize=16)

    def put(line: str | None) -> None:
        asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()

    def read() -> None:
        with open(_STANDARD_INPUT, encoding="utf-8", errors="replace", closefd=False) as stream:
            for line in stream:
                put(line.rstrip("\n"))
        put(None)

    threading.Thread(target=read, daemon=True).start()
    while (line := await waiting.get()) is not None:
        yield line
