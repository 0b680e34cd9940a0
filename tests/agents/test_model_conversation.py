"""Whole conversations with a model: through the engine, the store and a real client library."""

import json
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.options import ModelOptions
from palaver.engine import texts
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.session import ModelOverride
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode
from palaver.protocols.agent import Event, Excerpt, GeneratedText, Request
from palaver.store.status.invariants import violations
from palaver.testkit.platform import BOT, FakePlatform
from tests.agents.fake_provider import Call, Provider, Refuses, Says, providing
from tests.agents.model_helpers import KEY, MODEL, Box
from tests.engine.gateway import Bench, NoPauses, running

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))
SKY = Says(
    thinking="The sky is up.", signature="c2lnbmVk+/==", text="Let me look.", calls=(Call("look", '{"at":"sky"}'),)
)


@dataclass
class Equipped:
    """A model agent with tools of its own."""

    agent: ModelAgent
    box: Box = field(default_factory=Box)

    def answer(self, request: Request) -> AsyncGenerator[Event]:
        return self.agent.answer(replace(request, toolbox=self.box))

    def context_window(self, override: ModelOverride | None) -> int | None:
        return self.agent.context_window(override)

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        return await self.agent.summarise(passage)


@asynccontextmanager
async def gateway(
    url: str | Path,
    provider: Provider,
    world: FakePlatform,
    box: Box | None = None,
    model: str = MODEL,
    **changed: object,
) -> AsyncGenerator[Bench]:
    """A new process each time, as far as anybody can see: nothing is kept but the store."""
    address = provider.openai if model == MODEL else provider.url
    agent = ModelAgent.of(ModelOptions(model=model, key=KEY, base_url=address))
    usual = {"titles": False, "scopes": SHARED, "chance": NoPauses()}
    try:
        async with running(url, world, agent=Equipped(agent, box or Box()), **usual, **changed) as here:  # pyright: ignore[reportArgumentType]
            yield here
            await here.settled()
            assert await here.store.read(violations()) == []
    finally:
        await agent.close()


def told(body: bytes) -> tuple[bytes, bytes]:
    """The conversation in a request, byte for byte, and all that is beside it."""
    sent = json.loads(body)
    conversation = json.dumps(sent.pop("messages"), ensure_ascii=False, separators=(",", ":")).encode()
    assert conversation in body
    return conversation, json.dumps(sent).encode()


async def test_what_was_sent_once_is_sent_again_in_the_same_bytes(tmp_path: Path) -> None:
    world = FakePlatform()
    people = [world.person(name) for name in ("alice", "bob", "carol")]
    chat = world.group("garden", *people)
    async with providing() as provider:
        for turn in range(30):
            if turn % 3 == 0:
                provider.then(
                    # The same id again and again, two calls at once, arguments in a form of their own.
                    Says(text="Let me see. ", calls=(Call("look", '{ "at": "ü" }', "0"), Call("look", "{}", "1"))),
                    Says(calls=(Call("look", "not json", "bad.id"),)),
                )
            provider.then(Says(text=f"\nanswer number {turn} ✓"))
        for start in range(0, 30, 6):
            async with gateway(tmp_path / "p.db", provider, world) as here:
                for turn in range(start, start + 6):
                    await chat.say(people[turn % 3], f"question {turn}", mentions=(BOT,))
                    await chat.hears(f"answer number {turn} ✓")
                await here.settled()
    assert len(provider.bodies) == 50
    requests = [told(body) for body in provider.bodies]
    assert len({beside for _, beside in requests}) == 1
    for (before, _), (after, _) in pairwise(requests):
        assert after.startswith(before.removesuffix(b"]"))


async def test_what_is_said_to_a_running_turn_is_shown_then_as_it_is_later(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, bob = world.person("alice"), world.person("bob")
    chat = world.group("garden", alice, bob)

    async def interrupted(_call: ToolCall) -> str:
        await chat.say(bob, "and quickly", mentions=(BOT,))
        await chat.hears("joins this answer")
        return "seen"

    steer = ScopedSetting(default=BusyMode.STEER)
    steps = (Says(calls=(Call("look"),)), Says(text="Done."))
    box, place = Box(does=interrupted), tmp_path / "p.db"
    async with providing(*steps) as provider, gateway(place, provider, world, box, busy=steer) as here:
        await chat.say(alice, "look", mentions=(BOT,))
        await chat.hears("Done.")
        await here.settled()
        await chat.say(alice, "thanks", mentions=(BOT,))
        await chat.hears("answer 3")
    assert provider.requests[1]["messages"][-1]["content"].endswith('"bob"⟧ and quickly')
    requests = [told(body)[0] for body in provider.bodies]
    for before, after in pairwise(requests):
        assert after.startswith(before.removesuffix(b"]"))


async def test_reasoning_survives_the_store_and_a_restart_byte_for_byte(store_url: str) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with providing(SKY, Says(thinking="So it is.", signature="YWdhaW4=", text="Blue.")) as provider:
        model = "anthropic:claude-scripted"
        async with gateway(store_url, provider, world, model=model) as here:
            await chat.say(alice, "look up")
            await chat.hears("Blue.")
            await here.settled()
        async with gateway(store_url, provider, world, model=model):
            await chat.say(alice, "why?")
            await chat.hears("answer 3")
    first = provider.requests[2]["messages"][1]["content"]
    assert first[0] == {"type": "thinking", "thinking": "The sky is up.", "signature": "c2lnbmVk+/=="}
    assert [block["type"] for block in first] == ["thinking", "text", "tool_use"]
    assert provider.requests[2]["messages"][3]["content"][0]["signature"] == "YWdhaW4="


@pytest.mark.parametrize(("command", "result"), [("/approve", "send {}"), ("/deny", "A person did not approve this.")])
async def test_a_tool_waits_for_a_person_also_through_a_restart(store_url: str, command: str, result: str) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with providing(
        Says(calls=(Call("send", id="a"), Call("look", id="b"))), Says(text="It is done.")
    ) as provider:
        async with gateway(store_url, provider, world) as here:
            await chat.say(alice, "send it")
            await chat.hears("May I use send?")
            await here.settled()
        async with gateway(store_url, provider, world) as here:
            await chat.say(alice, command)
            await chat.hears("It is done.")
            await here.settled()
    results = provider.requests[1]["messages"][-2:]
    assert [(each["tool_call_id"], each["content"]) for each in results] == [("a", result), ("b", "look {}")]


async def test_what_may_pass_is_tried_again_and_nothing_of_it_is_seen(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    busy = Refuses(status=429, message="slow down", headers={"retry-after": "0"})
    steps = (busy, Says(text="Once upon", cut_after=2), Says(text="Here I am."))
    async with providing(*steps) as provider, gateway(tmp_path / "p.db", provider, world) as here:
        await chat.say(alice, "hello")
        await chat.hears("Here I am.")
        await here.settled()
        assert (await here.texts())[-2:] == ["hello", "Here I am."]
    assert len(provider.requests) == 3


async def test_what_will_not_pass_is_reported_in_our_own_words(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    refusal = Refuses(status=401, message=f"Incorrect API key provided: {KEY}. Pay me.")
    async with providing(refusal) as provider, gateway(tmp_path / "p.db", provider, world) as here:
        await chat.say(alice, "hello")
        await chat.hears(texts.UNAVAILABLE)
        await here.settled()
        ((detail,),) = await here.rows("SELECT error FROM turns")
        assert "401" in str(detail)
        assert KEY not in str(detail)
        await chat.say(alice, "again")
        await chat.hears("answer 2")
    assert not any("Pay me" in message.text for message in chat.messages)
    assert KEY not in caplog.text
    assert "Pay me" not in caplog.text


async def test_a_conversation_that_is_too_long_is_summarised_by_the_model(tmp_path: Path) -> None:
    world = FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with providing() as provider, gateway(tmp_path / "p.db", provider, world) as here:
        for number in range(4):
            await chat.say(alice, f"question {number} " + "of many words " * 20)
            await chat.hears(f"answer {number + 1}")
        provider.then(
            Refuses(status=400, code="context_length_exceeded"), Says(text="They asked."), Says(text="Short now.")
        )
        await chat.say(alice, "and now?")
        await chat.hears("Short now.")
        await here.settled()
    shown = provider.requests[-1]["messages"]
    assert "They asked." in shown[1]["content"]
    assert "question 0" not in json.dumps(shown)
