"""The adapter for IRC. A network keeps nothing for us: what is said while we are away is lost."""

from contextlib import aclosing
from datetime import UTC, datetime

from palaver.platforms.irc import PLATFORM
from palaver.platforms.irc.connection import Connection, connected
from palaver.platforms.irc.options import IrcOptions
from palaver.platforms.irc.parse import Us, parse
from palaver.platforms.irc.render import MAX_BYTES, render
from palaver.platforms.irc.wire import Line
from palaver.protocols import (
    Limits,
    Outbound,
    PlatformDown,
    Receiver,
    SendRefused,
    TargetGone,
    Unit,
    parse_or_skip,
    read_ahead,
)

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
        us, now = Us(self.account, self._network, nick), datetime.now(UTC)
        said = parse_or_skip(self.platform.name, lambda: parse(line, us, now))
        if said is not None:
            await receiver.receive(said.inbound, said.trust)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:  # noqa: ARG002 - IRC has none
        if self._connection is None:
            raise PlatformDown("There is no connection to the IRC server.")
        target, text = outbound.chat_id, render(outbound.text)
        if not text:
            raise SendRefused("There is nothing to say.")
        if not target or target[0] == ":" or any(each in target for each in " ,\r\n\0\x07"):
            raise TargetGone("There is no such nick or channel.")
        return await self._connection.say(target, text)
