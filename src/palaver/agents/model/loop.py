"""The answer loop: call the model, run the tools it calls, and repeat until it answers."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import cast

from pydantic_ai.exceptions import ModelRequestRejectedError, ModelServerError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.output import OutputObjectDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from palaver.agents.model.costs import Costs
from palaver.agents.model.errors import RejectedBlobs, is_about_content
from palaver.agents.model.messages import (
    PARAGRAPH_BREAK,
    FileView,
    ShownFiles,
    blob_of,
    calls_of,
    history,
    reasoning_of,
    repair_response,
    text_of,
)
from palaver.agents.model.providers import ModelClient
from palaver.model.redact import redact
from palaver.model.text import whole_characters
from palaver.model.tools import NOT_APPROVED
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import ANY_FORM, AnswerForm
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


class ResponseCutOff(Exception):
    """The provider's answer ended in the middle."""


def request_parameters(
    prompt: str, tools: Sequence[Tool] = (), form: AnswerForm = ANY_FORM, *, has_schemas: bool = False
) -> ModelRequestParameters:
    """Return the prompt and tools. They stay the same from turn to turn, or the provider's cache never hits.

    A model that takes no schema gets it as an instruction.
    """
    structured = ModelRequestParameters()
    if form.schema is not None:
        output = OutputObjectDefinition(json.loads(form.schema), form.schema_name, strict=form.strict)
        structured = replace(structured, output_mode="native" if has_schemas else "prompted", output_object=output)
    return replace(
        structured,
        instruction_parts=[InstructionPart(content=prompt)] if prompt else None,
        function_tools=[
            # Never strict: a tool's schema need not follow one provider's rules.
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters), strict=False
            )
            for tool in tools
        ],
    )


def _has_ended(response: ModelResponse) -> bool:
    """Return whether the provider itself reported an end; the library takes silence for one."""
    reason = (response.provider_details or {}).get("finish_reason")
    return response.state == "complete" and (reason is not None or response.finish_reason == "content_filter")


def _text(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


def _has_called(messages: Sequence[Message]) -> bool:
    """Return whether the model called a tool since a person spoke."""
    since = takewhile(lambda message: message.role is not Role.USER, reversed(messages))
    return any(message.calls for message in since)


@dataclass(kw_only=True)
class ModelCall:
    client: ModelClient
    parameters: ModelRequestParameters
    form: AnswerForm = ANY_FORM
    cache_key: str = ""
    """The same for all requests that begin alike."""
    response: ModelResponse = field(default_factory=lambda: ModelResponse(parts=[]))
    """The whole response, once it has ended."""

    async def stream_text(self, messages: list[ModelMessage]) -> AsyncGenerator[str]:
        """Stream the text. Raises the errors of the provider's library, or ResponseCutOff."""
        gap = piece = ""
        settings = ModelSettings(**self.client.settings)
        if self.cache_key and self.client.takes_cache_key:
            settings = cast("ModelSettings", {**settings, "openai_prompt_cache_key": self.cache_key})
        if self.form.stop:
            settings["stop_sequences"] = list(self.form.stop)
        if self.form.must_call:
            settings["tool_choice"] = list(self.form.must_call)
        async with self.client.model.request_stream(messages, settings, self.parameters) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    gap = PARAGRAPH_BREAK if piece else ""
                if text := _text(event):
                    piece = gap + text
                    gap = ""
                    yield piece
            response = stream.get()
        if not _has_ended(response):
            raise ResponseCutOff
        self.response = response


_MALFORMED = "The arguments are not a JSON object, so the tool did not run. Call it again with a JSON object."
_TOO_MANY_ROUNDS = Failure(kind=FailureKind.FATAL, detail="the model kept calling tools without answering")
_EMPTY = Failure(kind=FailureKind.TRANSIENT, detail="the model gave an empty answer")
_NO_ANSWER = Failure(kind=FailureKind.FATAL, detail="the model gave no answer: it was cut short")
_FILTERED = Failure(kind=FailureKind.REJECTED, detail="the provider's filter let no answer through")
_FULL = Failure(kind=FailureKind.OVERFLOW, detail="the conversation filled the context window of the model")
_CONTEXT_FULL = "model_context_window_exceeded"


def _refusal(response: ModelResponse) -> Final | Failure | None:
    """Return why a response has no text, if its provider says so; a model that declines does it in its own words."""
    details = response.provider_details or {}
    if declined := details.get("refusal"):
        return Final(text=whole_characters(str(declined)))
    if details.get("finish_reason") == _CONTEXT_FULL:
        return _FULL
    return _FILTERED if response.finish_reason == "content_filter" else None


def _is_cut(response: ModelResponse) -> bool:
    """Return whether the answer ended because the model can say no more, not because it was done."""
    details = response.provider_details or {}
    return response.finish_reason == "length" or details.get("finish_reason") == _CONTEXT_FULL


@dataclass(kw_only=True)
class AnswerLoop:
    """One model answering one turn. The next turn shows it everything in the same bytes."""

    request: Request
    client: ModelClient
    prompt: str
    costs: Costs
    files: FileView
    rejected: RejectedBlobs
    rounds: int
    messages: list[Message] = field(init=False)
    """The view's messages and what has happened since."""
    _malformed: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.messages = list(self.request.messages)

    async def events(self) -> AsyncGenerator[Event]:
        """Stream events. Raises the errors of the provider's library, or ResponseCutOff."""
        calls = open_calls(self.messages)
        for left in reversed(range(self.rounds + 1)):
            async with aclosing(self._run_tools(calls)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, ApprovalNeeded):
                        return
            call = self._model_call()
            async with aclosing(self._stream_text(call)) as texts:
                async for text in texts:
                    yield TextDelta(text)
            response = self._record(call.response)
            yield UsageReport(self.costs.usage(self.client.name, response.usage))
            calls = calls_of(response)
            if not calls or not left:
                yield _TOO_MANY_ROUNDS if calls else self._end(response)
                return
            last = self.messages[-1]
            yield ToolCalled(calls=calls, text=last.text, reasoning=last.reasoning, blob=b"".join(last.blobs))

    def _model_call(self) -> ModelCall:
        form = self.request.form
        if form.must_call and _has_called(self.messages):
            form = replace(form, must_call=())
        has_schemas = bool(self.client.model.profile.get("supports_json_schema_output"))
        parameters = request_parameters(self.prompt, self.request.toolbox.tools, form, has_schemas=has_schemas)
        return ModelCall(client=self.client, parameters=parameters, form=form, cache_key=self.request.session[:64])

    async def _stream_text(self, call: ModelCall) -> AsyncGenerator[str]:
        """Call the model, again with less content if the provider rejects it, and remember what it accepted."""
        view = self.rejected.without(repair(self.messages))
        rejection: ModelRequestRejectedError | ModelServerError | None = None
        files = await self.files.load(view)
        hidden = await self.files.without_files().load(view) if files else files
        for messages, remember in self._attempts(view, files, hidden):
            try:
                async with aclosing(call.stream_text(messages)) as texts:
                    async for text in texts:
                        yield text
            except (ModelRequestRejectedError, ModelServerError) as error:
                if not is_about_content(error):
                    raise
                rejection = error
            else:
                remember()
                return
        if rejection:
            raise rejection

    def _attempts(
        self, view: Sequence[Message], files: Mapping[int, ShownFiles], hidden: Mapping[int, ShownFiles]
    ) -> Iterator[tuple[list[ModelMessage], Callable[[], None]]]:
        """Yield the messages as they are, then with files only described, then without provider blobs."""
        yield history(view, files, self.client.name), lambda: None
        if any(shown.files for shown in files.values()):
            yield history(view, hidden, self.client.name), self._hide_files
        if any(message.blobs for message in view):
            plain = [message._replace(blobs=()) for message in view]
            yield history(plain, hidden, self.client.name), lambda: self.rejected.add(view)

    def _hide_files(self) -> None:
        self.files = self.files.without_files()

    def _record(self, raw: ModelResponse) -> ModelResponse:
        """Append the response in the form in which it is stored and shown from now on."""
        response = repair_response(raw, self.messages)
        calls, blob = calls_of(response), blob_of(response, self.client.name)
        sent = (call.arguments for call in calls_of(raw))
        self._malformed = {call.id for call, as_sent in zip(calls, sent, strict=True) if call.arguments != as_sent}
        blobs = (blob,) if blob else ()
        self.messages.append(Message(Role.ASSISTANT, text_of(response), calls, "", reasoning_of(response), blobs))
        return response

    def _end(self, response: ModelResponse) -> Final | Failure:
        """End the turn. An empty answer is only valid after a tool result."""
        last, before = self.messages[-1], self.messages[-2:-1]
        if not last.text.strip() and (refused := _refusal(response)):
            return refused
        if not last.text.strip() and not (before and before[0].role is Role.TOOL):
            return _EMPTY if response.finish_reason == "stop" else _NO_ANSWER
        return Final(text=last.text, reasoning=last.reasoning, blob=b"".join(last.blobs), cut=_is_cut(response))

    async def _run_tools(self, calls: Sequence[ToolCall]) -> AsyncGenerator[Event]:
        """Run the calls that need no approval or have one, side by side; then ask for the first missing approval."""
        if not calls:
            return
        questions = {call.id: question for call in calls if (question := await self._question(call))}
        running = [(call, asyncio.create_task(self._result(call))) for call in calls if call.id not in questions]
        try:
            for call, result in running:
                text = await result
                self.messages.append(Message(Role.TOOL, redact(text), (), call.id))
                yield ToolReturned(call=call.id, text=text)
        finally:
            for _, result in running:
                result.cancel()
        for call in calls:
            if call.id in questions:
                yield ApprovalNeeded(call=call, question=questions[call.id])
                return
        if texts := await self.request.new_messages():
            self.messages.append(Message(Role.USER, PARAGRAPH_BREAK.join(texts)))

    async def _question(self, call: ToolCall) -> str | None:
        is_settled = call.id in self.request.approvals or call.id in self._malformed
        return None if is_settled else await self.request.toolbox.question(call)

    async def _result(self, call: ToolCall) -> str:
        if call.id in self._malformed:
            return _MALFORMED
        return await self.request.toolbox.use(call) if self.request.approvals.get(call.id, True) else NOT_APPROVED
