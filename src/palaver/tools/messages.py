"""Message tools: send a message or a file before the answer is ready, and read a file of the conversation."""

import mimetypes
from collections.abc import Sequence

from palaver.model.attachment import UNKNOWN_TYPE, NewFile, detect_media_type, format_size
from palaver.model.errors import InvalidInput, NotFound
from palaver.model.prompt import SEND_MESSAGE
from palaver.model.target import Origin
from palaver.protocols.tools import Tool, ToolFailed, ToolUse
from palaver.tools.schemas import object_schema, text_schema

_ORIGIN = Origin().text
_TEXT = text_schema("The message.")
_HERE = Tool(
    name="send_here",
    description="Send a message to this chat now, before your answer is ready. Your answer is sent automatically.",
    parameters=object_schema("text", text=_TEXT),
)
_MESSAGE = Tool(
    name=SEND_MESSAGE,
    description="Send a message to another place.",
    parameters=object_schema(
        "to",
        "text",
        to=text_schema(
            "origin, all, <platform> for its home channel, <platform>[@<server>]:<chat>[:<thread>], "
            "or several separated by commas."
        ),
        text=_TEXT,
    ),
    needs_approval=True,
    asks_unless="it sends to this chat",
)


class MessageTools:
    async def tools(self) -> Sequence[Tool]:
        return (_HERE, _MESSAGE)

    async def skips_approval(self, use: ToolUse) -> bool:
        """Skip approval for a message to the same chat, and for an unknown target, which fails anyway."""
        if use.call.name == _HERE.name:
            return False
        try:
            places = await use.context.services.places(str(use.arguments.get("to", "")))
        except (InvalidInput, NotFound):
            return True
        return [place.address for place in places] == [use.context.source.address]

    async def use(self, use: ToolUse) -> str:
        to = _ORIGIN if use.call.name == _HERE.name else use.text("to")
        places = await use.context.services.places(to)
        is_new = await use.context.services.send(places, use.text("text"), once=f"{use.call.id} {use.call.arguments}")
        return "The message is queued." if is_new else "You already sent this in this turn, so it is not sent again."


_PAGE_LENGTH = 20_000
_HEAD_BYTES = 16
_READ = Tool(
    name="read_file",
    description="Read a plain text file of this conversation, a page at a time.",
    parameters=object_schema(
        "file",
        file=text_schema("The id in the file's description."),
        offset={"type": "integer", "minimum": 0, "description": "How many characters to skip."},
    ),
)
_SEND = Tool(
    name="send_file",
    description="Create a plain text file and send it to this chat, or send a file of this conversation again.",
    parameters=object_schema(
        name=text_schema("The name of a new file, for example report.csv."),
        text=text_schema("The content of a new file."),
        file=text_schema("Instead of both: the id in the description of a file."),
    ),
)


class FileTools:
    async def tools(self) -> Sequence[Tool]:
        return (_READ, _SEND)

    async def use(self, use: ToolUse) -> str:
        return await (self._read(use) if use.call.name == _READ.name else self._send(use))

    async def _read(self, use: ToolUse) -> str:
        content = (await use.context.services.read_file(use.text("file"))).content
        text = _decode_text(content)
        if text is None:
            kind = detect_media_type(content[:_HEAD_BYTES], UNKNOWN_TYPE)
            raise ToolFailed(f"The file is not plain text: {kind}, {format_size(len(content))}.")
        offset = use.arguments.get("offset", 0)
        start = max(offset, 0) if isinstance(offset, int) else 0
        end = start + _PAGE_LENGTH
        more = f"\n(Continue at offset {end} of {len(text)} characters.)" if end < len(text) else ""
        return text[start:end] + more

    async def _send(self, use: ToolUse) -> str:
        if use.arguments.get("file"):
            return await send_file(use, await use.context.services.read_file(use.text("file")))
        name, text = use.text("name"), use.text("text")
        kind = mimetypes.guess_type(name)[0] or "text/plain"
        return await send_file(use, NewFile(name, text.encode("utf-8", "replace"), kind))


async def send_file(use: ToolUse, file: NewFile) -> str:
    """Send a file to the chat of the turn, and return what the agent learns."""
    here = await use.context.services.places(_ORIGIN)
    is_new = await use.context.services.send(here, "", (file,), once=f"{use.call.id} {use.call.arguments}")
    return "The file is queued." if is_new else "You already sent this file in this turn, so it is not sent again."


def _decode_text(content: bytes) -> str | None:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text
