"""History: a conversation's view as messages for a provider. The same view gives the same bytes."""

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

from palaver.agents.model.responses import to_response
from palaver.model.attachment import ID_LENGTH
from palaver.model.errors import NotFound
from palaver.model.label import CLOSE, OPEN
from palaver.model.transcript import Role
from palaver.model.value import value
from palaver.model.view import Message

_FILE_MARKER = re.compile(
    rf"{OPEN}file ([0-9a-f]{{{ID_LENGTH}}}): [^{OPEN}{CLOSE}]*, ([a-z0-9.+-]+/[a-z0-9.+-]+), [^,{OPEN}{CLOSE}]*{CLOSE}"
)
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_DOCUMENTS = frozenset({"application/pdf"})
_AUDIO = frozenset({"audio/mpeg", "audio/wav"})
_FILE_BATCH = 4
"""From two batches of files on, the older batch is hidden, so that earlier messages change rarely."""
_MAX_FILE_BYTES = 5_000_000


@value(kw_only=False)
class FileView:
    """The files that a model can see in one turn. Each is read once."""

    read: Callable[[str], Awaitable[bytes]]
    types: frozenset[str]
    _contents: dict[str, bytes] = field(default_factory=dict[str, bytes])

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

    async def load(self, messages: Sequence[Message]) -> dict[int, list[BinaryContent]]:
        """Return the files to show, by the index of their message."""
        found = [
            (index, name, media_type)
            for index, message in enumerate(messages)
            if message.role is Role.USER and OPEN in message.text
            for name, media_type in _FILE_MARKER.findall(message.text)
            if media_type in self.types
        ]
        shown: dict[int, list[BinaryContent]] = {}
        for index, name, media_type in found[max(0, (len(found) - 1) // _FILE_BATCH - 1) * _FILE_BATCH :]:
            if content := await self._content(name):
                shown.setdefault(index, []).append(BinaryContent(content, media_type=media_type))
        return shown

    async def _content(self, name: str) -> bytes:
        """Return the content; empty if the file is gone or too large."""
        if name not in self._contents:
            try:
                content = await self.read(name)
            except NotFound:
                content = b""
            self._contents[name] = content if len(content) <= _MAX_FILE_BYTES else b""
        return self._contents[name]


_NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)
"""Providers do not see when something was said."""


def history(messages: Sequence[Message], files: Mapping[int, list[BinaryContent]], model: str) -> list[ModelMessage]:
    """Convert a view without open calls. Everything between two answers becomes one request."""
    converted: list[ModelMessage] = []
    parts: list[ModelRequestPart] = []
    tools: dict[str, str] = {}
    for index, message in enumerate(messages):
        if message.role is Role.ASSISTANT:
            converted += [ModelRequest(parts=parts)] if parts else []
            converted.append(to_response(message, model))
            tools.update({call.id: call.name for call in message.calls})
            parts = []
        elif message.role is Role.TOOL:
            name = tools.get(message.answers, "unknown_tool")
            parts.append(ToolReturnPart(name, message.text, message.answers, timestamp=_NO_TIME))
        else:
            attached = files.get(index)
            content = [message.text, *attached] if attached else message.text
            parts.append(UserPromptPart(content, timestamp=_NO_TIME))
    return [*converted, ModelRequest(parts=parts)] if parts else converted
