"""Chat through a pipe: say each line of standard input, print each answer."""

import asyncio
import threading
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from palaver.platforms.terminal import wire
from palaver.platforms.terminal.client import Client, PendingOffer, Screen, printable
from palaver.platforms.terminal.files import save_file
from palaver.platforms.terminal.wire import MAX_TEXT
from palaver.protocols import BadArgument

_STDIN = 0
_HOW = "To use it, make “yes” the first line, or run palaver chat --yes."


class PipeScreen(Screen):
    """Prints finished messages only."""

    def __init__(self, out: TextIO, errors: TextIO | None = None, *, accepts: bool = False) -> None:
        """With `accepts`, use what is offered."""
        self._out = out
        self._errors = errors
        self.offer = PendingOffer(is_accepted=accepts)

    def welcome(self, welcome: wire.Welcome) -> None:
        if welcome.offer and self._errors and not self.offer.is_accepted:
            self._errors.write(f"palaver: {welcome.offer.found} {_HOW}\n")
        self.offer.made(welcome.offer)

    def show(self, message: str, text: str, *, growing: bool) -> None:  # noqa: ARG002 - the same for every screen
        if not growing:
            self._print(text)

    def save(self, file: wire.File) -> None:
        self._print(save_file(file, Path()))

    def _print(self, text: str) -> None:
        self._out.write(f"{printable(text)}\n")
        self._out.flush()


async def say_all(client: Client, lines: AsyncIterable[str], errors: TextIO, offer: PendingOffer | None = None) -> bool:
    """Say each line when the one before is answered; return whether all were valid. The first can answer an offer."""
    number = 0
    is_valid = True
    async for line in lines:
        number += 1
        said = await offer.read_first(line) if offer and number == 1 else line
        try:
            await say_one(client, said, errors)
        except BadArgument as error:
            errors.write(f"palaver: line {number}: {error}\n")
            is_valid = False
    return is_valid


async def say_one(client: Client, message: str, errors: TextIO) -> bool:
    """Say a message and wait for the answer; return whether it succeeded. Raises BadArgument if it is too long."""
    if not message.strip():
        return True
    settled = await client.say(message)
    if settled.refused:
        errors.write(f"palaver: refused: {settled.refused}\n")
    return not (settled.refused or settled.failed)


async def read_lines() -> AsyncGenerator[str]:
    """Yield the lines of standard input, read in a daemon thread. Raises OSError."""
    loop = asyncio.get_running_loop()
    waiting = asyncio.Queue[str | OSError | None](maxsize=16)

    def put(line: str | OSError | None) -> None:
        asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()

    def read() -> None:
        with suppress(CancelledError, RuntimeError):  # The reader can be gone by now.
            try:
                with open(_STDIN, encoding="utf-8", errors="replace", closefd=False) as stream:
                    for line in _bounded_lines(stream):
                        put(line)
                put(None)
            except OSError as error:
                put(error)

    threading.Thread(target=read, daemon=True).start()
    while (line := await waiting.get()) is not None:
        if isinstance(line, OSError):
            raise line
        yield line


def _bounded_lines(stream: TextIO) -> Iterator[str]:
    """Cut a line that is too long: it may never end."""
    while line := stream.readline(MAX_TEXT + 1):
        yield line.rstrip("\n")
        while line and not line.endswith("\n"):
            line = stream.readline(MAX_TEXT)
