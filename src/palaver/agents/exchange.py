"""One turn with an agent of another maker: what it says becomes events, what it asks for is answered.

Permission is the gateway's business, whatever the agent does. A call that needs it ends the turn; once a person has
spoken, the very call that was written down is run, or not, before the agent is asked again.
"""

from collections.abc import AsyncGenerator
from dataclasses import replace

from palaver.agents.wire import (
    ApprovalWanted,
    AskMeanwhile,
    Called,
    Delta,
    Done,
    Failed,
    FileContent,
    FromAgent,
    Meanwhile,
    ReadFile,
    Reply,
    Result,
    Returned,
    Use,
    Used,
    WireCall,
)
from palaver.model.attachment import NewFile
from palaver.model.errors import NotFound
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.tools import MAX_QUESTION_LENGTH, approval_question, parse_arguments
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.view import Message, open_calls
from palaver.protocols.agent import (
    ApprovalNeeded,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)

__all__ = [
    "OUTCOMES",
    "Exchange",
    "detail_of",
    "usage_of",
]

OUTCOMES = (Final, Failure, ApprovalNeeded)
"""After one of these nothing more is heard."""
_REFUSED = "A person did not allow this."
_LONGEST_DETAIL = 300
_ID_LIMIT = 40


class Exchange:
    def __init__(self, request: Request) -> None:
        self.request = request
        self._taken = {call.id for message in request.messages for call in message.calls} | set(request.approvals)
        self._announced: dict[str, ToolCall] = {}
        """Written down in this turn: by the id that the agent gave, the call under one that nobody has used before."""

    async def open_calls(self) -> AsyncGenerator[Event]:
        """Calls of the gateway's tools that wait since before the turn was parked; then `request` has their results."""
        tools = {tool.name for tool in self.request.toolbox.tools}
        for call in open_calls(self.request.messages):
            if call.name not in tools:
                continue
            allowed = self.request.approvals.get(call.id)
            if allowed is None and (question := await self.request.toolbox.question(call)):
                yield ApprovalNeeded(call=call, question=question)
                return
            text = _REFUSED if allowed is False else await self.request.toolbox.use(call)
            yield ToolReturned(call=call.id, text=text)
            result = Message(Role.TOOL, text, (), call.id)
            self.request = replace(self.request, messages=(*self.request.messages, result))

    async def take(self, said: FromAgent) -> AsyncGenerator[Event | Reply]:
        """What becomes of it: events for the gateway, and a reply to what was asked."""
        match said:
            case Use():
                async for event in self._use(said):
                    yield event
            case AskMeanwhile():
                yield Meanwhile(texts=await self.request.new_messages())
            case ReadFile():
                yield await self._content(said.file)
            case Called():
                calls = tuple(map(self._announce, said.calls))
                yield ToolCalled(calls=calls, text=said.text, reasoning=said.reasoning, blob=said.blob)
            case Returned():
                known = self._announced.get(said.call)
                yield ToolReturned(call=known.id if known else said.call, text=said.text)
            case ApprovalWanted():
                yield await self._ask(self._meant(said.call), said.question)
            case _:
                if event := _event(said):
                    yield event

    async def _use(self, said: Use) -> AsyncGenerator[Event | Reply]:
        call = self._announced.pop(said.call.id, None)
        if call is None or call[1:] != (said.call.name, said.call.arguments):
            call = self._announce(said.call)
            yield ToolCalled(calls=(call,))
        if question := await self.request.toolbox.question(call):
            yield ApprovalNeeded(call=call, question=question)
            return
        text = await self.request.toolbox.use(call)
        yield ToolReturned(call=call.id, text=text)
        yield Result(call=said.call.id, text=text)

    async def _ask(self, call: ToolCall, question: str) -> Event:
        """About the gateway's tools it asks in its own words: an agent could say anything of them."""
        if call.name in {tool.name for tool in self.request.toolbox.tools}:
            question = await self.request.toolbox.question(call) or approval_question(call, parse_arguments(call) or {})
        if len(question) > MAX_QUESTION_LENGTH:
            detail = f"it asked a person about {len(question)} characters; {MAX_QUESTION_LENGTH} are allowed"
            return Failure(kind=FailureKind.FATAL, detail=detail)
        return ApprovalNeeded(call=call, question=question)

    def _meant(self, call: WireCall) -> ToolCall:
        """The call that was written down, whatever is said of it now; any other is a new one.

        What is announced in this turn goes by the ids of the agent alone: an id that the gateway gave is not one.
        """
        still_open = {each.id: each for each in open_calls(self.request.messages)}
        return self._announced.get(call.id) or still_open.get(call.id) or self._announce(call)

    def _announce(self, call: WireCall) -> ToolCall:
        """Under an id for which nobody has allowed anything, and nothing has come back, before."""
        number, free = 1, call.id
        while free in self._taken:
            number += 1
            suffix = f"_{number}"
            free = call.id[: _ID_LIMIT - len(suffix)] + suffix
        self._taken.add(free)
        self._announced[call.id] = _call(call)._replace(id=free)
        return self._announced[call.id]

    async def _content(self, file: str) -> FileContent:
        try:
            return FileContent(file=file, content=await self.request.read_file(file))
        except NotFound as error:
            return FileContent(file=file, problem=str(error))


def _event(said: FromAgent) -> Event | None:
    match said:
        case Delta():
            return TextDelta(said.text)
        case Used():
            return UsageReport(usage_of(said))
        case Done():
            files = tuple(NewFile(file.name, file.content, file.media_type) for file in said.files)
            return Final(text=said.text, reasoning=said.reasoning, blob=said.blob, files=files)
        case Failed():
            return Failure(kind=said.kind, detail=detail_of(said.detail), after=said.after)
        case _:
            return None


def usage_of(said: Used) -> Usage:
    return Usage(
        model=said.model,
        input_tokens=said.input_tokens,
        output_tokens=said.output_tokens,
        cost_micros=said.cost_micros,
    )


def detail_of(words: str) -> str:
    """What an agent says of its failure: one line, without secrets."""
    return one_line(redact(words), _LONGEST_DETAIL) or "the agent gave no reason"


def _call(call: WireCall) -> ToolCall:
    return ToolCall(call.id, call.name, call.arguments)
