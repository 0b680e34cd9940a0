"""History: the view of a conversation as messages for a provider. The same messages give the same bytes."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from datetime import UTC, datetime

from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.profiles import ModelProfile

from palaver.agents.model.responses import response_to
from palaver.model.attachment import ID_LENGTH
from palaver.model.errors import NotFound
from palaver.model.prompt_markers import CLOSE, OPEN
from palaver.model.transcript import Role
from palaver.model.value import value
from palaver.model.view import Message

__all__ = [
    "Sight",
    "history",
]

_DESCRIBED = re.compile(
    rf"{OPEN}file ([0-9a-f]{{{ID_LENGTH}}}): [^{OPEN}{CLOSE}]*, ([a-z0-9.+-]+/[a-z0-9.+-]+), [^,{OPEN}{CLOSE}]*{CLOSE}"
)
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DOCUMENTS = frozenset({"application/pdf"})
_SOUNDS = frozenset({"audio/mpeg", "audio/wav"})
_HALF = 4
"""From twice as many files on, the older half is not shown any more: what was said before changes that rarely."""
_LARGEST = 5_000_000


@value(kw_only=False)
class Sight:
    """What a model can see in one turn. Each file is read once."""

    read: Callable[[str], Awaitable[bytes]]
    types: frozenset[str]
    _seen: dict[str, bytes] = field(default_factory=dict[str, bytes])

    @classmethod
    def of(cls, profile: ModelProfile, read: Callable[[str], Awaitable[bytes]]) -> "Sight":
        takes = (
            (_IMAGES, profile.get("supports_image_input", True)),
            (_DOCUMENTS, profile.get("supports_document_input", True)),
            (_SOUNDS, profile.get("supports_audio_file_input", False)),
        )
        return cls(read, frozenset[str]().union(*(types for types, is_taken in takes if is_taken)))

    def without_files(self) -> "Sight":
        return Sight(self.read, frozenset())

    async def files(self, messages: Sequence[Message]) -> dict[int, list[BinaryContent]]:
        """By the place of the message that they came with."""
        found = [
            (place, name, media_type)
            for place, message in enumerate(messages)
            if message.role is Role.USER and OPEN in message.text
            for name, media_type in _DESCRIBED.findall(message.text)
            if media_type in self.types
        ]
        shown: dict[int, list[BinaryContent]] = {}
        for place, name, media_type in found[max(0, (len(found) - 1) // _HALF - 1) * _HALF :]:
            if content := await self._content(name):
                shown.setdefault(place, []).append(BinaryContent(content, media_type=media_type))
        return shown

    async def _content(self, name: str) -> bytes:
        """Nothing, where it is gone or too large."""
        if name not in self._seen:
            try:
                content = await self.read(name)
            except NotFound:
                content = b""
            self._seen[name] = content if len(content) <= _LARGEST else b""
        return self._seen[name]


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
