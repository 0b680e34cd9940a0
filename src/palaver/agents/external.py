"""External agents: turn the lines of an agent into events, and answer what it asks for.

Its lines travel through a pipe or over HTTP. The gateway alone enforces approvals: a call that needs one ends the turn.
Once a person has decided, the stored call runs, or not, before the agent is asked again.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import replace
from typing import Protocol

from palaver.agents.wire import (
    PROTOCOL,
    AgentRequest,
    AskNewMessages,
    FileContent,
    FromAgent,
    Hello,
    NewMessages,
    ProtocolError,
    ReadFile,
    Reply,
    Result,
    UseTool,
    WireApprovalNeeded,
    WireAsk,
    WireCall,
    WireDelta,
    WireFailure,
    WireFinal,
    WireToolCalled,
    WireToolReturned,
    WireUsage,
    answer_request,
    summarise_request,
    title_request,
)
from palaver.model.attachment import NewFile
from palaver.model.errors import NotFound, PalaverError
from palaver.model.redact import redact
from palaver.model.session import ModelOverride
from palaver.model.text import one_line
from palaver.model.tools import (
    MAX_CHOICES,
    MAX_QUESTION_LENGTH,
    NOT_APPROVED,
    approval_question,
    ask_call,
    parse_arguments,
    parse_question,
)
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.view import Message, open_calls
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Excerpt,
    Failure,
    FailureKind,
    Final,
    GeneratedText,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)

FINAL_EVENTS = (Final, Failure, ApprovalNeeded)
"""Each of these ends the stream."""
_MAX_DETAIL_LENGTH = 300
_ID_LIMIT = 40


class Exchange:
    def __init__(self, request: Request) -> None:
        self.request = request
        self._used_ids = {call.id for message in request.messages for call in message.calls} | set(request.approvals)
        self._announced: dict[str, ToolCall] = {}
        """The calls of this turn, by the agent's id; each has a new id of ours that was never used before."""

    async def run_open_calls(self) -> AsyncGenerator[Event]:
        """Run the gateway's tools that waited for an approval, and add their results to `request`."""
        tools = {tool.name for tool in self.request.toolbox.tools}
        for call in open_calls(self.request.messages):
            if call.name not in tools:
                continue
            allowed = self.request.approvals.get(call.id)
            if allowed is None and (question := await self.request.toolbox.question(call)):
                yield ApprovalNeeded(call=call, question=question)
                return
            text = NOT_APPROVED if allowed is False else await self.request.toolbox.use(call)
            yield ToolReturned(call=call.id, text=text)
            result = Message(Role.TOOL, text, (), call.id)
            self.request = replace(self.request, messages=(*self.request.messages, result))

    async def handle(self, line: FromAgent) -> AsyncGenerator[Event | Reply]:
        """Yield events for the gateway and replies for the agent."""
        match line:
            case UseTool():
                async for event in self._use(line):
                    yield event
            case AskNewMessages():
                yield NewMessages(texts=await self.request.new_messages())
            case ReadFile():
                yield await self._read_file(line.file)
            case WireToolCalled():
                calls = tuple(map(self._announce, line.calls))
                yield ToolCalled(calls=calls, text=line.text, reasoning=line.reasoning, blob=line.blob)
            case WireToolReturned():
                announced = self._announced.get(line.call)
                yield ToolReturned(call=announced.id if announced else line.call, text=line.text)
            case WireApprovalNeeded() | WireAsk():
                yield await self._ask_person(line)
            case _:
                if event := _event(line):
                    yield event

    async def _use(self, line: UseTool) -> AsyncGenerator[Event | Reply]:
        call = self._announced.pop(line.call.id, None)
        if call is None or call[1:] != (line.call.name, line.call.arguments):
            call = self._announce(line.call)
            yield ToolCalled(calls=(call,))
        if question := await self.request.toolbox.question(call):
            yield ApprovalNeeded(call=call, question=question)
            return
        text = await self.request.toolbox.use(call)
        yield ToolReturned(call=call.id, text=text)
        yield Result(call=line.call.id, text=text)

    async def _ask(self, call: ToolCall, question: str) -> Event:
        """Ask for approval. About its own tools the gateway asks in its own words: an agent could say anything."""
        if call.name in {tool.name for tool in self.request.toolbox.tools}:
            question = await self.request.toolbox.question(call) or approval_question(call, parse_arguments(call) or {})
        if len(question) > MAX_QUESTION_LENGTH:
            detail = f"its approval question has {len(question)} characters; at most {MAX_QUESTION_LENGTH} are allowed"
            return Failure(kind=FailureKind.FATAL, detail=detail)
        return ApprovalNeeded(call=call, question=question)

    async def _ask_person(self, line: WireApprovalNeeded | WireAsk) -> Event:
        if isinstance(line, WireApprovalNeeded):
            return await self._ask(self._resolve(line.call), line.question)
        call = ask_call("ask", line.question, line.choices)
        if parse_question(call) is None:
            detail = f"its question is empty, or has more than {MAX_CHOICES} choices, or an empty one"
            return Failure(kind=FailureKind.FATAL, detail=detail)
        return await self._ask(self._announce(WireCall(*call)), line.question)

    def _resolve(self, call: WireCall) -> ToolCall:
        """Return the stored call with this id, even if the agent now describes it differently, or a new one.

        Calls of this turn are found only by the agent's ids, never by the ids that the gateway gave them.
        """
        still_open = {stored.id: stored for stored in open_calls(self.request.messages)}
        return self._announced.get(call.id) or still_open.get(call.id) or self._announce(call)

    def _announce(self, call: WireCall) -> ToolCall:
        """Give the call an id that has no approval and no result yet."""
        number, unused = 1, call.id
        while unused in self._used_ids:
            number += 1
            suffix = f"_{number}"
            unused = call.id[: _ID_LIMIT - len(suffix)] + suffix
        self._used_ids.add(unused)
        self._announced[call.id] = ToolCall(unused, call.name, call.arguments)
        return self._announced[call.id]

    async def _read_file(self, file: str) -> FileContent:
        try:
            return FileContent(file=file, content=await self.request.read_file(file))
        except NotFound as error:
            return FileContent(file=file, problem=str(error))


def _event(line: FromAgent) -> Event | None:
    match line:
        case WireDelta():
            return TextDelta(line.text)
        case WireUsage():
            return UsageReport(to_usage(line))
        case WireFinal():
            files = tuple(NewFile(file.name, file.content, file.media_type) for file in line.files)
            return Final(text=line.text, reasoning=line.reasoning, blob=line.blob, files=files, cut=line.cut)
        case WireFailure():
            return Failure(kind=line.kind, detail=failure_detail(line.detail), after=line.after)
        case _:
            return None


def to_usage(line: WireUsage) -> Usage:
    return Usage(
        model=line.model,
        input_tokens=line.input_tokens,
        output_tokens=line.output_tokens,
        cached_tokens=line.cached_tokens,
        cost_micros=line.cost_micros or 0,
        unpriced_tokens=line.input_tokens + line.output_tokens if line.cost_micros is None else 0,
        prompt_tokens=line.prompt_tokens,
    )


def failure_detail(reason: str) -> str:
    """Return the agent's reason on one line, without secrets."""
    return one_line(redact(reason), _MAX_DETAIL_LENGTH) or "the agent gave no reason"


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
            raise AgentError(FailureKind.FATAL, "the agent does not offer summaries")
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
