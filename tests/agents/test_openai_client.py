"""The client that sends a conversation past OpenAI's walk over it."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai import AsyncOpenAI, BadRequestError

from palaver.agents.model.openai_client import DirectOpenAI
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Final
from tests.agents.fake_provider import Refuses, Says, providing
from tests.agents.model_helpers import Box, asked, events, request

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,AAAA", "detail": "auto"}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"é": {"enum": [None]}}}}
CALL = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


async def test_it_sends_the_same_bytes_as_the_client_itself() -> None:
    said = [{"role": "user", "content": [PICTURE]}, {"role": "assistant", "tool_calls": [CALL]}]
    chat: dict[str, Any] = {"model": "m", "messages": said, "tools": [TOOL], "extra_body": {"more": 1}}
    refused = [Refuses(status=400)] * 6
    async with providing(*refused) as provider:
        for kind in (AsyncOpenAI, DirectOpenAI):
            async with kind(api_key="sk-test", base_url=provider.openai, max_retries=0) as client:
                copy = client.with_options(timeout=60)
                for create, body in (
                    (client.chat.completions.create, chat),
                    (copy.chat.completions.create, {"model": "m", "messages": said}),
                    (client.responses.create, {"model": "m", "input": said, "tools": [TOOL], "store": False}),
                ):
                    with pytest.raises(BadRequestError):
                        await cast("Any", create)(**body)
    assert provider.bodies[:3] == provider.bodies[3:]
    assert PICTURE in provider.requests[0]["messages"][0]["content"]


def test_no_field_of_a_conversation_has_another_name_or_form_on_the_wire() -> None:
    """Else the walk would change something."""
    types = Path(openai.__file__).with_name("types")
    files = [file for folder in ("chat", "responses", "shared_params") for file in (types / folder).glob("*_param*.py")]
    assert len(files) > 50
    assert [file.name for file in files if re.search(r"PropertyInfo\([^)]*(alias|format)", file.read_text())] == []


@pytest.mark.parametrize("model", ["openai:scripted", "openai-responses:scripted"])
async def test_no_message_of_the_model_agent_is_walked(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[object] = []
    library, name = import_module("openai._utils._transform"), "_async_transform_typeddict"
    walk = getattr(library, name)

    async def walk_and_note(data: Any, expected: Any) -> Any:
        walked.append(data)
        return await walk(data, expected)

    monkeypatch.setattr(library, name, walk_and_note)
    call = ToolCall("c", "look", "{}")
    before = Message(Role.USER, "look"), Message(Role.ASSISTANT, "", (call,)), Message(Role.TOOL, "a cloud", (), "c")
    step = Says(text="yes") if model == "openai:scripted" else Refuses(status=400, message="stop here")
    async with asked(step, model=model) as (agent, provider):
        happened = await events(agent, request("and now?", *before, toolbox=Box()))
    assert isinstance(happened[-1], Final) == (model == "openai:scripted")
    assert walked
    assert not [each for each in walked if "role" in cast("dict[str, object]", each)]
    assert "a cloud" in str(provider.requests[0])
