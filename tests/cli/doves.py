"""An adapter that can be asked how it is."""

import asyncio
import logging
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel, SecretStr

from palaver.model.platform import Platform
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Call, Guide, Inlet, Limits, PlatformRefused, Question, Reply

__all__ = ["Dove", "Options"]


class Options(BaseModel):
    token: SecretStr
    mood: str = "well"


@dataclass
class Dove:
    account: str
    given: Options
    platform: ClassVar[Platform] = Platform(name="dove", title="Dove")
    options: ClassVar[type[BaseModel]] = Options
    limits: ClassVar[Limits] = Limits()
    guide: ClassVar[Guide] = Guide(
        before="Go to the loft and ask for a dove.",
        questions=[
            Question(option="token", asks="The ring of the dove?", help="It stands on its left foot."),
            Question(option="mood", asks="How is it?", usual="well", unless="shade"),
        ],
        after="Doves sleep at night.",
        owner="Your number at the loft?",
    )

    @classmethod
    def make(cls, account: str, options: Options) -> "Dove":
        return cls(account, options)

    @property
    def listens(self) -> bool:
        return self.given.mood == "called"

    async def run(self, inlet: Inlet) -> None:
        await inlet.connected()
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

    async def hear(self, call: Call, inlet: Inlet) -> Reply:
        del call, inlet
        return Reply()
