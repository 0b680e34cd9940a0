"""An agent made with the official library of the Agent Client Protocol, for tests. It remembers in a file, if named."""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

from acp import run_agent
from acp.exceptions import RequestError
from acp.helpers import (
    embedded_text_resource,
    image_block,
    resource_block,
    resource_link_block,
    start_tool_call,
    text_block,
    tool_content,
    update_agent_message,
    update_agent_message_text,
    update_agent_thought_text,
    update_tool_call,
)
from acp.schema import (
    AgentCapabilities,
    Cost,
    InitializeResponse,
    LoadSessionResponse,
    NewSessionResponse,
    PermissionOption,
    PromptResponse,
    ToolCallUpdate,
    Usage,
    UsageUpdate,
)

MEMORY = Path(sys.argv[1]) if len(sys.argv) > 1 else None


class Remembering:
    def __init__(self) -> None:
        self.said: dict[str, list[str]] = json.loads(MEMORY.read_text()) if MEMORY and MEMORY.exists() else {}
        self.client: Any = None
        self.cancelled = asyncio.Event()

    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(self, protocol_version: int, **_: Any) -> InitializeResponse:
        can = AgentCapabilities(load_session=MEMORY is not None)
        return InitializeResponse(protocol_version=protocol_version, agent_capabilities=can)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:  # noqa: ARG002
        name = f"session-{len(self.said) + 1}"
        self.said[name] = []
        return NewSessionResponse(session_id=name)

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> LoadSessionResponse:  # noqa: ARG002
        if session_id not in self.said:
            raise RequestError.resource_not_found(session_id)
        for text in self.said[session_id]:
            await self.client.session_update(session_id, update_agent_message_text(f"replayed {text}"))
        return LoadSessionResponse()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> PromptResponse:
        text = "\n".join(block.text for block in prompt)
        self.said[session_id].append(text)
        if MEMORY:
            MEMORY.write_text(json.dumps(self.said))
        last = text.splitlines()[-1]
        if early := await self.end_early(session_id, last):
            return early
        if last.endswith("both"):
            names = ["b.txt", "a.txt"]
            for name in names:
                await self.start(session_id, name, "in_progress")
            await asyncio.gather(*(self.finish(session_id, name) for name in reversed(names)))
        elif "delete" in last or "restarted" in last:
            await self.say(session_id, "First I tidy up.")
            await self.start(session_id, "a.txt", "pending")
            await self.finish(session_id, "a.txt")
        else:
            await self.client.session_update(session_id, update_agent_thought_text("hm"))
            await self.say(session_id, f"heard {len(self.said[session_id])}: ", text)
        return PromptResponse(stop_reason="end_turn")

    async def end_early(self, session_id: str, last: str) -> PromptResponse | None:
        if last.endswith("crash"):
            sys.exit(3)
        if last.endswith("at length"):
            await self.say(session_id, "It begins")
            return PromptResponse(stop_reason="max_tokens")
        if last.endswith("hang"):
            self.cancelled.clear()
            await self.say(session_id, "waiting")
            await self.cancelled.wait()
            return PromptResponse(stop_reason="cancelled")
        if last.endswith("breaks") and len(self.said[session_id]) == 1:
            await self.start(session_id, "a.txt", "completed")
            raise RequestError.internal_error()
        if last.endswith("draw"):
            return await self.draw(session_id)
        return None

    async def draw(self, session: str) -> PromptResponse:
        """Say more than text, and report what it used: the tokens of the prompt, and the cost of the whole session."""
        await self.say(session, "Here:")
        for block in (
            image_block(base64.b64encode(b"pixels").decode(), "image/png"),
            resource_link_block("the plan", "https://example.org/a (b)", title="The [plan]"),
            resource_link_block("notes.md", "file:///notes.md"),
            resource_block(embedded_text_resource("file:///tables/my%20table.csv", "a,b", mime_type="text/csv")),
            image_block("no base64", "image/png"),
        ):
            await self.client.session_update(session, update_agent_message(block))
        await self.say(session, "That is all.")
        cost = Cost(amount=0.25 * len(self.said[session]), currency="USD")
        spent = UsageUpdate(session_update="usage_update", used=53_000, size=200_000, cost=cost)
        await self.client.session_update(session, spent)
        used = Usage(input_tokens=10, cached_read_tokens=30, output_tokens=5, thought_tokens=2, total_tokens=45)
        return PromptResponse(stop_reason="end_turn", usage=used)

    async def start(self, session: str, name: str, status: Any) -> None:
        call, given = self.call(session, name), {"path": name}
        started = start_tool_call(call, f"Delete {name}", kind="delete", status=status, raw_input=given)
        await self.client.session_update(session, started)

    def call(self, session: str, name: str) -> str:
        return f"call/{len(self.said[session])}{name[0]}"

    async def finish(self, session: str, name: str) -> None:
        call = self.call(session, name)
        options = [
            PermissionOption(option_id="yes", name="Allow", kind="allow_once"),
            PermissionOption(option_id="no", name="Reject", kind="reject_once"),
        ]
        asked = ToolCallUpdate(tool_call_id=call)
        answer = await self.client.request_permission(session_id=session, tool_call=asked, options=options)
        chosen = getattr(answer.outcome, "option_id", "nobody")
        content = [tool_content(text_block(f"{name} deleted: {chosen}"))]
        await self.client.session_update(session, update_tool_call(call, status="completed", content=content))
        await self.say(session, f"The answer was {chosen}.")

    async def say(self, session: str, *texts: str) -> None:
        for text in texts:
            await self.client.session_update(session, update_agent_message_text(text))

    async def cancel(self, session_id: str, **_: Any) -> None:  # noqa: ARG002
        self.cancelled.set()


if __name__ == "__main__":
    agent: Any = Remembering()
    asyncio.run(run_agent(agent))
