"""The client: the end of the wire at which people sit. It outlives gateways, and repeats what it said until settled."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol
from uuid import uuid4

from palaver.model.errors import PalaverError
from palaver.platforms.terminal.socket import Streams
from palaver.platforms.terminal.wire import (
    LONGEST_TEXT,
    Failed,
    FromGateway,
    FromTerminal,
    Heard,
    Hello,
    Say,
    Settled,
    Show,
    Shown,
    Typing,
    Welcome,
    encoded,
    read_gateway,
)
from palaver.protocols import BadArgument

__all__ = ["Client", "GatewayFails", "Screen"]

_PAUSE = 0.05
_MOST_FAILURES = 6
_MOST_REMEMBERED = 500


class Screen(Protocol):
    """Where a terminal shows things."""

    def welcome(self, welcome: Welcome) -> None:
        """The gateway is there, for the first time or again."""
        ...

    def lost(self) -> None:
        """The gateway has gone away."""
        ...

    def show(self, message: str, text: str, *, growing: bool) -> None:
        """A message, or a new state of one that was growing."""
        ...

    def heard(self, text: str) -> None:
        """Somebody said this at another terminal."""
        ...

    def typing(self) -> None: ...


class GatewayFails(PalaverError):
    """The gateway is there, but has failed again and again."""

    def __init__(self, why: str, *, passes: bool) -> None:
        super().__init__(why)
        self.passes = passes
        """It is likely to pass."""


class _Lost(Exception):
    """The gateway has gone away."""


class Client:
    def __init__(
        self,
        dial: Callable[[], Awaitable[Streams]],
        chat: str,
        screen: Screen,
        name: str = "",
        *,
        alone: bool = False,
    ) -> None:
        """One that is alone is not shown what answers another terminal that is there."""
        self._dial = dial
        self._chat = chat
        self._alone = alone
        self._failures = 0
        """How often the gateway has failed since it last got anything done."""
        self._name = name
        self._screen = screen
        self._writer: asyncio.StreamWriter | None = None
        self._unsettled: dict[str, tuple[Say, asyncio.Future[Settled]]] = {}
        self._seen: dict[str, Show | None] = {}
        """The last state of every message that was shown or heard, by its id."""

    @property
    def waits(self) -> bool:
        """Something that was said is not answered yet."""
        return bool(self._unsettled)

    def say(self, text: str) -> "asyncio.Future[Settled]":
        """Done when nothing more will come in answer."""
        if len(text) > LONGEST_TEXT:
            raise BadArgument(
                "A message cannot be that long:",
                found=f"more than {LONGEST_TEXT} characters",
                allowed=f"at most {LONGEST_TEXT}",
                example="several shorter messages",
            )
        said = Say(id=uuid4().hex, text=text, name=self._name)
        settled: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._unsettled[said.id] = said, settled
        self._tell(said)
        return settled

    async def run(self) -> None:
        """Be connected, and again whenever the connection is lost, until cancelled. Raises GatewayFails."""
        while True:
            reader, writer = await self._dial()
            try:
                await self._converse(reader, writer)
            except _Lost:
                self._screen.lost()
            finally:
                self._writer = None
                writer.close()
            await asyncio.sleep(_PAUSE * 2**self._failures)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(encoded(Hello(chat=self._chat, known=tuple(self._seen), alone=self._alone)))
        welcome = await _next(reader)
        if isinstance(welcome, Failed):
            self._count(welcome)
        if not isinstance(welcome, Welcome):
            raise _Lost
        self._screen.welcome(welcome)
        self._writer = writer
        for said, _ in self._unsettled.values():
            self._tell(said)
        while True:
            self._take(await _next(reader))

    def _take(self, told: FromGateway) -> None:
        match told:
            case Failed():
                self._count(told)
            case Show():
                self._failures = 0
                self._show(told)
                self._tell(Shown(number=told.number))
            case Heard(id=said, text=text) if self._is_new(said, None):
                self._screen.heard(text)
            case Typing():
                self._screen.typing()
            case Settled(id=said) if said in self._unsettled:
                self._failures = 0
                _, settled = self._unsettled.pop(said)
                if not settled.done():
                    settled.set_result(told)
            case _:
                pass

    def _count(self, failed: Failed) -> None:
        self._failures += 1
        if failed.lasts or self._failures >= _MOST_FAILURES:
            raise GatewayFails(failed.why, passes=failed.passes)

    def _show(self, show: Show) -> None:
        before = self._seen.get(show.id)
        if not before or (before.text, before.growing) != (show.text, show.growing):
            self._remember(show.id, show)
            self._screen.show(show.id, show.text, growing=show.growing)

    def _is_new(self, message: str, show: Show | None) -> bool:
        if message in self._seen:
            return False
        self._remember(message, show)
        return True

    def _remember(self, message: str, show: Show | None) -> None:
        self._seen[message] = show
        while len(self._seen) > _MOST_REMEMBERED:
            del self._seen[next(iter(self._seen))]

    def _tell(self, value: FromTerminal) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(encoded(value))


async def _next(reader: asyncio.StreamReader) -> FromGateway:
    try:
        told = await read_gateway(reader)
    except (OSError, ValueError) as error:
        raise _Lost from error
    if told is None:
        raise _Lost
    return told
