"""The pigeon post adapter: one pigeon of ours at one loft."""

from functools import partial
from typing import Any

from palaver.protocols import (
    ClientErrors,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Receiver,
    SendRefused,
    TargetGone,
    Trust,
    parse_or_skip,
)
from pigeon_post import PIGEON
from pigeon_post.line import Connection, ConnectionLost, connect
from pigeon_post.options import Options
from pigeon_post.parse import parse
from pigeon_post.render import render

__all__ = ["PigeonAdapter"]

_LOFT = ClientErrors(title="the loft", raised=(ConnectionLost,))


class PigeonAdapter:
    platform = PIGEON
    options = Options
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
            with _LOFT.requests():
                return str((await self._log_in(connection, "who"))["name"])

    async def run(self, receiver: Receiver) -> None:
        async with connect(self._options.host, self._options.port) as connection:
            with _LOFT.requests():
                await self._log_in(connection, "listen")
                await receiver.connected()
                while True:
                    letter = await connection.receive()
                    inbound = parse_or_skip("pigeon", partial(parse, letter, self.account))
                    if inbound is not None:
                        await receiver.receive(inbound, Trust())
                    # Only now: the loft keeps a letter until it is acknowledged.
                    await connection.send({"do": "got", "letter": letter.get("letter")})

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        async with connect(self._options.host, self._options.port) as connection:
            with _LOFT.requests():
                await self._log_in(connection, "who")
            with _LOFT.sends():
                answer = await connection.request(render(outbound, idempotency_key))
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
