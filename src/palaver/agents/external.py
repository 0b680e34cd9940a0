"""External agents: whether its lines travel through a pipe or over HTTP, each is an agent like any other."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol

from palaver.agents.exchange import FINAL_EVENTS, Exchange, failure_detail, to_usage
from palaver.agents.wire import (
    PROTOCOL,
    AgentRequest,
    FromAgent,
    Hello,
    ProtocolError,
    Reply,
    WireFailure,
    WireFinal,
    WireUsage,
    answer_request,
    summarise_request,
    title_request,
)
from palaver.model.errors import PalaverError
from palaver.model.session import ModelOverride
from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Excerpt, Failure, FailureKind, GeneratedText, Request


class AgentError(PalaverError):
    """The agent cannot be reached, has ended too early, or reports a failure."""

    def __init__(self, kind: FailureKind, detail: str, after: float | None = None) -> None:
        super().__init__(detail)
        self.kind = kind
        self.after = after


class AgentCall(Protocol):
    """One request to the agent and its answer."""

    def lines(self) -> AsyncGenerator[FromAgent]:
        """Stream what the agent says. Raises AgentError if it ends too early, and ProtocolError."""
        ...

    def reply(self, reply: Reply) -> None: ...


class Transport(Protocol):
    def call(self, request: AgentRequest) -> AbstractAsyncContextManager[AgentCall]:
        """Send a request. Leaving the context before the agent is done cancels the request."""
        ...

    def retire(self) -> None: ...

    async def close(self) -> None: ...


class ExternalAgent:
    """Its capabilities are those of its latest Hello."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._hello = Hello()

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        exchange = Exchange(request)
        async for event in exchange.run_open_calls():
            yield event
            if isinstance(event, FINAL_EVENTS):
                return
        try:
            wire_request = answer_request(exchange.request)
            async with self._transport.call(wire_request) as call, aclosing(self._events(exchange, call)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, FINAL_EVENTS):
                        return
        except AgentError as error:
            yield Failure(kind=error.kind, detail=str(error), after=error.after)
        except ProtocolError as error:
            yield Failure(kind=FailureKind.FATAL, detail=str(error))

    async def _events(self, exchange: Exchange, call: AgentCall) -> AsyncGenerator[Event]:
        async with aclosing(self._lines(call)) as lines:
            async for line in lines:
                async for item in exchange.handle(line):
                    if isinstance(item, Reply):
                        call.reply(item)
                    else:
                        yield item

    async def _lines(self, call: AgentCall) -> AsyncGenerator[FromAgent]:
        async with aclosing(call.lines()) as lines:
            async for line in lines:
                if not isinstance(line, Hello):
                    yield line
                elif line.protocol == PROTOCOL:
                    self._hello = line
                else:
                    raise ProtocolError(f"it speaks protocol {line.protocol}; this gateway speaks protocol {PROTOCOL}")

    def models(self) -> Sequence[ModelOverride]:
        return [ModelOverride(model=model.model, provider=model.provider) for model in self._hello.models]

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002 - one for all its models
        return self._hello.context_window

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        if not self._hello.summarises:
            raise AgentError(FailureKind.FATAL, "the agent did not say that it summarises")
        return await self._generate(summarise_request(passage))

    async def title(self, passage: Excerpt) -> GeneratedText:
        if not self._hello.titles:
            return GeneratedText(text="")
        return await self._generate(title_request(passage))

    async def _generate(self, request: AgentRequest) -> GeneratedText:
        usage = Usage()
        async with self._transport.call(request) as call, aclosing(self._lines(call)) as lines:
            async for line in lines:
                match line:
                    case WireUsage():
                        usage = usage.plus(to_usage(line))
                    case WireFinal():
                        return GeneratedText(text=line.text, usage=usage)
                    case WireFailure():
                        raise AgentError(line.kind, failure_detail(line.detail), line.after)
                    case _:
                        pass
        raise AgentError(FailureKind.FATAL, "the agent ended without an answer")

    def retire(self) -> None:
        self._transport.retire()

    async def close(self) -> None:
        await self._transport.close()
