"""Responses: what a provider answered, as the transcript keeps it, and back to what the provider wants to see again.

A blob is kept where text and calls do not say it all: reasoning with its signature, ids, the order of the parts.
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

__all__ = [
    "BETWEEN",
    "blob_of",
    "calls_of",
    "reasoning_of",
    "repaired",
    "response_to",
    "text_of",
]

BETWEEN = "\n\n"
"""Stands between texts that are not one, as in the view."""
_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""When it was answered stands with the entry."""


def text_of(response: ModelResponse) -> str:
    return _joined(part.content for part in response.parts if isinstance(part, TextPart))


def reasoning_of(response: ModelResponse) -> str:
    return _encodable(_joined(part.content for part in response.parts if isinstance(part, ThinkingPart)))


def calls_of(response: ModelResponse) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(id=part.tool_call_id, name=part.tool_name, arguments=_written(part.args))
        for part in response.parts
        if isinstance(part, ToolCallPart)
    )


def _written(arguments: str | Mapping[str, Any] | None) -> str:
    """Exactly as they were sent, where they were sent as text."""
    return (arguments or "{}") if not isinstance(arguments, Mapping) else json.dumps(arguments, ensure_ascii=False)


def blob_of(response: ModelResponse, model: str) -> bytes:
    """Empty where nothing would be lost. `model` is who alone can read it."""
    if list(response.parts) == list(_plain(text_of(response), calls_of(response)).parts):
        return b""
    kept = ModelResponse(
        parts=response.parts,
        model_id=model,
        timestamp=_ALWAYS,
        provider_name=response.provider_name,
        provider_url=response.provider_url,
        canonical_system=response.canonical_system,
        provider_response_id=response.provider_response_id,
    )
    try:
        return ModelMessagesTypeAdapter.dump_json([kept], exclude={0: {"usage"}})
    except ValueError:  # half a surrogate in what only the provider understands
        return b""


def repaired(response: ModelResponse, before: Sequence[Message]) -> ModelResponse:
    """With text that can be written, and calls as the view will show them behind what was said before."""
    raw = calls_of(response)
    view = repair([*before, Message(Role.ASSISTANT, "", raw)]) if raw else ()
    last = next((message.calls for message in reversed(view) if message.calls), ())
    calls = iter(last[-len(raw) :])
    return replace(response, parts=[_repaired(part, calls) for part in response.parts])


def _repaired(part: ModelResponsePart, calls: Iterator[ToolCall]) -> ModelResponsePart:
    match part:
        case TextPart() | ThinkingPart():
            return replace(part, content=_encodable(part.content))
        case ToolCallPart():
            call = next(calls)
            return replace(part, tool_name=call.name, args=call.arguments, tool_call_id=call.id)
        case _:
            return part


def response_to(message: Message, model: str) -> ModelResponse:
    """What the model is shown of something it said: as it was, where that is known; else its text and calls.

    What came from another model, cannot be read, or says something else than the message does not count.
    """
    known = [_read(blob) for blob in message.blobs]
    responses = [response for response in known if response and response.model_id == model]
    if not responses or len(responses) < len(known):
        return _plain(message.text, message.calls)
    whole = replace(responses[-1], parts=[part for response in responses for part in response.parts])
    said = _joined(filter(None, map(text_of, responses))), calls_of(whole)
    return whole if said == (message.text, message.calls) else _plain(message.text, message.calls)


@lru_cache(512)
def _read(blob: bytes) -> ModelResponse | None:
    try:
        (response,) = ModelMessagesTypeAdapter.validate_json(blob)
    except (ValidationError, ValueError):
        return None
    return response if isinstance(response, ModelResponse) else None


def _plain(text: str, calls: Sequence[ToolCall]) -> ModelResponse:
    spoken: list[ModelResponsePart] = [TextPart(text)] if text else []
    used = [ToolCallPart(call.name, call.arguments, call.id) for call in calls]
    return ModelResponse(parts=[*spoken, *used], timestamp=_ALWAYS)


def _joined(texts: Iterable[str]) -> str:
    return BETWEEN.join(text for text in texts if text)


def _encodable(text: str) -> str:
    """Without half surrogates, which cannot be written down."""
    return text if text.isascii() else text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
