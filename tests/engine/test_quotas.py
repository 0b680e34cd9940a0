"""A message over a cap is kept and answered with one sentence; the agent is not asked."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.engine import texts
from palaver.engine.turns import quotas
from palaver.model.access import AccessRole, Grant
from palaver.model.quotas import UNLIMITED, Quota, QuotaKind, QuotaRules
from palaver.model.transcript import Role
from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Final, Request, UsageReport
from tests.engine.agents import Condensing, Scripted, heard, noted
from tests.engine.gateway import Bench, MovableClock, running, until


async def _answer(request: Request) -> AsyncGenerator[Event]:
    yield UsageReport(usage=Usage(model="m", input_tokens=60, output_tokens=40, cost_micros=500_000))
    yield Final(text=f"answer to: {heard(request)}")


def _caps(**measures: Quota) -> QuotaRules:
    return QuotaRules(caps={QuotaKind(name): cap for name, cap in measures.items()})


async def test_over_the_cap_of_a_day_one_sentence_and_the_next_day_an_answer(store_url: str) -> None:
    clock, agent = MovableClock(), Scripted(_answer)
    async with running(store_url, agent=agent, clock=clock, caps=_caps(person_day=Quota(tokens=150))) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, his = here.world.dm(alice), here.world.dm(bob)
        for number in ("one", "two", "three"):
            await chat.say(alice, number)
            await here.settled()
        await chat.hears("You have reached your daily limit (200 of 150 tokens). Your message is kept")
        await chat.hears("Try again from 00:00 on")
        assert [message.text for message in chat.shown][:2] == ["answer to: one", "answer to: two"]
        assert len(chat.shown) == 3
        assert len(agent.requests) == 2
        await his.say(bob, "me too")
        await his.hears("answer to: me too")
        answers = [entry for entry in await here.entries() if entry.role is Role.ASSISTANT]
        assert [(entry.tokens, entry.cost_micros) for entry in answers] == [(40, 500_000)]
        assert await here.rows("SELECT count(*) FROM inbox WHERE state NOT IN ('in-turn', 'done')") == [(0,)]
        assert await here.rows("SELECT error FROM turns WHERE state = 'failed'") == [
            ("over the limit person_day: 200 of 150 tokens used",)
        ]
        clock.later(days=1)
        await chat.say(alice, "four")
        await chat.hears("answer to: three\n\nfour")
        assert texts.CAPPED_NOTE in noted(agent.requests[-1])


async def test_a_conversation_over_its_cap_goes_on_in_a_new_one(tmp_path: Path) -> None:
    async with running(
        tmp_path / "p.db", agent=Scripted(_answer), caps=_caps(session=Quota(cost_micros=500_000))
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await chat.say(alice, "two")
        await chat.hears("the limit for one conversation (0.50 of 0.50)")
        await chat.say(alice, "/new")
        await chat.say(alice, "three")
        await chat.hears("answer to: three")


async def test_the_cap_of_everybody_tells_nothing_of_others(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_answer), caps=_caps(day=Quota(tokens=100))) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, his = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await his.say(bob, "two")
        await his.hears("for everybody together. Your message is kept")
        assert not any("100" in message.text for message in his.shown)


async def test_roles_have_caps_of_their_own(tmp_path: Path) -> None:
    rules = QuotaRules(
        caps={QuotaKind.PERSON_DAY: Quota(tokens=0)}, roles={AccessRole.OWNER: {QuotaKind.PERSON_DAY: UNLIMITED}}
    )
    grants = (Grant(platform="fake"), Grant(platform="fake", user_id="p1", role=AccessRole.OWNER))
    async with running(tmp_path / "p.db", agent=Scripted(_answer), caps=rules, grants=grants) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, his = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await his.say(bob, "two")
        await his.hears("The owner of this gateway has set your daily limit to zero. Your message is kept")
        assert not any("Try again" in message.text for message in his.shown)
        await his.say(bob, "/usage")
        await his.hears("You today: 0 turns")


async def test_commands_and_what_is_only_overheard_are_not_capped(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_answer), caps=_caps(person_day=Quota(tokens=0))) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "/new Plans")
        await chat.hears("Its title is “Plans”")


async def test_nothing_is_summarised_over_a_cap(tmp_path: Path) -> None:
    agent = Condensing()
    agent.go.set()
    async with running(tmp_path / "p.db", agent=agent, caps=_caps(person_day=Quota(tokens=8)), message_limit=8) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for topic in ("one", "two", "three", "four"):
            await chat.say(alice, f"{topic} {'and so on ' * 20}")
            await chat.hears(f"answer to: {topic}")
        await here.settled()
        assert await here.rows("SELECT count(*) FROM turns WHERE error LIKE 'a usage limit is reached%'") == [(1,)]
        await chat.say(alice, "/compress")
        await chat.hears("Nothing was summarised: a usage limit is reached")
        assert not agent.passages


async def test_with_caps_use_is_summed_up_as_turns_begin(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quotas, "UNSUMMED_TURNS", 2)
    async with running(store_url, agent=Scripted(_answer), caps=_caps(person_day=Quota(tokens=200))) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for number in ("one", "two"):
            await chat.say(alice, number)
            await chat.hears(f"answer to: {number}")
        await chat.say(alice, "three")
        await chat.hears("You have reached your daily limit (200 of 200 tokens)")
        assert await _is_summed_up(here)


async def test_without_caps_use_is_summed_up_now_and_then(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_answer), sweep_every=timedelta(seconds=0.02)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await until(lambda: _is_summed_up(here))


async def _is_summed_up(here: Bench) -> bool:
    return bool(await here.rows("SELECT 1 FROM usage WHERE input_tokens > 0"))


async def test_a_money_cap_stops_at_usage_of_unknown_price(store_url: str) -> None:
    async def unpriced(request: Request) -> AsyncGenerator[Event]:
        yield UsageReport(Usage(model="m", input_tokens=60, output_tokens=40, cached_tokens=50, unpriced_tokens=100))
        yield Final(text=f"answer to: {heard(request)}")

    async with running(
        store_url, agent=Scripted(unpriced), caps=_caps(person_day=Quota(cost_micros=5_000_000))
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("answer to: one")
        await chat.say(alice, "two")
        await chat.hears("I cannot check your daily limit: it limits money, and the price of the model is unknown.")
        await chat.say(alice, "/usage")
        await chat.hears("60 tokens in, 40 out (50 from the cache), at an unknown cost.")
        assert await here.rows("SELECT max(cached_tokens), max(unpriced_tokens) FROM turns") == [(50, 100)]
        assert await here.rows("SELECT cached_tokens, unpriced_tokens, cost_micros FROM sessions") == [(50, 100, 0)]
        assert [(entry.tokens, entry.cost_micros) for entry in await here.entries() if entry.tokens] == [(40, None)]
        await here.store.transact(here.store.usage.sum_all_ended_turns())
        assert await here.rows("SELECT cached_tokens, unpriced_tokens FROM usage WHERE model = 'm'") == [(50, 100)]
