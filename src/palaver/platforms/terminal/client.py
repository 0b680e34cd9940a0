"""The terminal's end of the socket. It reconnects, and repeats each message until it is settled."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

from palaver.model.backoff import backoff
from palaver.model.errors import PalaverError
from palaver.platforms.terminal import wire
from palaver.platforms.terminal.socket import Streams, connect
from palaver.platforms.terminal.wire import Offer
from palaver.protocols import BadArgument
from palaver.protocols.recent import remember

# Control characters except tab and newline, direction marks, lone surrogates, invisible separators and tags.
_UNSAFE_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff\ufeff\U000e0000-\U000e007f]"
)


def printable(text: str) -> str:
    """Escape characters that could change how a terminal shows text."""
    return _UNSAFE_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode(), text.replace("\r\n", "\n"))


_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})


class PendingOffer:
    """An offer until it is answered. Any line that is no answer leaves it for later."""

    def __init__(self, *, is_accepted: bool = False) -> None:
        self.is_accepted = is_accepted
        """Whether the answer is yes before it is asked."""
        self._offer: Offer | None = None
        self._known = asyncio.Event()
        self.unanswered = ""
        """What to say to use the offer after all, if the last line left it unanswered."""

    def made(self, offer: Offer | None) -> None:
        """Take what the gateway offers, for the first time or again after a reconnect."""
        if not self._known.is_set():
            self._offer = offer
        self._known.set()

    async def accepted(self) -> str | None:
        """Wait for the gateway; return what to say first if the answer was yes from the start."""
        await self._known.wait()
        return self._answer(accepts=True) if self.is_accepted else None

    def read(self, line: str, *, default: bool = False) -> str:
        """Return what a typed line says to the gateway. With `default`, an empty line is a yes."""
        said = line.strip().lower()
        self.unanswered = ""
        if self._offer is None:
            return line
        if said in _YES or (default and not said):
            return self._answer(accepts=True) or line
        if said in _NO:
            return self._answer(accepts=False) or line
        self.unanswered = self._offer.accept
        self._offer = None
        return line

    def is_answer(self, line: str) -> bool:
        """Return whether a line can be an answer, so that the offer has to be known before it is said."""
        return line.strip().lower() in _YES | _NO

    async def read_first(self, line: str) -> str:
        """Read the first line of a pipe, which nobody was asked for."""
        if not self.is_answer(line):
            return line
        await self._known.wait()
        return self.read(line)

    def _answer(self, *, accepts: bool) -> str | None:
        offer = self._offer
        self._offer = None
        return offer and (offer.accept if accepts else offer.decline)


_FIRST_RETRY_SECONDS = 0.05
_MAX_RETRY_SECONDS = 3.2
_MAX_FAILURES = 6
_STABLE_SECONDS = 10.0
"""A connection that lasted longer did not fail."""
_MAX_REMEMBERED = 500
_RELOAD_SECONDS = 20.0
"""How long a gateway has to read its configuration."""


class Screen(Protocol):
    """What shows messages to a person. A screen overrides what it has a place for."""

    def welcome(self, welcome: wire.Welcome) -> None:
        """The gateway accepted us, for the first time or again."""

    def lost(self) -> None:
        """The gateway has gone away."""

    def show(self, message: str, text: str, *, growing: bool) -> None:
        """Show a message, or the new state of an unfinished one."""
        ...

    def heard(self, text: str) -> None:
        """Show what somebody said at another terminal."""

    def save(self, file: wire.File) -> None:
        """Save a file that came with the message shown last."""

    def typing(self, model: str | None, doing: str) -> None:
        """The agent is at work, with this model if it has one."""

    def recap(self, lines: Sequence[wire.RecapLine]) -> None:
        """Another conversation continues here: show its last messages."""

    def idle(self) -> None:
        """Everything that was sent is answered."""


class GatewayFailing(PalaverError):
    """The gateway responds, but fails again and again."""

    def __init__(self, why: str, *, passes: bool) -> None:
        super().__init__(why)
        self.passes = passes
        """Whether it is likely to pass."""


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
        """With `alone`, do not show answers to other terminals."""
        self._dial = dial
        self._chat = chat
        self._alone = alone
        self._failures = 0
        """Connections in a row that were lost before anything was shown or settled."""
        self._name = name
        self._screen = screen
        self._writer: asyncio.StreamWriter | None = None
        self._unsettled: dict[str, tuple[wire.Say, asyncio.Future[wire.Settled]]] = {}
        self._seen: dict[str, wire.Show | None] = {}
        """The last state of every message that was shown, by id."""
        self._unsent: dict[str, str] = {}
        """The texts of messages that no gateway has got yet, by id."""

    @property
    def waits(self) -> bool:
        """Whether a message is not answered yet."""
        return bool(self._unsettled)

    @property
    def unsent(self) -> list[str]:
        """What was said while no gateway was there, and waits for one."""
        return list(self._unsent.values())

    def say(self, text: str) -> "asyncio.Future[wire.Settled]":
        """Send a message; the future is done when nothing more will follow in answer."""
        if len(text) > wire.MAX_TEXT:
            raise BadArgument(
                f"The message has more than {wire.MAX_TEXT} characters.",
                found=f"{len(text)} characters",
                allowed=f"at most {wire.MAX_TEXT}",
                example="several shorter messages",
                fix="Send several shorter messages.",
            )
        said = wire.Say(id=uuid4().hex, text=text, name=self._name)
        settled: asyncio.Future[wire.Settled] = asyncio.get_running_loop().create_future()
        self._unsettled[said.id] = said, settled
        self._send(said)
        return settled

    async def run(self) -> None:
        """Connect, and reconnect when the connection is lost, until cancelled. Raises GatewayFailing."""
        now = asyncio.get_running_loop().time
        while True:
            reader, writer = await self._dial()
            since = now()
            try:
                await self._converse(reader, writer)
            except _Lost:
                self._failures = 1 if now() - since > _STABLE_SECONDS else self._failures + 1
                self._screen.lost()
            finally:
                self._writer = None
                writer.close()
            await asyncio.sleep(backoff(self._failures, first=_FIRST_RETRY_SECONDS, longest=_MAX_RETRY_SECONDS))

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(wire.encode(wire.Hello(chat=self._chat, known=tuple(self._seen), alone=self._alone)))
        welcome = await _next(reader)
        if isinstance(welcome, wire.Failed):
            self._check(welcome)
        if not isinstance(welcome, wire.Welcome):
            raise _Lost
        self._screen.welcome(welcome)
        self._writer = writer
        for said, _ in self._unsettled.values():
            self._send(said)
        while True:
            self._take(await _next(reader))

    def _take(self, told: wire.FromGateway) -> None:
        match told:
            case wire.Failed():
                self._check(told)
            case wire.Show():
                self._failures = 0
                self._show(told)
                self._tell(wire.Shown(number=told.number))
            case wire.OtherSaid(id=said, text=text) if said not in self._seen:
                remember(self._seen, said, None, _MAX_REMEMBERED)
                self._screen.heard(text)
            case wire.Typing(model=model, doing=doing):
                self._screen.typing(model, doing)
            case wire.Recap(lines=lines):
                self._screen.recap(lines)
            case wire.Settled(id=said) if said in self._unsettled:
                self._failures = 0
                _, settled = self._unsettled.pop(said)
                if not settled.done():
                    settled.set_result(told)
                if not self._unsettled:
                    self._screen.idle()
            case _:
                pass

    def _check(self, failed: wire.Failed) -> None:
        if failed.lasts or self._failures + 1 >= _MAX_FAILURES:
            raise GatewayFailing(failed.why, passes=failed.passes)

    def _show(self, show: wire.Show) -> None:
        before = self._seen.get(show.id)
        if not before or (before.text, before.growing) != (show.text, show.growing):
            remember(self._seen, show.id, show, _MAX_REMEMBERED)
            if show.text or show.file is None:
                self._screen.show(show.id, show.text, growing=show.growing)
            if show.file is not None:
                self._screen.save(show.file)

    def _send(self, said: wire.Say) -> None:
        if self._tell(said):
            self._unsent.pop(said.id, None)
        else:
            self._unsent[said.id] = said.text

    def _tell(self, value: wire.FromTerminal) -> bool:
        """Write a value; return whether there is a connection for it."""
        if self._writer is None or self._writer.is_closing():
            return False
        self._writer.write(wire.encode(value))
        return True


async def request_reload(path: Path) -> wire.Reloaded | None:
    """Make the gateway at this socket read its configuration again; return what it says, None if none is there."""
    try:
        reader, writer = await connect(path)
    except OSError:
        return None
    try:
        writer.write(wire.encode(wire.Reload()))
        async with asyncio.timeout(_RELOAD_SECONDS):
            told = await _next(reader)
    except (_Lost, TimeoutError):
        told = None
    finally:
        writer.close()
    return told if isinstance(told, wire.Reloaded) else wire.Reloaded(refused="It did not answer; restart it.")


async def _next(reader: asyncio.StreamReader) -> wire.FromGateway:
    try:
        told = await wire.read_gateway(reader)
    except (OSError, ValueError) as error:
        raise _Lost from error
    if told is None:
        raise _Lost
    return told
