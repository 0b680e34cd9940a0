"""The voice tool: answer with a voice message when somebody asks for one."""

from collections.abc import Sequence

from palaver.protocols.tools import Tool, ToolUse
from palaver.tools.schemas import object_schema, text_schema

_SAY = Tool(
    name="send_voice",
    summary="Send a voice message to this chat.",
    description="Say something to this chat in a voice message, if a person asks to hear it.",
    parameters=object_schema("text", text=text_schema("The words to say, without formatting.")),
    for_jobs=False,
)


class VoiceTools:
    async def tools(self) -> Sequence[Tool]:
        return (_SAY,)

    async def use(self, use: ToolUse) -> str:
        is_new = await use.context.services.say(use.text("text"), once=f"{use.call.id} {use.call.arguments}")
        return (
            "The voice message is queued." if is_new else "You already sent this in this turn, so it is not sent again."
        )
