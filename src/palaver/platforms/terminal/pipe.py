"""Talking through a pipe: lines are said one after the other, answers are printed plain and whole."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TextIO

from palaver.platforms.terminal.client import Client
from palaver.platforms.terminal.screen import printable
from palaver.platforms.terminal.wire import LONGEST_TEXT, Welcome
from palaver.protocols import BadArgument

__all__ = ["PipeScreen", "lines", "say_all", "say_one"]

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


async def say_all(client: Client, lines: AsyncIterable[str], complaints: TextIO) -> bool:
    """Each when the one before is answered; whether all of them could be said."""
    number, well = 0, True
    async for line in lines:
        number += 1
        try:
            await say_one(client, line, complaints)
        except BadArgument as error:
            complaints.write(f"palaver: line {number}: {error}\n")
            well = False
    return well


async def say_one(client: Client, message: str, complaints: TextIO) -> bool:
    """Until it is answered; whether it was let in and done. Raises BadArgument where it is too long."""
    if not message.strip():
        return True
    settled = await client.say(message)
    if settled.refused:
        complaints.write(f"palaver: not let in: {settled.refused}\n")
    return not (settled.refused or settled.failed)


async def lines() -> AsyncGenerator[str]:
    """The lines of standard input, read in a thread that does not keep the process alive. Raises OSError."""
    loop, waiting = asyncio.get_running_loop(), asyncio.Queue[str | OSError | None](maxsize=16)

    def put(line: str | OSError | None) -> None:
        asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()

    def read() -> None:
        with suppress(CancelledError, RuntimeError):  # Whoever listened may be gone by now.
            try:
                with open(_STANDARD_INPUT, encoding="utf-8", errors="replace", closefd=False) as stream:
                    for line in _lines_of(stream):
                        put(line)
                put(None)
            except OSError as error:
                put(error)

    threading.Thread(target=read, daemon=True).start()
    while (line := await waiting.get()) is not None:
        if isinstance(line, OSError):
            raise line
        yield line


def _lines_of(stream: TextIO) -> Iterator[str]:
    """Of a line that is too long, only as much as shows it: it may never end."""
    while line := stream.readline(LONGEST_TEXT + 1):
        yield line.rstrip("\n")
        while line and not line.endswith("\n"):
            line = stream.readline(LONGEST_TEXT)
