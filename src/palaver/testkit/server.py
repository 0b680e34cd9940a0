"""The socket server of the fake platform, for gateways in other processes and for trying things by hand.

`python -m palaver.testkit.server --socket PATH` prints what is sent to alice; each line you type is said by her.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from palaver.protocols import PlatformDown, PlatformError, SendUnclear, SystemClock
from palaver.testkit.chat import Chat
from palaver.testkit.client import UpdateStream
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from palaver.testkit.wire import MAX_LINE_BYTES, Answer, Request, read, write

__all__ = ["serve"]


@asynccontextmanager
async def serve(platform: FakePlatform, path: str | Path) -> AsyncGenerator[None]:
    """Serve the platform on a socket at this path until the end of the block."""
    connections: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(_handle(platform, reader, writer))
        connections.add(connection)
        connection.add_done_callback(connections.discard)

    server = await asyncio.start_unix_server(accept, path, limit=MAX_LINE_BYTES)
    try:
        yield
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _handle(platform: FakePlatform, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # A client can be killed at any time, and the platform can close a connection without an answer.
        with suppress(OSError, SendUnclear, PlatformDown):
            request = await read(reader, Request)
            if request and request.do == "open":
                await _stream_updates(await platform.open(*request.decoded()), reader, writer)
            elif request:
                await write(writer, await _answer(platform, request))
    finally:
        writer.close()


async def _answer(platform: FakePlatform, request: Request) -> Answer:
    try:
        result = await getattr(platform, request.do)(*request.decoded())
    except SendUnclear:
        raise
    except PlatformError as error:
        return Answer.of(error)
    return Answer(content=result) if isinstance(result, bytes) else Answer(receipt=result or "")


async def _stream_updates(stream: UpdateStream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Send updates and read acknowledgements until one side closes the connection."""
    tasks = {
        asyncio.create_task(_send_updates(stream, writer)),
        asyncio.create_task(_read_acknowledgements(stream, reader)),
    }
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await stream.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _send_updates(stream: UpdateStream, writer: asyncio.StreamWriter) -> None:
    while True:
        await write(writer, await stream.next())


async def _read_acknowledgements(stream: UpdateStream, reader: asyncio.StreamReader) -> None:
    while (number := await read(reader, int)) is not None:
        await stream.acknowledge(number)


# By hand


async def _by_hand(path: str) -> None:
    platform = FakePlatform(clock=SystemClock())
    alice = platform.person("alice")
    chat = platform.dm(alice)
    async with serve(platform, path):
        printing = asyncio.create_task(_print_shown(chat))
        try:
            await _speak(chat, alice)
        finally:
            printing.cancel()


async def _print_shown(chat: Chat) -> None:
    for number in range(1, sys.maxsize):
        message = await chat.hears("", times=number, within=float("inf"))
        sys.stdout.write(f"{message.author}: {message.text}\n")
        sys.stdout.flush()


async def _speak(chat: Chat, person: Person) -> None:
    while line := await asyncio.to_thread(sys.stdin.readline):
        await chat.say(person, line.rstrip("\n"))


def _main() -> None:
    parser = argparse.ArgumentParser(prog="palaver.testkit.server", description="A chat platform in memory.")
    parser.add_argument("--socket", required=True, metavar="PATH", help="where gateways connect here")
    asyncio.run(_by_hand(parser.parse_args().socket))


if __name__ == "__main__":
    _main()
