"""An adapter that can be asked how it is."""

import asyncio
import logging
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, SecretStr

from palaver.model.platform import Platform, SetupGuide, SetupQuestion
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Limits, PlatformRefused, Receiver
from palaver.protocols.capabilities import HttpRequest, HttpResponse

__all__ = ["DOVE", "GONE", "SUNK", "Dove", "Options"]

DOVE = Platform(
    name="dove",
    title="Dove",
    adapter="tests.cli.doves:Dove",
    guide=SetupGuide(
        before=("Go to the loft and ask for a dove.",),
        questions=[
            SetupQuestion(option="token", prompt="The ring of the dove?", help="It stands on its left foot."),
            SetupQuestion(option="mood", prompt="How is it?", default="well", unless="shade"),
        ],
        after=("Doves sleep at night.",),
        owner_prompt="Your number at the loft?",
    ),
)
GONE = Platform(name="gone", title="Gone", adapter="tests.cli.nothing_there:Gone", extras=("gone",))
SUNK = Platform(name="sunk", title="Sunk", adapter="sunk_client:Sunk")


class Options(BaseModel):
    token: SecretStr
    mood: str = "well"


@dataclass
class Dove:
    account: str
    given: Options
    platform: ClassVar[Platform] = DOVE
    options: ClassVar[type[BaseModel]] = Options
    limits: ClassVar[Limits] = Limits()

    @classmethod
    def make(cls, account: str, options: Options) -> "Dove":
        return cls(account, options)

    @property
    def takes_callbacks(self) -> bool:
        return self.given.mood == "called"

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return f"{idempotency_key} {outbound.chat_id}"

    async def check(self) -> str:
        token = self.given.token.get_secret_value()
        match self.given.mood:
            case "refused":
                logging.getLogger("loft").warning("a ring that nobody knows")
                raise PlatformRefused("the loft does not know this ring: ask for another")
            case "slow":
                await asyncio.Event().wait()
            case "broken":
                raise RuntimeError(token)
            case _ if not token.startswith("coo"):
                raise PlatformRefused("this is no ring of a dove")
            case _:
                pass
        return "@dove\x1b[31m"

    async def handle_callback(self, call: HttpRequest, receiver: Receiver) -> HttpResponse:
        del call, receiver
        return HttpResponse()
