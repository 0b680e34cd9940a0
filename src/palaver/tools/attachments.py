"""Files for the agent: those of the conversation to read, and those it makes to send."""

import mimetypes
from collections.abc import Sequence

from palaver.model.attachment import UNKNOWN_TYPE, NewFile, detect_media_type, format_size
from palaver.protocols.tools import Tool, ToolFailed, ToolUse

__all__ = [
    "FileTools",
]

_PAGE = 20_000
_HEAD = 16
_READ = Tool(
    name="read_file",
    description="Read a file of this conversation that holds plain text, a page at a time.",
    parameters={
        "type": "object",
        "properties": {
            "file": {"type": "string", "description": "The id that the file is described with."},
            "offset": {"type": "integer", "minimum": 0, "description": "How many characters to leave out."},
        },
        "required": ["file"],
        "additionalProperties": False,
    },
)
_SEND = Tool(
    name="send_file",
    description="Make a file of plain text and send it to this chat.",
    parameters={
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What the file is called, as report.csv."},
            "text": {"type": "string", "description": "What stands in it."},
        },
        "required": ["name", "text"],
        "additionalProperties": False,
    },
)


class FileTools:
    async def tools(self) -> Sequence[Tool]:
        return (_READ, _SEND)

    async def skips_approval(self, use: ToolUse) -> bool:  # noqa: ARG002
        return False

    async def use(self, use: ToolUse) -> str:
        return await (self._read(use) if use.call.name == _READ.name else self._send(use))

    async def _read(self, use: ToolUse) -> str:
        content = await use.context.services.read_file(use.text("file"))
        text = _plain(content)
        if text is None:
            kind = detect_media_type(content[:_HEAD], UNKNOWN_TYPE)
            raise ToolFailed(f"The file holds no plain text: {kind}, {format_size(len(content))}.")
        given = use.arguments.get("offset", 0)
        start = max(given, 0) if isinstance(given, int) else 0
        end = start + _PAGE
        more = f"\n(The file goes on: offset {end} of {len(text)} characters.)" if end < len(text) else ""
        return text[start:end] + more

    async def _send(self, use: ToolUse) -> str:
        name, text = use.text("name"), use.text("text")
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        file = NewFile(name, text.encode("utf-8", "replace"), kind)
        here = await use.context.services.places("origin")
        once = f"{use.call.id} {use.call.arguments}"
        is_new = await use.context.services.send(here, "", (file,), once=once)
        return "The file is on its way." if is_new else "This file was sent before in this turn; it is not sent again."


def _plain(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
