"""Parse a request of the Responses API: its items become the messages of a chat completion."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec

from palaver.model.epochs import Epochs
from palaver.model.errors import NotFound
from palaver.model.text import one_line
from palaver.web.openai.schema import (
    Audio,
    Called,
    CalledFunction,
    CompletionRequest,
    FilePart,
    Function,
    ImageUrl,
    JsonSchema,
    Message,
    Part,
    ResponseFormat,
    ToolChoice,
    ToolParam,
    decode_request,
    invalid,
)

_ID = re.compile(r"(?:resp|msg|fc)_in_([0-9]{1,18}(?:-[0-9a-f]{6})?)((?:_[A-Za-z0-9_-]*)?)", re.ASCII)
_MAX_QUOTED = 100


class _ContentPart(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    text: str = ""
    refusal: str = ""
    image_url: str | None = None
    file_data: str | None = None
    filename: str | None = None
    input_audio: Audio | None = None


class _Item(msgspec.Struct, frozen=True, kw_only=True):
    type: str = "message"
    id: str | None = None
    role: Literal["system", "developer", "user", "assistant"] | None = None
    content: str | list[_ContentPart] | None = None
    call_id: str | None = None
    output: str | list[_ContentPart] | None = None
    name: str = ""
    arguments: str = ""


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    name: str = ""
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Choice(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["function"]
    name: str


class _Format(msgspec.Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class _Text(msgspec.Struct, frozen=True, kw_only=True):
    format: _Format | None = None


class _Conversation(msgspec.Struct, frozen=True, kw_only=True):
    id: str


class ResponseRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What we use of a request; the rest is for models and has no effect here."""

    model: str
    input: str | list[_Item]
    instructions: str | None = None
    previous_response_id: str | None = None
    conversation: str | _Conversation | None = None
    stream: bool | None = None
    background: bool | None = None
    tools: list[_Tool] | None = None
    tool_choice: str | _Choice | None = None
    text: _Text | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None

    @property
    def previous(self) -> str | None:
        """The response that this request follows, or an item of it that we keep."""
        if self.previous_response_id is not None:
            return self.previous_response_id
        items = () if isinstance(self.input, str) else self.input
        references = [item.id or "" for item in items if item.type == "item_reference"]
        return references[-1] if references else None

    @property
    def completion(self) -> CompletionRequest:
        """The same request as a chat completion."""
        if self.background:
            raise invalid("background cannot be", "true", "false", "false")
        system = [Message(role="system", content=self.instructions)] if self.instructions else []
        items = [_Item(role="user", content=self.input)] if isinstance(self.input, str) else self.input
        named = self.conversation.id if isinstance(self.conversation, _Conversation) else self.conversation
        choice = self.tool_choice
        return CompletionRequest(
            model=self.model,
            messages=[*system, *map(_message, (item for item in items if item.type != "reasoning"))],
            stream=self.stream,
            tools=[_tool(tool) for tool in self.tools or ()],
            tool_choice=ToolChoice(type="function", function=Function(name=choice.name))
            if isinstance(choice, _Choice)
            else choice,
            response_format=_response_format(self.text),
            user=self.user,
            metadata={**(self.metadata or {}), **({"session": named} if named else {})},
        )


def parse_response_request(content: bytes | bytearray) -> ResponseRequest:
    return decode_request(content, ResponseRequest, _encoded_files)


def split_id(name: str, epochs: Epochs) -> tuple[int, str]:
    """Return the number of our message in the id of a response or an item, and what follows it. Raises NotFound."""
    found = _ID.fullmatch(name)
    number = epochs.find_message(f"in:{found[1]}") if found else None
    if found is None or number is None:
        raise NotFound("response", one_line(name, _MAX_QUOTED))
    return number, found[2]


def name_in_ids(number: int, epochs: Epochs) -> str:
    """Return how a message is named within the id of its response."""
    return epochs.message(number).removeprefix("in:")


def _encoded_files(request: ResponseRequest) -> Iterator[str]:
    for item in () if isinstance(request.input, str) else request.input:
        for part in item.content if isinstance(item.content, list) else ():
            yield part.image_url or ""
            yield part.file_data or ""
            yield part.input_audio.data if part.input_audio else ""


def _message(item: _Item) -> Message:
    match item.type:
        case "message" if item.role:
            return Message(role=item.role, content=_content(item.content))
        case "function_call" if item.call_id:
            function = CalledFunction(name=item.name, arguments=item.arguments)
            return Message(role="assistant", tool_calls=[Called(id=item.call_id, function=function)])
        case "function_call" | "item_reference":  # the transcript has what the agent said and called
            return Message(role="assistant")
        case "function_call_output":
            return Message(role="tool", content=_content(item.output), tool_call_id=item.call_id)
        case _:
            allowed = "message with a role, function_call, function_call_output, item_reference, reasoning"
            raise invalid("An item cannot be", one_line(item.type, _MAX_QUOTED), allowed)


def _content(content: str | Sequence[_ContentPart] | None) -> str | list[Part] | None:
    return content if content is None or isinstance(content, str) else [_part(part) for part in content]


def _part(part: _ContentPart) -> Part:
    match part.type:
        case "input_text" | "output_text" | "text" | "summary_text":
            return Part(type="text", text=part.text)
        case "refusal":
            return Part(type="text", text=part.refusal)
        case "input_image" if part.image_url is not None:
            return Part(type="image_url", image_url=ImageUrl(url=part.image_url))
        case "input_file" if part.file_data is not None:
            return Part(type="file", file=FilePart(file_data=part.file_data, filename=part.filename or "file"))
        case "input_audio":
            return Part(type="input_audio", input_audio=part.input_audio)
        case _:
            allowed = "input_text, output_text, input_image, input_file with their content inside"
            raise invalid("A part of a message cannot be", one_line(part.type, _MAX_QUOTED), allowed)


def _tool(tool: _Tool) -> ToolParam:
    function = Function(name=tool.name, description=tool.description, parameters=tool.parameters)
    return ToolParam(type=tool.type, function=function if tool.type == "function" else None)


def _response_format(text: _Text | None) -> ResponseFormat | None:
    wanted = text.format if text else None
    if wanted is None:
        return None
    schema = JsonSchema(name=wanted.name, schema=wanted.schema, strict=wanted.strict)
    return ResponseFormat(type=wanted.type, json_schema=schema if wanted.type == "json_schema" else None)
