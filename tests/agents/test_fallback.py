"""Models in order: the next one answers while the first fails, without doing anything twice, and the way back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from palaver.agents.fallback import FallbackAgent
from palaver.agents.model.agent import ModelFailed
from palaver.agents.model.options import ModelOptions, make_model_agent
from palaver.config.loader import load
from palaver.engine.turns.agent import model_name
from palaver.gateway.agents import build_agent
from palaver.model.access import AccessRole, Grant
from palaver.model.source import Source
from palaver.model.transcript import Role
from palaver.model.turn import Outbound
from palaver.model.view import Message
from palaver.protocols.agent import Excerpt, Failure, Final
from palaver.protocols.tools import Tool, ToolUse
from palaver.store.status.problems import list_problems
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.agents.fake_provider import Call, Provider, Refuses, Says, Step, providing
from tests.agents.model_helpers import KEY, events, request
from tests.engine.gateway import NoPauses, running, until

DOWN = Refuses(status=500)


@dataclass
class Two:
    """A preferred model and another one, each with a provider of its own."""

    agent: FallbackAgent
    first: Provider
    second: Provider
    now: float = 1_000.0

    async def ask(self, turn: int = 1) -> list[str]:
        """Ask as the gateway does; return who failed, and the answer."""
        said: list[str] = []
        while True:
            *_, last = await events(self.agent, request(turn=turn))
            if isinstance(last, Failure):
                said.append(f"{last.model} {last.kind}")
                if last.instead:
                    continue
            elif isinstance(last, Final):
                said.append(last.text)
            return said


@asynccontextmanager
async def two(*script: Step, windows: tuple[int | None, int | None] = (None, None)) -> AsyncGenerator[Two]:
    async with AsyncExitStack() as stack:
        first, second = [await stack.enter_async_context(providing(*each)) for each in (script, ())]
        options = [
            ModelOptions(model=f"openai:{name}", key=key, base_url=provider.openai, context_window=window)
            for name, key, provider, window in zip(
                ("first", "second"), (KEY, "other"), (first, second), windows, strict=True
            )
        ]
        agent = make_model_agent(replace(options[0], fallback=(options[1],)))
        assert isinstance(agent, FallbackAgent)
        both = Two(agent, first, second)
        agent.clock = lambda: both.now
        yield both
        await agent.close()


@pytest.mark.parametrize(
    ("step", "kind", "rests"),
    [
        (Refuses(status=429, code="rate_limit_exceeded"), "rate_limited", 60),
        (Refuses(status=429, code="rate_limit_exceeded", headers={"retry-after": "900"}), "rate_limited", 900),
        (Refuses(status=429, code="rate_limit_exceeded", headers={"retry-after": "86400"}), "rate_limited", 3600),
        (Refuses(status=429, code="insufficient_quota"), "no_credit", 600),
        (Refuses(status=401, code="invalid_api_key"), "unauthorized", 600),
        (Refuses(status=404, code="model_not_found"), "unknown_model", 600),
    ],
)
async def test_the_next_model_answers_and_the_first_rests(step: Step, kind: str, rests: int) -> None:
    async with two(step) as both:
        assert await both.ask() == [f"openai:first {kind}", "answer 1"]
        assert both.second.keys == ["Bearer other"]
        both.now += rests - 1
        assert await both.ask(turn=2) == ["answer 2"]
        assert both.agent.is_falling_back()
        assert model_name(both.agent, None) == "openai:second"
        assert len(both.first.requests) == 1, "it rests"
        both.now += 1
        assert await both.ask(turn=3) == ["answer 2"], "the first is asked again, and answers"
        assert len(both.second.requests) == 2
        assert not both.agent.is_falling_back()
        assert model_name(both.agent, None) == "openai:first"


async def test_one_hiccup_is_no_outage_but_two_are() -> None:
    async with two(DOWN, DOWN) as both:
        for turn in (1, 2):
            assert (await both.ask(turn))[0] == "openai:first transient"
        await both.ask(3)
        assert len(both.first.requests) == 2
        both.now += 30
        assert await both.ask(4) == ["answer 3"]


async def test_other_failures_are_no_reason_to_ask_another() -> None:
    async with two(Refuses(status=400, message="what is this"), Says(stop="content_filter")) as both:
        assert await both.ask() == ["openai:first rejected"]
        assert await both.ask() == ["openai:first rejected"]
        assert not both.second.requests


async def test_a_conversation_that_is_too_long_goes_to_a_larger_model_only() -> None:
    too_long = Refuses(status=400, code="context_length_exceeded")
    async with two(too_long, windows=(1_000, 8_000)) as both:
        assert await both.ask() == ["openai:first overflow", "answer 1"]
        assert await both.ask(turn=2) == ["answer 2"], "the first does not rest"
    for other in (1_000, 8_000):
        async with two(too_long, windows=(8_000, other)) as both:
            assert await both.ask() == ["openai:first overflow"]
            assert await both.ask() == ["answer 2"], "after it was summarised, the first is asked again"


async def test_a_model_in_between_that_is_no_larger_is_not_asked() -> None:
    too_long = Refuses(status=400, code="context_length_exceeded")
    async with AsyncExitStack() as stack:
        providers = [await stack.enter_async_context(providing(*each)) for each in ((too_long,), (too_long,), ())]
        options = [
            ModelOptions(model=f"openai:{window}", key=KEY, base_url=each.openai, context_window=window)
            for each, window in zip(providers, (4_000, 1_000, 8_000), strict=True)
        ]
        agent = make_model_agent(replace(options[0], fallback=tuple(options[1:])))
        *_, last = await events(agent, request(turn=1))
        assert isinstance(last, Failure)
        assert (last.model, last.instead) == ("openai:4000", "openai:8000")
        *_, last = await events(agent, request(turn=1))
        assert isinstance(last, Final)
        assert [len(each.requests) for each in providers] == [1, 0, 1]
        assert isinstance(agent, FallbackAgent)
        await agent.close()


async def test_when_all_fail_each_is_asked_once() -> None:
    async with two(DOWN) as both:
        both.second.then(Refuses(status=401, message=f"Incorrect API key provided: {KEY} other"))
        assert await both.ask() == ["openai:first transient", "openai:second unauthorized"]
        assert await both.ask() == ["answer 2"]


async def test_the_notice_names_the_model_that_failed_last(tmp_path: Path) -> None:
    world = FakePlatform()
    ann = world.person("ann")
    grant, chat = Grant(platform="fake", role=AccessRole.OWNER, user_id=ann.id), world.dm(ann)
    async with (
        two(Refuses(status=401, code="invalid_api_key")) as both,
        running(tmp_path / "p.db", world, agent=both.agent, grants=(grant,), chance=NoPauses(), titles=False),
    ):
        both.second.then(Refuses(status=404, code="model_not_found"))
        await chat.say(ann, "hello")
        await chat.hears("The provider does not have openai:second")


async def test_an_owner_with_one_chat_learns_there_that_another_model_answers(tmp_path: Path) -> None:
    world, grants = FakePlatform(), (Grant(role=AccessRole.OWNER),)
    chat = world.dm(ann := world.person("ann"))
    async with (
        two(Refuses(status=401, code="invalid_api_key")) as both,
        running(tmp_path / "p.db", world, agent=both.agent, grants=grants, titles=False),
    ):
        both.second.then(Says(text="from the second"))
        await chat.say(ann, "hello")
        await chat.hears("from the second")
        told = await chat.hears("openai:first rejects the key.")
        assert "Until then openai:second answers instead." in told.text


async def test_a_terminal_names_the_model_that_answers(tmp_path: Path) -> None:
    """Only in this turn: after one hiccup, the next one asks the first again."""
    world, go, named = FakePlatform(), asyncio.Event(), list[str | None]()
    chat = world.dm(ann := world.person("ann"))
    source = Source(platform="fake", account="bot", chat_id=chat.id, user_id=ann.id)

    class Terminal(FakeAdapter):
        async def typing(self, outbound: Outbound) -> None:  # noqa: ARG002 - the same for every adapter
            named.append(await here.engine.model_of(source))

    async with (
        two(DOWN) as both,
        running(tmp_path / "p.db", world, adapters=[Terminal(world)], agent=both.agent, titles=False) as here,
    ):
        both.second.then(Says(text="from the second", waits_for=go))
        await chat.say(ann, "hello")
        await until(lambda: named[-1:] == ["openai:second"])
        go.set()
        await chat.hears("from the second")
        await here.settled()
        assert await here.engine.model_of(source) == "openai:first"


async def test_titles_and_summaries_come_from_the_next_model_too() -> None:
    passage = Excerpt(session="s", messages=(Message(Role.USER, "hi"),))
    async with two(DOWN, DOWN, DOWN) as both:
        assert (await both.agent.title(passage)).text == "answer 1"
        assert (await both.agent.summarise(passage)).text == "answer 2"
        both.second.then(DOWN)
        with pytest.raises(ModelFailed):
            await both.agent.title(passage)


class Looking:
    """A toolset that counts."""

    def __init__(self) -> None:
        self.used = 0

    async def tools(self) -> list[Tool]:
        return [Tool(name="look", description="", parameters={"type": "object", "properties": {}})]

    async def use(self, use: ToolUse) -> str:  # noqa: ARG002
        self.used += 1
        return "it rains"


async def test_a_gateway_goes_on_with_what_was_done_and_tells_the_owner_once(store_url: str) -> None:
    world, looking = FakePlatform(), Looking()
    owner, ann = world.person("owner"), world.person("ann")
    grants = (
        Grant(platform="fake", role=AccessRole.OWNER, user_id=owner.id),
        Grant(platform="fake", role=AccessRole.OWNER, user_id=ann.id),
    )
    home, chat = world.dm(owner), world.dm(ann)
    key = Refuses(status=401, code="invalid_api_key")
    async with (
        two(Says(text="first"), Says(text="Let me see.", calls=(Call("look"),)), key, key) as both,
        running(
            store_url,
            world,
            agent=both.agent,
            grants=grants,
            toolsets=lambda _: [looking],
            chance=NoPauses(),
            titles=False,
        ) as here,
    ):
        await home.say(owner, "/sethome")
        await home.hears("home")
        await chat.say(ann, "hello")
        await chat.hears("first")
        await chat.say(ann, "weather?")
        await chat.hears("answer 1")
        await here.settled()
        assert looking.used == 1
        assert [each["role"] for each in both.second.requests[0]["messages"]][-2:] == ["assistant", "tool"]
        told = await home.hears("openai:first rejects the key.")
        assert "Until then openai:second answers instead." in told.text
        ((model,),) = await here.rows("SELECT model FROM turns WHERE no = 2")
        assert model == "openai:second"
        assert len(await here.store.read(list_problems(told.at))) == 1
        await chat.say(ann, "and tomorrow?")
        await chat.hears("answer 2")
        both.now += 600
        await chat.say(ann, "and then?")
        await chat.hears("answer 3")
        await here.settled()
        assert len([message for message in home.shown if "rejects the key" in message.text]) == 1
        both.now += 600
        await chat.say(ann, "finally?")
        await chat.hears("answer 5")
        await here.settled()
        assert await here.store.read(list_problems(told.at)) == [], "the first answers again"


def test_the_configuration_names_models_with_or_without_their_own_key(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text(
        """
agent:
  name: model
  model: openai:gpt-5
  key: mine
  temperature: 0.3
  fallback:
    - openai:gpt-5-mini
    - {model: "anthropic:claude-haiku-5", key: theirs}
    - {model: "openai:local", base_url: "http://127.0.0.1:9/v1", context_window: 4000}
"""
    )
    config = load(tmp_path, {"PALAVER_CONFIG": "own.yaml"})
    assert "theirs" not in repr(config)
    facts = config.agent.facts()["fallback"]
    keys = [(each["model"], each["key"], each["base_url"], each["temperature"]) for each in facts]
    assert keys == [
        ("openai:gpt-5-mini", "mine", None, 0.3),
        ("anthropic:claude-haiku-5", "theirs", None, 0.3),
        ("openai:local", None, "http://127.0.0.1:9/v1", 0.3),
    ]
    assert isinstance(build_agent(config.agent), FallbackAgent)
