"""An agent that a package brings: says back what it heard, as often as it is told to."""  # noqa: INP001

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
        # Before it may stand what the gateway has to say.
        heard = request.messages[-1].text.rpartition("\n\n")[2]
        yield Final(text=" ".join([f"{heard}!"] * self._times))
