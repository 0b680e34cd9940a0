"""A person on a real IRC server, with a client of their own."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from typing import Any

from palaver.platforms.irc.adapter import IrcAdapter
from palaver.platforms.irc.connection import IrcOptions, Line, read_line
from palaver.protocols import Adapter, Source
from palaver.testkit.fake_server import NotPossible, Shown
from palaver.testkit.recorder import TIMEOUT_SECONDS
from tests.platforms.called import ACCOUNT
from tests.platforms.irc.ngircd import OPERATOR

__all__ = ["FakeChannel", "FakeIrc", "Person", "options_of", "person"]

_numbers = count(1)


def options_of(port: int, nick: str, **more: Any) -> IrcOptions:
    given = {"server": "127.0.0.1", "port": port, "tls": False, "nick": nick, "network": "test", **more}
    return IrcOptions.model_validate(given)


class Person:
    def __init__(self, nick: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.nick, self._reader, self._writer = nick, reader, writer
        self.heard: list[Line] = []
        self._pings = count(1)

    async def do(self, *lines: str) -> list[Line]:
        """Send raw lines, and return what came until the server had dealt with them."""
        before, ping = len(self.heard), f"p{next(self._pings)}"
        self._writer.write("".join(f"{line}\r\n" for line in (*lines, f"PING :{ping}")).encode())
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                raw = await self._reader.readline()
                assert raw, "the server closed the connection"
                line = read_line(raw.decode().rstrip("\r\n"))
                if line.command == "PING":
                    self._writer.write(f"PONG :{line.param(0)}\r\n".encode())
                if line.command == "PONG" and line.params[-1] == ping:
                    return self.heard[before:]
                self.heard.append(line)


@asynccontextmanager
async def person(port: int, nick: str) -> AsyncGenerator[Person]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        who = Person(nick, reader, writer)
        await who.do(f"NICK {nick}", f"USER {nick} 0 * :{nick}")
        yield who
    finally:
        writer.close()


class FakeIrc:
    """A direct chat. Each has nicks of its own, as all use one server."""

    thread_id: str | None = None
    kind = "dm"

    def __init__(self, port: int, alice: Person) -> None:
        self.port, self.alice = port, alice
        self.bot = f"bot{next(_numbers)}"

    @property
    def chat_id(self) -> str:
        return self.alice.nick

    @property
    def channels(self) -> list[str]:
        return []

    def adapter(self) -> Adapter:
        adapter = IrcAdapter(ACCOUNT, options_of(self.port, self.bot, channels=self.channels))
        setattr(adapter, "limits", replace(adapter.limits, interval=0.0))  # noqa: B010 - the server has no penalties
        return adapter

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        """Say it once the bot is there: nobody keeps it for them."""
        assert (name, thread_id) == ("alice", None)
        await self._is_there()
        await self.alice.do(f"PRIVMSG {self._target} :{text}")
        ids: dict[str, Any] = {"chat_kind": self.kind, "chat_id": self.chat_id, "user_id": self.alice.nick}
        return Source(platform="irc", account=ACCOUNT, scope_id="test", **ids)

    @property
    def _target(self) -> str:
        return self.bot

    async def _is_there(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not self._sees_bot(await self.alice.do(f"ISON {self.bot}")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _sees_bot(self, lines: list[Line]) -> bool:
        return any(line.command == "303" and self.bot in line.params[-1].split() for line in lines)

    async def shown(self) -> Sequence[Shown]:
        await self.alice.do()
        said = [line for line in self.alice.heard if line.command == "PRIVMSG" and line.nick == self.bot]
        return [Shown(chat_id=self._where(line.param(0)), text=line.param(1)) for line in said]

    def _where(self, target: str) -> str:
        return target

    async def cut(self) -> None:
        await self.alice.do(f"OPER op {OPERATOR}", f"KILL {self.bot} :cut")

    async def limit_rate(self) -> None:
        raise NotPossible("the server answers slowly, and rejects nothing")

    async def lose_send(self, *, shown: bool) -> None:  # noqa: ARG002
        raise NotPossible("test_adapter loses the connection with a server of its own")

    async def close_chat(self) -> None:
        await self.alice.do(f"NICK {self.alice.nick}-away")


class FakeChannel(FakeIrc):
    kind = "channel"

    @property
    def chat_id(self) -> str:
        return f"#{self.bot}"

    @property
    def channels(self) -> list[str]:
        return [self.chat_id]

    @property
    def _target(self) -> str:
        return self.chat_id

    async def _is_there(self) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not self._sees_bot(await self.alice.do(f"JOIN {self.chat_id}", f"NAMES {self.chat_id}")):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _sees_bot(self, lines: list[Line]) -> bool:
        return any(line.command == "353" and self.bot in line.params[-1].replace("@", "").split() for line in lines)

    async def close_chat(self) -> None:
        await self._is_there()
        await self.alice.do(f"OPER op {OPERATOR}", f"MODE {self.chat_id} +ni", f"KICK {self.chat_id} {self.bot}")

    async def mention(self, text: str) -> Source:
        return await self.say(f"{self.bot.upper()}: {text}")
