"""The server: a world that gateways in other processes can reach, and that can be tried by hand.

`python -m palaver.testkit.server --socket PATH` shows what is sent to alice and takes what she says, by lines.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from palaver.protocols.adapter import PlatformDown, PlatformError, SendUnclear
from palaver.protocols.clock import SystemClock
from palaver.testkit.chat import Chat
from palaver.testkit.link import Line
from palaver.testkit.mailbox import Person
from palaver.testkit.wire import (
    LONGEST_LINE,
    Answer,
    Edit,
    Fetch,
    Open,
    OpenThread,
    Send,
    SendFile,
    ShowMenu,
    Typing,
    read,
    read_request,
    write,
)
from palaver.testkit.world import World

__all__ = [
    "serving",
]


@asynccontextmanager
async def serving(world: World, path: str | Path) -> AsyncGenerator[None]:
    """The world can be reached through a socket at this path, until the end of the block."""
    visits: set[asyncio.Task[None]] = set()

    def welcome(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.create_task(_visit(world, reader, writer))
        visits.add(visit)
        visit.add_done_callback(visits.discard)

    server = await asyncio.start_unix_server(welcome, path, limit=LONGEST_LINE)
    try:
        yield
    finally:
        server.close()
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)


async def _visit(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        # A visitor may be killed at any time, and a world may end a connection without a word.
        with suppress(OSError, SendUnclear, PlatformDown):
            match await read_request(reader):
                case None:
                    pass
                case Open(account):
                    await _update(await world.open(account), reader, writer)
                case request:
                    await write(writer, await _answer(world, request))
    finally:
        writer.close()


async def _answer(world: World, request: Send | OpenThread | Edit | Typing | Fetch | SendFile | ShowMenu) -> Answer:
    try:
        match request:
            case Send(account, outbound, key):
                return Answer(receipt=await world.send(account, outbound, key))
            case OpenThread(account, outbound, key):
                return Answer(receipt=await world.open_thread(account, outbound, key))
            case Fetch(account, handle):
                return Answer(content=await world.fetch(account, handle))
            case SendFile(account, outbound, content, key):
                return Answer(receipt=await world.send_file(account, outbound, content, key))
            case Edit() | Typing() | ShowMenu():
                await _do(world, request)
    except SendUnclear:
        raise
    except PlatformError as error:
        return Answer.of(error)
    return Answer()


async def _do(world: World, request: Edit | Typing | ShowMenu) -> None:
    match request:
        case Edit(account, outbound, receipt):
            await world.edit(account, receipt, outbound)
        case ShowMenu(account, lines):
            await world.show_menu(account, lines)
        case Typing(account, outbound):
            await world.typing(account, outbound)


async def _update(line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Tell updates and take acknowledgements until one side ends the connection."""
    ways = {asyncio.create_task(_tell(line, writer)), asyncio.create_task(_take(line, reader))}
    try:
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await line.close()
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)


async def _tell(line: Line, writer: asyncio.StreamWriter) -> None:
    while True:
        await write(writer, await line.next())


async def _take(line: Line, reader: asyncio.StreamReader) -> None:
    while (number := await read(reader, int)) is not None:
        await line.acknowledge(number)


# By hand


async def _by_hand(path: str) -> None:
    world = World(clock=SystemClock())
    alice = world.person("alice")
    chat = world.dm(alice)
    async with serving(world, path):
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
    parser.add_argument("--socket", required=True, metavar="PATH", help="where gateways reach it")
    asyncio.run(_by_hand(parser.parse_args().socket))


if __name__ == "__main__":
    _main()
