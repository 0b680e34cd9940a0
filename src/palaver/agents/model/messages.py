"""Convert between a conversation's view and a provider's messages. The same view gives the same bytes.

A blob holds what text and calls cannot: reasoning with its signature, ids, the order of the parts.
"""

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.profiles import ModelProfile

from palaver.model.attachment import ID_LENGTH, format_size
from palaver.model.errors import NotFound
from palaver.model.label import CLOSE, OPEN, marker
from palaver.model.text import whole_characters
from palaver.model.transcript import Role, ToolCall
from palaver.model.value import value
from palaver.model.view import Message, repair

PARAGRAPH_BREAK = "\n\n"
"""Separates texts that are joined, as in the view."""
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""The entry has the time; providers do not see it."""


def text_of(response: ModelResponse) -> str:
    return _joined(part.content for part in response.parts if isinstance(part, TextPart))


def reasoning_of(response: ModelResponse) -> str:
    return whole_characters(_joined(part.content for part in response.parts if isinstance(part, ThinkingPart)))


def calls_of(response: ModelResponse) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_arguments_text(part.args))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )


def _arguments_text(arguments: str | Mapping[str, Any] | None) -> str:
    """Return the arguments as JSON, unchanged if they were sent as text."""
    return (arguments or "{}") if not isinstance(arguments, Mapping) else json.dumps(arguments, ensure_ascii=False)


def blob_of(response: ModelResponse, model: str) -> bytes:
    """Return a blob that only `model` can read; empty if text and calls hold everything."""
    if list(response.parts) == list(_plain(text_of(response), calls_of(response)).parts):
        return b""
    stored = ModelResponse(
        parts=response.parts,
        model_id=model,
        timestamp=_NO_TIME,
        provider_name=response.provider_name,
        provider_url=response.provider_url,
        canonical_system=response.canonical_system,
        provider_response_id=response.provider_response_id,
    )
    try:
        return ModelMessagesTypeAdapter.dump_json([stored], exclude={0: {"usage"}})
    except ValueError:  # a lone surrogate in a part that only the provider reads
        return b""


def repair_response(response: ModelResponse, before: Sequence[Message]) -> ModelResponse:
    """Make the text encodable, and repair calls as the view will after the messages before."""
    raw = calls_of(response)
    view = repair([*before, Message(Role.ASSISTANT, "", raw)]) if raw else ()
    last = next((message.calls for message in reversed(view) if message.calls), ())
    calls = iter(last[-len(raw) :])
    return replace(response, parts=[_repair_part(part, calls) for part in response.parts])


def _repair_part(part: ModelResponsePart, calls: Iterator[ToolCall]) -> ModelResponsePart:
    match part:
        case TextPart() | ThinkingPart():
            return replace(part, content=whole_characters(part.content))
        case ToolCallPart():
            call = next(calls)
            return replace(part, tool_name=call.name, args=call.arguments, tool_call_id=call.id)
        case _:
            return part


def to_response(message: Message, model: str) -> ModelResponse:
    """Return the original response from the message's blobs, or else a plain one from its text and calls.

    Ignores blobs of another model, unreadable blobs, and blobs that contradict the message.
    """
    stored = [_read(blob) for blob in message.blobs]
    responses = [response for response in stored if response and response.model_id == model]
    if not responses or len(responses) < len(stored):
        return _plain(message.text, message.calls)
    whole = replace(responses[-1], parts=[part for response in responses for part in response.parts])
    content = _joined(filter(None, map(text_of, responses))), calls_of(whole)
    return whole if content == (message.text, message.calls) else _plain(message.text, message.calls)


@lru_cache(512)
def _read(blob: bytes) -> ModelResponse | None:
    try:
        (response,) = ModelMessagesTypeAdapter.validate_json(blob)
    except (ValidationError, ValueError):
        return None
    return response if isinstance(response, ModelResponse) else None


def _plain(text: str, calls: Sequence[ToolCall]) -> ModelResponse:
    parts: list[ModelResponsePart] = [TextPart(text)] if text else []
    parts += [ToolCallPart(call.name, call.arguments, call.id) for call in calls]
    return ModelResponse(parts=parts, timestamp=_NO_TIME)


def _joined(texts: Iterable[str]) -> str:
    return PARAGRAPH_BREAK.join(text for text in texts if text)


_FILE_MARKER = re.compile(
    rf"{OPEN}file ([0-9a-f]{{{ID_LENGTH}}}): ([^{OPEN}{CLOSE}]*), ([a-z0-9.+-]+/[a-z0-9.+-]+),"
    rf" [^,{OPEN}{CLOSE}]*{CLOSE}"
)
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DOCUMENTS = frozenset({"application/pdf"})
_AUDIO = frozenset({"audio/mpeg", "audio/wav"})
_FILE_BATCH = 4
"""From two batches of files on, the older batch is hidden, so that earlier messages change rarely."""
_MAX_FILE_BYTES = 5_000_000


@value
class ShownFiles:
    """What a model gets with one message besides its text."""

    files: list[BinaryContent] = field(default_factory=list[BinaryContent])
    notes: list[str] = field(default_factory=list[str])
    """Which files it does not see, and why."""


@value(kw_only=False)
class FileView:
    """The files that a model can see in one turn. Each is read once."""

    read: Callable[[str], Awaitable[bytes]]
    types: frozenset[str]
    _contents: dict[str, bytes | str] = field(default_factory=dict[str, bytes | str])
    """The content of each file, or why there is none."""

    @classmethod
    def of(cls, profile: ModelProfile, read: Callable[[str], Awaitable[bytes]]) -> "FileView":
        supported = (
            (_IMAGES, profile.get("supports_image_input", True)),
            (_DOCUMENTS, profile.get("supports_document_input", True)),
            (_AUDIO, profile.get("supports_audio_file_input", False)),
        )
        return cls(read, frozenset[str]().union(*(types for types, is_supported in supported if is_supported)))

    def without_files(self) -> "FileView":
        return FileView(self.read, frozenset())

    async def load(self, messages: Sequence[Message]) -> dict[int, ShownFiles]:
        """Return the files to show and what to say about others, by the index of their message."""
        shown: dict[int, ShownFiles] = {}
        seen: list[tuple[int, str, str, str]] = []
        for index, message in enumerate(messages):
            # What an assistant writes has no markers; those of a tool's result are the gateway's.
            found = _FILE_MARKER.findall(message.text) if OPEN in message.text else ()
            for id_, name, media_type in found if message.role is not Role.ASSISTANT else ():
                if media_type in self.types:
                    seen.append((index, id_, name, media_type))
                elif why := _why_not_shown(media_type):
                    shown.setdefault(index, ShownFiles()).notes.append(_not_shown(name, why))
        for index, id_, name, media_type in seen[max(0, (len(seen) - 1) // _FILE_BATCH - 1) * _FILE_BATCH :]:
            content = await self._content(id_)
            there = shown.setdefault(index, ShownFiles())
            if isinstance(content, bytes):
                there.files.append(BinaryContent(content, media_type=media_type))
            else:
                there.notes.append(_not_shown(name, content))
        return shown

    async def _content(self, id_: str) -> bytes | str:
        """Return the content, or why there is none."""
        if id_ not in self._contents:
            try:
                content = await self.read(id_)
            except NotFound:
                self._contents[id_] = "it is no longer stored"
            else:
                is_small = len(content) <= _MAX_FILE_BYTES
                self._contents[id_] = content if is_small else f"it is larger than {format_size(_MAX_FILE_BYTES)}"
        return self._contents[id_]


_NO_FILES = ShownFiles()


def _why_not_shown(media_type: str) -> str | None:
    if media_type in _IMAGES:
        return "this model cannot see images"
    if media_type in _DOCUMENTS:
        return "this model cannot read PDF files"
    return f"models do not take {media_type}" if media_type.startswith("image/") else None


def _not_shown(name: str, why: str) -> str:
    return marker(f"{name} is not shown to you: {why}")


def history(messages: Sequence[Message], files: Mapping[int, ShownFiles], model: str) -> list[ModelMessage]:
    """Convert a view without open calls. Everything between two answers becomes one request."""
    converted: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    tools: dict[str, str] = {}
    for index, message in enumerate(messages):
        shown = files.get(index, _NO_FILES)
        text = "\n".join((message.text, *shown.notes)) if shown.notes else message.text
        content = [text, *shown.files] if shown.files else text
        if message.role is Role.ASSISTANT:
            converted += [ModelRequest(parts=parts)] if parts else []
            converted.append(to_response(message, model))
            tools.update({call.id: call.name for call in message.calls})
            parts = []
        elif message.role is Role.TOOL:
            name = tools.get(message.answers, "unknown_tool")
            parts.append(ToolReturnPart(name, content, message.answers, timestamp=_NO_TIME))
        else:
            parts.append(UserPromptPart(content, timestamp=_NO_TIME))
    return [*converted, ModelRequest(parts=parts)] if parts else converted
