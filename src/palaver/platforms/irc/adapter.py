"""The adapter for IRC. A network keeps nothing for us: what is said while we are away is lost."""

import re
from contextlib import aclosing
from datetime import UTC, datetime
from typing import NamedTuple

from palaver.platforms.irc import PLATFORM, lower
from palaver.platforms.irc.connection import Connection, IrcOptions, Line, connected
from palaver.protocols import (
    CHANNEL,
    DM,
    Inbound,
    Limits,
    NewMessage,
    Outbound,
    PlatformDown,
    Receiver,
    SendRefused,
    Source,
    TargetGone,
    Trust,
    Unit,
    after_name,
    parse_or_skip,
    parse_time,
    read_ahead,
)
from palaver.protocols.markdown import Layout, Marks, to_marks

MAX_BYTES = 340
"""Of the 512 bytes of a line, the server needs some for who we are and where it goes."""
_MARKS = Marks(
    bold="\x02",
    italic="\x1d",
    struck="\x1e",
    code="\x11",
    code_block="",
    escape=lambda text: text,
    layout=Layout(is_even=False),
)


def render(text: str) -> str:
    """Return one line. A code at its beginning would make it a CTCP request, so control characters go."""
    text = "".join(each for each in text if each == "\t" or each >= " ")
    shown = " ".join(to_marks(text, _MARKS).split("\n")).strip()
    return shown if shown and Unit.UTF8.measure(shown) <= MAX_BYTES else text


_FORMATS = re.compile(r"\x03(?:\d{1,2}(?:,\d{1,2})?)?|\x04(?:[0-9a-fA-F]{6})?|[\x02\x0f\x11\x16\x1d\x1e\x1f]")
_CHANNELS = ("#", "&", "+", "!")
_ACTION = "\x01ACTION "


class Us(NamedTuple):
    account: str
    network: str
    nick: str


def parse(line: Line, us: Us, now: datetime) -> NewMessage | None:
    """Parse a PRIVMSG; None if nobody says anything to us. A NOTICE is never answered."""
    sender = line.nick
    if line.command != "PRIVMSG" or not sender or "." in sender or lower(sender) == lower(us.nick):
        return None
    target, text = line.params
    if text.startswith("\x01"):
        if not text.startswith(_ACTION):
            return None
        text = f"* {text.removeprefix(_ACTION)}"
    text = _FORMATS.sub("", text.rstrip("\x01"))
    is_channel = target.startswith(_CHANNELS)
    rest = after_name(text, (us.nick, f"@{us.nick}"))
    inbound = Inbound(
        source=Source(
            platform="irc",
            account=us.account,
            scope_id=us.network,
            chat_kind=CHANNEL if is_channel else DM,
            chat_id=lower(target if is_channel else sender),
            user_id=lower(sender),
            # An account with the services, which the network has verified. Anybody can take a nick.
            user_id_alt=line.tags.get("account") or None,
            message_id=line.tags.get("msgid") or None,
        ),
        text=text if rest is None else rest,
        at=parse_time(line.tags["time"]) if line.tags.get("time") else now,
        mentions_us=_is_mentioned(text, us.nick),
    )
    return NewMessage(inbound, Trust(is_bot="bot" in line.tags))


def _is_mentioned(text: str, nick: str) -> bool:
    return bool(re.search(rf"(?<![\w\[\]\\`^{{|}}-]){re.escape(nick)}(?![\w\[\]\\`^{{|}}-])", text, re.IGNORECASE))


_STORE_SECONDS = 5.0
"""How long to wait for what was read but not stored, when we stop."""


class IrcAdapter:
    platform = PLATFORM
    options = IrcOptions
    # Servers slow down or remove who sends more than a line a second for long.
    limits = Limits(text=MAX_BYTES, unit=Unit.UTF8, interval=1.0, one_line=True)

    def __init__(self, account: str, options: IrcOptions) -> None:
        self.account = account
        self._options = options
        self._network = options.network or options.server
        self._connection: Connection | None = None

    async def check(self) -> str:
        """Log in, next to the running gateway if there is one: then under another nick."""
        async with connected(self._options) as connection:
            return f"{connection.nick} on {self._options.server}"

    async def run(self, receiver: Receiver) -> None:
        async with connected(self._options) as connection:
            for channel in self._options.channels:
                await connection.write("JOIN", channel)
            self._connection = connection
            try:
                await receiver.connected()
                async with aclosing(connection.lines()) as lines:
                    await read_ahead(lines, lambda line: self._take(line, receiver), finish_within=_STORE_SECONDS)
            finally:
                self._connection = None
        raise PlatformDown("The IRC server closed the connection.")

    async def _take(self, line: Line, receiver: Receiver) -> None:
        nick = self._connection.nick if self._connection else self._options.nick
        us = Us(self.account, self._network, nick)
        now = datetime.now(UTC)
        said = parse_or_skip(self.platform.name, lambda: parse(line, us, now))
        if said is not None:
            await receiver.receive(said.inbound, said.trust)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:  # noqa: ARG002 - IRC has none
        if self._connection is None:
            raise PlatformDown("There is no connection to the IRC server.")
        target = outbound.chat_id
        text = render(outbound.text)
        if not text:
            raise SendRefused("There is nothing to say.")
        if not target or target[0] == ":" or any(each in target for each in " ,\r\n\0\x07"):
            raise TargetGone("There is no such nick or channel.")
        return await self._connection.say(target, text)
