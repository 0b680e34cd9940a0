"""An agent that a package brings: says back what it heard, as often as it is told to."""  # noqa: INP001

import re
from collections.abc import AsyncGenerator

from pydantic import BaseModel, Field

from palaver.protocols.agent import Event, Final, Request


class Options(BaseModel):
    times: int = Field(default=1, ge=1, le=10)


class Parrot:
    options = Options

    def __init__(self, times: int) -> None:
        self._times = times

    @classmethod
    def make(cls, options: Options) -> "Parrot":
        return cls(options.times)

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        # In ⟦brackets⟧ stands what the gateway has to say, such as the time.
        heard = re.sub("⟦[^⟧]*⟧", "", request.messages[-1].text).strip()
        yield Final(text=" ".join([f"{heard}!"] * self._times))
