"""Asking: one request to a model, its answer heard piece by piece."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.tools import ToolDefinition

from palaver.agents.model.lines import Line
from palaver.agents.model.responses import BETWEEN
from palaver.ports.tools import Tool

__all__ = ["Asking", "CutOff", "parameters"]


class CutOff(Exception):
    """The provider ended in the middle of its answer."""


def parameters(prompt: str, tools: Sequence[Tool] = ()) -> ModelRequestParameters:
    """What stands before the conversation: the same from turn to turn, or nothing that follows is known again."""
    return ModelRequestParameters(
        instruction_parts=[InstructionPart(content=prompt)] if prompt else None,
        function_tools=[
            # Never strict: whoever described a tool did not have one provider's rules in mind.
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=dict(tool.parameters), strict=False
            )
            for tool in tools
        ],
    )


def _has_ended(response: ModelResponse) -> bool:
    """Whether the provider said so in its own words; the library takes silence for an end."""
    said = (response.provider_details or {}).get("finish_reason")
    return response.state == "complete" and (said is not None or response.finish_reason == "content_filter")


def _text(event: object) -> str:
    match event:
        case PartStartEvent(part=TextPart(content=text)) | PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
            return text
        case _:
            return ""


@dataclass(kw_only=True)
class Asking:
    line: Line
    parameters: ModelRequestParameters
    response: ModelResponse = field(default_factory=lambda: ModelResponse(parts=[]))
    """What was heard, once all of it was."""

    async def hear(self, messages: list[ModelMessage]) -> AsyncGenerator[str]:
        """The text as it grows. Raises what the provider's library raises, or CutOff."""
        gap = spoken = ""
        async with self.line.model.request_stream(messages, self.line.settings, self.parameters) as stream:
            async for event in stream:
                if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart):
                    gap = BETWEEN if spoken else ""
                if text := _text(event):
                    spoken = gap + text
                    gap = ""
                    yield spoken
            response = stream.get()
        if not _has_ended(response):
            raise CutOff
        self.response = response
