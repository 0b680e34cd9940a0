"""The adapter for pigeon post: one pigeon of ours at one loft."""

import logging
from typing import Any

from palaver.model.platform import Platform
from palaver.model.source import Trust
from palaver.model.turn import Outbound
from palaver.protocols.adapter import (
    Limits,
    PlatformBusy,
    PlatformDown,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from pigeon_post.line import Line, Lost, dialled
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
        """Who we are there. It takes no letters, so it does not disturb a gateway at work."""
        async with dialled(self._options.host, self._options.port) as line:
            try:
                return str((await self._greet(line, "who"))["name"])
            except Lost as error:
                raise PlatformDown("the loft hung up") from error

    async def run(self, receiver: Receiver) -> None:
        async with dialled(self._options.host, self._options.port) as line:
            try:
                await self._greet(line, "listen")
                await receiver.connected()
                while True:
                    letter = await line.hear()
                    await self._take(letter, receiver)
                    # Only now: the loft keeps a letter until it hears that it was received.
                    await line.say({"do": "got", "letter": letter.get("letter")})
            except Lost as error:
                raise PlatformDown("the loft hung up") from error

    async def _take(self, letter: dict[str, Any], receiver: Receiver) -> None:
        try:
            inbound = parse(letter, self.account)
        except Unreadable as error:
            # It would come again and again, and keep everything behind it from us.
            log.warning("a letter was unreadable: %s", error, extra={"action": "pigeon.unreadable"})
            return
        await receiver.receive(inbound, Trust())

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        async with dialled(self._options.host, self._options.port) as line:
            try:
                await self._greet(line, "who")
            except Lost as error:
                raise PlatformDown("the loft hung up") from error
            try:
                answer = await line.ask(render(outbound, idempotency_key))
            except Lost as error:
                # The letter was on its way: nobody knows whether it arrived.
                raise SendUnclear("the loft hung up while the letter was on its way") from error
        return _receipt(answer)

    async def _greet(self, line: Line, wish: str) -> dict[str, Any]:
        answer = await line.ask({"do": wish, "ring": self._options.ring.get_secret_value()})
        if answer.get("error") == "ring":
            raise PlatformRefused("the loft does not know the ring of this pigeon: ask its keeper for another")
        return answer


def _receipt(answer: dict[str, Any]) -> str:
    match answer.get("error"):
        case None:
            return str(answer["flown"])
        case "tired":
            raise PlatformBusy(float(answer["after"]))
        case "no such roost":
            raise TargetGone("nobody lives at this roost any more")
        case _:
            raise SendRefused("the loft does not take this letter")
