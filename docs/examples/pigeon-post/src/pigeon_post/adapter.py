"""The pigeon post adapter: one pigeon of ours at one loft."""

import logging
from typing import Any

from palaver.protocols import (
    Limits,
    Outbound,
    Platform,
    PlatformBusy,
    PlatformDown,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
    Trust,
)
from pigeon_post.line import Connection, ConnectionLost, connect
from pigeon_post.options import GUIDE, Options
from pigeon_post.parse import Unreadable, parse
from pigeon_post.render import render

__all__ = ["PigeonAdapter"]

log = logging.getLogger(__name__)


class PigeonAdapter:
    platform = Platform(name="pigeon", title="Pigeon post")
    options = Options
    guide = GUIDE
    limits = Limits(text=500, repeats_safely=True)

    def __init__(self, account: str, options: Options) -> None:
        self.account = account
        self._options = options

    @classmethod
    def make(cls, account: str, options: Options) -> "PigeonAdapter":
        return cls(account, options)

    async def check(self) -> str:
        """Ask for our name. It takes no letters, so a running gateway is not disturbed."""
        async with connect(self._options.host, self._options.port) as connection:
            try:
                return str((await self._log_in(connection, "who"))["name"])
            except ConnectionLost as error:
                raise PlatformDown("The loft closed the connection.") from error

    async def run(self, receiver: Receiver) -> None:
        async with connect(self._options.host, self._options.port) as connection:
            try:
                await self._log_in(connection, "listen")
                await receiver.connected()
                while True:
                    letter = await connection.receive()
                    await self._process(letter, receiver)
                    # Only now: the loft keeps a letter until it is acknowledged.
                    await connection.send({"do": "got", "letter": letter.get("letter")})
            except ConnectionLost as error:
                raise PlatformDown("The loft closed the connection.") from error

    async def _process(self, letter: dict[str, Any], receiver: Receiver) -> None:
        try:
            inbound = parse(letter, self.account)
        except Unreadable as error:
            # Skip it: it would come again and again and block everything behind it.
            log.warning("skipped an unreadable letter: %s", error, extra={"action": "pigeon.unreadable"})
            return
        await receiver.receive(inbound, Trust())

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        async with connect(self._options.host, self._options.port) as connection:
            try:
                await self._log_in(connection, "who")
            except ConnectionLost as error:
                raise PlatformDown("The loft closed the connection.") from error
            try:
                answer = await connection.request(render(outbound, idempotency_key))
            except ConnectionLost as error:
                # The letter was sent: it may have arrived.
                raise SendUnclear("The loft closed the connection while sending.") from error
        return _receipt(answer)

    async def _log_in(self, connection: Connection, purpose: str) -> dict[str, Any]:
        answer = await connection.request({"do": purpose, "ring": self._options.ring.get_secret_value()})
        if answer.get("error") == "ring":
            raise PlatformRefused("The loft does not know this ring. Ask its keeper for another.")
        return answer


def _receipt(answer: dict[str, Any]) -> str:
    match answer.get("error"):
        case None:
            return str(answer["flown"])
        case "tired":
            raise PlatformBusy(float(answer["after"]))
        case "no such roost":
            raise TargetGone("The roost is gone.")
        case _:
            raise SendRefused("The loft rejects this letter.")
