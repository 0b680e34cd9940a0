"""History: the view of a conversation as messages for a provider. The same messages give the same bytes."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserPromptPart,
)

from palaver.agents.model.responses import response_to
from palaver.domain.transcript import Role
from palaver.domain.view import Message

__all__ = ["history"]

_ALWAYS = datetime(1970, 1, 1, tzinfo=UTC)
"""No provider is told when something was said."""


def history(messages: Sequence[Message], files: Mapping[int, list[BinaryContent]], model: str) -> list[ModelMessage]:
    """Of a view without open calls: what stands between two answers is one request."""
    told: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    tools: dict[str, str] = {}
    for place, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            told += [ModelRequest(parts=asked)] if asked else []
            told.append(response_to(message, model))
            tools.update({call.id: call.name for call in message.calls})
            asked = []
        elif message.role is Role.TOOL:
            name = tools.get(message.answers, "unknown_tool")
            asked.append(ToolReturnPart(name, message.text, message.answers, timestamp=_ALWAYS))
        else:
            attached = files.get(place)
            content = [message.text, *attached] if attached else message.text
            asked.append(UserPromptPart(content, timestamp=_ALWAYS))
    return [*told, ModelRequest(parts=asked)] if asked else told
