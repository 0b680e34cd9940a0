"""Responses: convert a provider's response to what the transcript stores, and back.

A blob holds what text and calls cannot: reasoning with its signature, ids, the order of the parts.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from pydantic import ValidationError
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)

from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message, repair

PARAGRAPH_BREAK = "\n\n"
"""Separates texts that are joined, as in the view."""
_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""The entry has the time."""


def text_of(response: ModelResponse) -> str:
    return _joined(part.content for part in response.parts if isinstance(part, TextPart))


def reasoning_of(response: ModelResponse) -> str:
    return _encodable(_joined(part.content for part in response.parts if isinstance(part, ThinkingPart)))


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
            return replace(part, content=_encodable(part.content))
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


def _encodable(text: str) -> str:
    """Replace lone surrogates, which cannot be stored."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
