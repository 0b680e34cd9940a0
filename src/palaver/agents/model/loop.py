"""An answer: the model is asked, its tools are used, and it is asked again, until it has said all."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from pydantic_ai.exceptions import ModelRequestRejectedError
from pydantic_ai.messages import (
    BinaryContent,
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from palaver.agents.model.costs import Costs
from palaver.agents.model.errors import Refusals, is_about_content
from palaver.agents.model.history import Sight, history
from palaver.agents.model.providers import Line
from palaver.agents.model.responses import BETWEEN, blob_of, calls_of, reasoning_of, repaired, text_of
from palaver.model.prompt_markers import strip_markers
from palaver.model.redact import redact
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message, open_calls, repair
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
from palaver.protocols.tools import Tool

__all__ = [
    "NOT_ALLOWED",
    "Answer",
    "Asking",
    "CutOff",
    "parameters",
]


class CutOff(Exception):
    """The provider ended in the middle of its answer."""


def parameters(prompt: str, tools: Sequence[Tool] = ()) -> ModelRequestParameters:
    """What stands before the conversation: the same from turn to turn, or nothing that follows is known again."""
    return ModelRequestParameters(
        instruction_parts=[InstructionPart(content=prompt)] if prompt else None,
        function_tools=[
            # Never strict: whoever described a tool did not have one provider's rules in mind.
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters), strict=False
            )
            for tool in tools
        ],
    )


def _has_ended(response: ModelResponse) -> bool:
    """Whether the provider said so in its own words; the library takes silence for an end."""
    said = (response.provider_details or {}).get("finish_reason")
    return response.state == "complete" and (said is not None or response.finish_reason == "content_filter")


def _text(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


@dataclass(kw_only=True)
class Asking:
    line: Line
    parameters: ModelRequestParameters
    response: ModelResponse = field(default_factory=lambda: ModelResponse(parts=[]))
    """What was heard, once all of it was."""

    async def hear(self, messages: list[ModelMessage]) -> AsyncGenerator[str]:
        """The text as it grows. Raises what the provider's library raises, or CutOff."""
        gap = spoken = ""
        async with self.line.model.request_stream(messages, self.line.settings, self.parameters) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    gap = BETWEEN if spoken else ""
                if text := _text(event):
                    spoken = gap + text
                    gap = ""
                    yield spoken
            response = stream.get()
        if not _has_ended(response):
            raise CutOff
        self.response = response


NOT_ALLOWED = "A person did not allow this."
_MALFORMED = "The arguments are not a JSON object, so nothing was done. Call it again with arguments that are."
_OFTEN = Failure(kind=FailureKind.FATAL, detail="the model used tools again and again without an answer")
_SILENT = Failure(kind=FailureKind.TRANSIENT, detail="the model said nothing")
_WORDLESS = Failure(kind=FailureKind.FATAL, detail="the model came to no answer: it was cut short, or kept from it")


@dataclass(kw_only=True)
class Answer:
    """One model at work on one turn. Whatever it is shown in the turn, the next turn shows it in the same bytes."""

    request: Request
    line: Line
    prompt: str
    costs: Costs
    sight: Sight
    refusals: Refusals
    rounds: int
    messages: list[Message] = field(init=False)
    """As the view shows them, with what has happened since."""
    _malformed: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.messages = list(self.request.messages)

    async def events(self) -> AsyncGenerator[Event]:
        """Raises what the provider's library raises, or CutOff."""
        calls = open_calls(self.messages)
        for left in reversed(range(self.rounds + 1)):
            async with aclosing(self._use(calls)) as using:
                async for event in using:
                    yield event
                    if isinstance(event, ApprovalNeeded):
                        return
            asking = Asking(line=self.line, parameters=parameters(self.prompt, self.request.toolbox.tools))
            async with aclosing(self._hear(asking)) as hearing:
                async for text in hearing:
                    yield TextDelta(text)
            response = self._take(asking.response)
            yield UsageReport(self.costs.usage(self.line.name, response.usage))
            calls = calls_of(response)
            if not calls or not left:
                yield _OFTEN if calls else self._end(response)
                return
            said = self.messages[-1]
            yield ToolCalled(calls=calls, text=said.text, reasoning=said.reasoning, blob=b"".join(said.blobs))

    async def _hear(self, asking: Asking) -> AsyncGenerator[str]:
        """What is refused is shown once more, with less in it; what was taken then is shown so from now on."""
        view = self.refusals.without(repair(self.messages))
        refused: ModelRequestRejectedError | None = None
        for shown, learn in self._ways(view, await self.sight.files(view)):
            try:
                async with aclosing(asking.hear(shown)) as hearing:
                    async for text in hearing:
                        yield text
            except ModelRequestRejectedError as error:
                if not is_about_content(error):
                    raise
                refused = error
            else:
                learn()
                return
        if refused:
            raise refused

    def _ways(
        self, view: Sequence[Message], files: Mapping[int, list[BinaryContent]]
    ) -> Iterator[tuple[list[ModelMessage], Callable[[], None]]]:
        """As it is; with files described, like those that no model takes; without what only the provider can read."""
        yield history(view, files, self.line.name), lambda: None
        if files:
            yield history(view, {}, self.line.name), self._see_no_files
        if any(message.blobs for message in view):
            words = [message._replace(blobs=()) for message in view]
            yield history(words, {}, self.line.name), lambda: self.refusals.add(view)

    def _see_no_files(self) -> None:
        self.sight = self.sight.without_files()

    def _take(self, heard: ModelResponse) -> ModelResponse:
        """As it is kept, and shown from now on."""
        response = repaired(heard, self.messages)
        calls, blob = calls_of(response), blob_of(response, self.line.name)
        sent = (call.arguments for call in calls_of(heard))
        self._malformed = {call.id for call, written in zip(calls, sent, strict=True) if call.arguments != written}
        blobs = (blob,) if blob else ()
        self.messages.append(Message(Role.ASSISTANT, text_of(response), calls, "", reasoning_of(response), blobs))
        return response

    def _end(self, response: ModelResponse) -> Final | Failure:
        """A model that has used tools may have nothing to add; one that was only asked has."""
        said, before = self.messages[-1], self.messages[-2:-1]
        if not said.text.strip() and not (before and before[0].role is Role.TOOL):
            return _SILENT if response.finish_reason == "stop" else _WORDLESS
        return Final(text=said.text, reasoning=said.reasoning, blob=b"".join(said.blobs))

    async def _use(self, calls: Sequence[ToolCall]) -> AsyncGenerator[Event]:
        """What needs nobody's leave, or has it, at once; then one question, if there is any."""
        if not calls:
            return
        questions = {call.id: question for call in calls if (question := await self._question(call))}
        using = [(call, asyncio.create_task(self._result(call))) for call in calls if call.id not in questions]
        try:
            for call, result in using:
                text = await result
                self.messages.append(Message(Role.TOOL, strip_markers(redact(text)), (), call.id))
                yield ToolReturned(call=call.id, text=text)
        finally:
            for _, result in using:
                result.cancel()
        for call in calls:
            if call.id in questions:
                yield ApprovalNeeded(call=call, question=questions[call.id])
                return
        if words := await self.request.new_messages():
            self.messages.append(Message(Role.USER, BETWEEN.join(words)))

    async def _question(self, call: ToolCall) -> str | None:
        is_settled = call.id in self.request.approvals or call.id in self._malformed
        return None if is_settled else await self.request.toolbox.question(call)

    async def _result(self, call: ToolCall) -> str:
        if call.id in self._malformed:
            return _MALFORMED
        return await self.request.toolbox.use(call) if self.request.approvals.get(call.id, True) else NOT_ALLOWED
