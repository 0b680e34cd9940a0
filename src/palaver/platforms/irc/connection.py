"""A connection to an IRC server: log in, answer pings, and learn whether a message was accepted."""

import asyncio
import base64
import logging
import re
import ssl
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import field
from itertools import count
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from palaver.model.backoff import backoff
from palaver.platforms.irc import lower
from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
    parse_or_skip,
    split_names,
    value,
)
from palaver.protocols.options import AccountOptions

Channel = Annotated[str, Field(pattern=r"^[#&+!][^\s,:\x00\x07]{1,63}$")]


class IrcOptions(AccountOptions):
    server: str = Field(pattern=r"^[0-9A-Za-z.:-]+$", description="The server.")
    nick: str = Field(pattern=r"^[A-Za-z\[\]\\`_^{|}][A-Za-z0-9\[\]\\`_^{|}-]{0,29}$", description="The bot's nick.")
    channels: Annotated[list[Channel], BeforeValidator(split_names)] = Field(
        default_factory=list[str], max_length=50, description="The channels that it joins."
    )
    password: SecretStr | None = Field(default=None, description="The password of its account, for SASL.")
    account: str | None = Field(default=None, pattern=r"^\S+$", description="Its account, if that is not its nick.")
    server_password: SecretStr | None = Field(default=None, description="The password of the server, if it has one.")
    port: int = Field(default=6697, ge=1, le=65535, description="The port.")
    tls: bool = Field(default=True, description="Whether to use TLS.")
    network: str | None = Field(default=None, pattern=r"^\S+$", description="A name for the network, in targets.")


_BREAKS = re.compile(r"[\r\n\0]+")
_ESCAPES = {r"\:": ";", r"\s": " ", r"\\": "\\", r"\r": "\r", r"\n": "\n"}
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


@value
class Line:
    command: str
    params: tuple[str, ...] = ()
    nick: str = ""
    """Who sent it; a server or nobody, if it is empty or has a dot."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])

    def param(self, number: int) -> str:
        return self.params[number] if number < len(self.params) else ""


def read_line(text: str) -> Line:
    """Parse a line. Raise ValueError if it has no command."""
    tags: dict[str, str] = {}
    if text.startswith("@"):
        given, _, text = text[1:].partition(" ")
        for tag in given.split(";"):
            name, _, content = tag.partition("=")
            tags[name] = _unescape(content)
    prefix = ""
    text = text.lstrip(" ")
    if text.startswith(":"):
        prefix, _, text = text[1:].partition(" ")
    text, has_last, last = text.lstrip(" ").partition(" :")
    command, *params = text.split()
    return Line(
        command=command.upper(),
        params=(*params, last) if has_last else tuple(params),
        nick=prefix.partition("!")[0],
        tags=tags,
    )


def _unescape(text: str) -> str:
    return _ESCAPED.sub(lambda found: _ESCAPES.get(found[0], found[1]), text)


def write_line(command: str, *params: str) -> bytes:
    """Return a line. Nothing in a parameter can end it, so nobody can make us send another command."""
    *middle, last = (_BREAKS.sub(" ", param) for param in params)
    if any(not each or " " in each or each.startswith(":") for each in middle):
        raise ValueError("Only the last parameter can have spaces.")
    return f"{' '.join([command, *middle])} :{last}\r\n".encode("utf-8", "replace")


log = logging.getLogger(__name__)

_CONNECT_SECONDS = 30.0
_SILENCE_SECONDS = 150.0
_ANSWER_SECONDS = 60.0
_MAX_LINE_BYTES = 16_384
_MAX_NICKS = 5
_REJOIN_SECONDS = 10.0
_LONGEST_REJOIN_SECONDS = 3600.0
_LONG_STAY_SECONDS = 3600.0
"""After so long in a channel, the pauses before joining it again start anew."""
_CAPABILITIES = frozenset({"sasl", "message-tags", "account-tag", "server-time"})
_WRONG_PASSWORD = "The IRC server rejects the password. Check password and account, or server_password."  # noqa: S105
_BANNED = "The IRC server does not let the bot in: it is banned. Ask the operators of the network."
_NO_SASL = "The IRC server offers no SASL. Remove the password, or use another server."
_ERRORS = ClientErrors(title="the IRC server", raised=(OSError,))
_WELCOME = "001"
_NICK_TAKEN = {"432", "433", "436", "437"}
_REFUSED = {"464": _WRONG_PASSWORD, "465": _BANNED, "904": _WRONG_PASSWORD, "905": _WRONG_PASSWORD}
_NOT_JOINED = frozenset({"403", "405", "471", "473", "474", "475", "476", "477"})
_GONE = frozenset({"401", "403", "404", "442"})
_TOO_FAST = frozenset({"263", "439"})
_REJECTED = frozenset({"407", "411", "412", "417", "531"})


class Connection:
    """Lines are read by `lines`; while nobody reads them, no send ends."""

    def __init__(self, options: IrcOptions, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._options = options
        self._reader = reader
        self._writer = writer
        self.nick = options.nick
        self._numbers = count(1)
        self._one_at_a_time = asyncio.Lock()
        self._asked: tuple[str, str, asyncio.Future[None]] | None = None
        """The target of a message, the ping behind it, and what became of it."""
        self._channels = {lower(channel): channel for channel in options.channels}
        self._removals = Counter[str]()
        self._rejoining: dict[str, asyncio.TimerHandle] = {}
        self._joined: dict[str, float] = {}
        """When we joined each channel of ours."""
        self._removed_from = set[str]()
        """Channels that we were removed from and were not refused since."""

    async def write(self, command: str, *params: str) -> None:
        self._writer.write(write_line(command, *params))
        await self._writer.drain()

    # Logging in

    async def log_in(self) -> None:
        options = self._options
        await self.write("CAP", "LS", "302")
        if options.server_password:
            await self.write("PASS", options.server_password.get_secret_value())
        await self.write("NICK", self.nick)
        await self.write("USER", "palaver", "0", "*", self.nick)
        offered: set[str] = set()
        async for line in self._read():
            if line.command == _WELCOME:
                self.nick = line.param(0)
                return
            await self._negotiate(line, offered)
        raise PlatformDown("The IRC server closed the connection.")

    async def _negotiate(self, line: Line, offered: set[str]) -> None:
        match line.command:
            case "CAP":
                await self._choose(line, offered)
            case "421" if line.param(1).upper() == "CAP":
                self._need_no_sasl()
            case "AUTHENTICATE":
                account = self._options.account or self._options.nick
                password = self._options.password.get_secret_value() if self._options.password else ""
                plain = f"\0{account}\0{password}".encode()
                await self.write("AUTHENTICATE", base64.b64encode(plain).decode())
            case "903":
                await self.write("CAP", "END")
            case command if command in _REFUSED:
                raise PlatformRefused(_REFUSED[command])
            case "ERROR":
                raise PlatformDown(f"The IRC server closed the connection: {line.param(0)[:100]}")
            case command if command in _NICK_TAKEN:
                self.nick += "_"
                if len(self.nick) > len(self._options.nick) + _MAX_NICKS:
                    raise PlatformDown("The nick of the bot is taken.")
                await self.write("NICK", self.nick)
            case _:
                pass

    async def _choose(self, line: Line, offered: set[str]) -> None:
        kind = line.param(1).upper()
        last = line.params[-1]
        if kind == "LS":
            offered |= {each.partition("=")[0] for each in last.split()}
            if line.param(2) == "*":
                return  # The list goes on.
            wanted = offered & _CAPABILITIES - ({"sasl"} if self._options.password is None else set[str]())
            if "sasl" not in wanted:
                self._need_no_sasl()
            await (self.write("CAP", "REQ", " ".join(sorted(wanted))) if wanted else self.write("CAP", "END"))
        elif kind == "ACK" and "sasl" in last.split():
            await self.write("AUTHENTICATE", "PLAIN")
        elif kind in {"ACK", "NAK"}:
            await self.write("CAP", "END")

    def _need_no_sasl(self) -> None:
        if self._options.password is not None:
            raise PlatformRefused(_NO_SASL)

    # Reading

    async def lines(self) -> AsyncGenerator[Line]:
        """Yield what people say. Everything else is dealt with here, however slowly that is stored."""
        try:
            async for line in self._read():
                if line.command == "PRIVMSG":
                    yield line
                else:
                    self._notice(line)
        finally:
            self._settle(SendUnclear("The connection was lost while sending."))
            for timer in self._rejoining.values():
                timer.cancel()

    async def _read(self) -> AsyncGenerator[Line]:
        """Yield lines. If the server is silent, ask whether it is there."""
        asked = False
        while True:
            try:
                async with asyncio.timeout(_SILENCE_SECONDS):
                    raw = await self._reader.readline()
            except TimeoutError:
                if asked:
                    raise PlatformDown("The IRC server does not respond.") from None
                asked = True
                await self.write("PING", "palaver")
                continue
            except ValueError:
                continue  # A line that is too long.
            asked = False
            if not raw.endswith(b"\n"):
                return
            text = raw.decode("utf-8", "replace").rstrip("\r\n")
            line = parse_or_skip("irc", lambda text=text: read_line(text)) if text else None
            if line is not None and line.command == "PING":
                await self.write("PONG", line.param(0))
            elif line is not None:
                yield line

    def _notice(self, line: Line) -> None:
        if line.command == "NICK" and lower(line.nick) == lower(self.nick):
            self.nick = line.param(0)
        elif line.command == "PONG":
            self._settle(None, ping=line.params[-1] if line.params else "")
        elif line.command in _GONE | _TOO_FAST | _REJECTED:
            self._settle(self._error(line), target=line.param(1))
        # Of a channel that does not exist, a message to it can be told, too.
        is_of_message = self._asked and self._asked[0] == lower(line.param(1)) and line.command in _GONE
        if line.command in _NOT_JOINED and not is_of_message:
            log.warning("cannot join a channel: %s", line.command, extra={"action": "irc.not_joined"})
            self._removed_from.discard(lower(line.param(1)))
            self._rejoin(line.param(1))
        elif line.command == "JOIN" and lower(line.nick) == lower(self.nick):
            self._removed_from.discard(lower(line.param(0)))
            self._joined[lower(line.param(0))] = asyncio.get_running_loop().time()
        elif self._is_removal(line):
            log.warning("was removed from a channel", extra={"action": "irc.kicked"})
            self._removed_from.add(lower(line.param(0)))
            self._rejoin(line.param(0))

    def _is_removal(self, line: Line) -> bool:
        """Tell whether somebody removes us from a channel. We never leave one, so a PART of ours was forced, too."""
        who = {"KICK": line.param(1), "PART": line.nick}.get(line.command, "")
        return lower(who) == lower(self.nick)

    def _rejoin(self, channel: str) -> None:
        """Join a channel of ours after a pause, longer each time: not everybody there wants us back."""
        name = lower(channel)
        if name not in self._channels:
            return
        if name in self._rejoining:
            self._rejoining[name].cancel()
        loop = asyncio.get_running_loop()
        if loop.time() - self._joined.pop(name, loop.time()) > _LONG_STAY_SECONDS:
            del self._removals[name]
        self._removals[name] += 1
        pause = backoff(self._removals[name], first=_REJOIN_SECONDS, longest=_LONGEST_REJOIN_SECONDS)
        join = write_line("JOIN", self._channels[name])
        self._rejoining[name] = loop.call_later(pause, self._writer.write, join)

    def _seconds_away(self, target: str) -> float:
        """Return how long it takes until we join a channel again that we were removed from."""
        name = lower(target)
        if name not in self._removed_from or name not in self._rejoining:
            return 0.0
        return max(self._rejoining[name].when() - asyncio.get_running_loop().time(), 0.0)

    # Sending

    async def say(self, target: str, text: str) -> str:
        """Send a message, and a ping: what the server says against the message comes before the answer to it."""
        async with self._one_at_a_time:
            if away := self._seconds_away(target):
                raise TargetAway(away)
            ping = f"palaver-{next(self._numbers)}"
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._asked = (lower(target), ping, future)
            try:
                with _ERRORS.sends():
                    self._writer.write(write_line("PRIVMSG", target, text) + write_line("PING", ping))
                    async with asyncio.timeout(_ANSWER_SECONDS):
                        await self._writer.drain()
                        await future
            finally:
                self._asked = None
            return ping

    def _settle(self, error: PlatformError | None, *, ping: str = "", target: str = "") -> None:
        if self._asked is None:
            return
        asked, number, future = self._asked
        if (ping and ping != number) or (target and lower(target) != asked) or future.done():
            return
        future.set_exception(error) if error else future.set_result(None)

    def _error(self, line: Line) -> PlatformError:
        if line.command in _GONE and (away := self._seconds_away(line.param(1))):
            return TargetAway(away)
        if line.command in _GONE:
            return TargetGone("Nobody with this nick is there, or the bot cannot write to the channel.")
        if line.command in _TOO_FAST:
            return PlatformBusy(10.0)
        return SendRefused(f"The IRC server rejects it: {line.command}")


@asynccontextmanager
async def connected(options: IrcOptions) -> AsyncGenerator[Connection]:
    """Connect and log in; say goodbye at the end."""
    with _ERRORS.requests():
        async with asyncio.timeout(_CONNECT_SECONDS):
            tls = ssl.create_default_context() if options.tls else None
            reader, writer = await asyncio.open_connection(options.server, options.port, ssl=tls, limit=_MAX_LINE_BYTES)
        try:
            connection = Connection(options, reader, writer)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await connection.log_in()
            yield connection
        finally:
            with suppress(OSError):
                writer.write(write_line("QUIT", "bye"))
            writer.close()
            with suppress(OSError):
                async with asyncio.timeout(1.0):
                    await writer.wait_closed()
