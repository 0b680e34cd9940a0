"""An agent of another maker: whatever carries its lines, a pipe or HTTP, it is an agent like any other."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from palaver.agents.exchange import OUTCOMES, Exchange, detail_of, usage_of
from palaver.agents.wire import (
    PROTOCOL,
    Answer,
    Done,
    Failed,
    FromAgent,
    Hello,
    Reply,
    Rubbish,
    Summarise,
    Title,
    Used,
    answer_line,
    passage_line,
)
from palaver.model.errors import PalaverError
from palaver.model.session import ModelOverride
from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Excerpt, Failure, FailureKind, GeneratedText, Request

__all__ = [
    "Broken",
    "ForeignAgent",
    "Question",
    "Talk",
    "Wire",
]

Question = Answer | Summarise | Title


class Broken(PalaverError):
    """The agent cannot be talked to, or not any more."""

    def __init__(self, kind: FailureKind, detail: str, after: float | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.after = after


class Talk(Protocol):
    """One question to the agent and what it says to it."""

    def said(self) -> AsyncGenerator[FromAgent]:
        """Raises Broken where it ends too soon, and Rubbish for what is none of the protocol."""
        ...

    def reply(self, reply: Reply) -> None: ...


class Wire(Protocol):
    def talk(self, question: Question) -> AbstractAsyncContextManager[Talk]:
        """Left before the agent is done, it is told that nobody waits any more."""
        ...

    def retire(self) -> None: ...

    async def close(self) -> None: ...


class ForeignAgent:
    """It can do what it has said in its last hello."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._hello = Hello()

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        exchange = Exchange(request)
        async for event in exchange.open_calls():
            yield event
            if isinstance(event, OUTCOMES):
                return
        try:
            question = answer_line(exchange.request)
            async with self._wire.talk(question) as talk, aclosing(self._events(exchange, talk)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, OUTCOMES):
                        return
        except Broken as broken:
            yield Failure(kind=broken.kind, detail=str(broken), after=broken.after)
        except Rubbish as rubbish:
            yield Failure(kind=FailureKind.FATAL, detail=str(rubbish))

    async def _events(self, exchange: Exchange, talk: Talk) -> AsyncGenerator[Event]:
        async with aclosing(self._heard(talk)) as heard:
            async for said in heard:
                async for item in exchange.take(said):
                    if isinstance(item, Reply):
                        talk.reply(item)
                    else:
                        yield item

    async def _heard(self, talk: Talk) -> AsyncGenerator[FromAgent]:
        async with aclosing(talk.said()) as lines:
            async for said in lines:
                if isinstance(said, Hello):
                    self._hear(said)
                else:
                    yield said

    def _hear(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL:
            raise Rubbish(f"it speaks protocol {hello.protocol}, and this gateway protocol {PROTOCOL}")
        self._hello = hello

    def models(self) -> Sequence[ModelOverride]:
        return [ModelOverride(model=each.model, provider=each.provider) for each in self._hello.models]

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002 - one for all its models
        return self._hello.context_window

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        if not self._hello.summarises:
            raise Broken(FailureKind.FATAL, "the agent has not said that it summarises")
        return await self._gist(passage_line(Summarise, passage))

    async def title(self, passage: Excerpt) -> GeneratedText:
        return await self._gist(passage_line(Title, passage)) if self._hello.titles else GeneratedText(text="")

    async def _gist(self, question: Question) -> GeneratedText:
        usage = Usage()
        async with self._wire.talk(question) as talk, aclosing(self._heard(talk)) as heard:
            async for said in heard:
                match said:
                    case Used():
                        usage = usage.plus(usage_of(said))
                    case Done():
                        return GeneratedText(text=said.text, usage=usage)
                    case Failed():
                        raise Broken(said.kind, detail_of(said.detail), said.after)
                    case _:
                        pass
        raise Broken(FailureKind.FATAL, "the agent ended without an answer")

    def retire(self) -> None:
        self._wire.retire()

    async def close(self) -> None:
        await self._wire.close()
