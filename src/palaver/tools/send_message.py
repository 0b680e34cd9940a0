"""Message tools: send a message before the answer is ready, here or to another target."""

from collections.abc import Sequence

from palaver.model.errors import InvalidInput
from palaver.model.target import Origin
from palaver.protocols.tools import Tool, ToolUse

_ORIGIN = Origin().text
_TEXT = {"type": "string", "description": "The message."}
_HERE = Tool(
    name="send_here",
    description="Send a message to this chat now, before your answer is ready. Your answer is sent automatically.",
    parameters={"type": "object", "properties": {"text": _TEXT}, "required": ["text"], "additionalProperties": False},
)
_MESSAGE = Tool(
    name="send_message",
    description="Send a message to another place. A person must approve it first.",
    parameters={
        "type": "object",
        "properties": {
            "to": {
                "type": "string",
                "description": "origin, all, <platform> for its home channel, <platform>:<chat>[:<thread>], "
                "or several separated by commas.",
            },
            "text": _TEXT,
        },
        "required": ["to", "text"],
        "additionalProperties": False,
    },
    needs_approval=True,
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
        except InvalidInput:
            return True
        return [place.address for place in places] == [use.context.source.address]

    async def use(self, use: ToolUse) -> str:
        to = _ORIGIN if use.call.name == _HERE.name else use.text("to")
        places = await use.context.services.places(to)
        is_new = await use.context.services.send(places, use.text("text"), once=f"{use.call.id} {use.call.arguments}")
        return "The message is queued." if is_new else "You already sent this in this turn, so it is not sent again."
