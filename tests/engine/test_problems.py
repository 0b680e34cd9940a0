"""What does not work is a current problem with a cause and a fix: the owner learns it, strangers do not."""

import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from datetime import timedelta
from functools import partial

import pytest

from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.problem import Problem, ProblemArea, is_agent_problem
from palaver.model.session import ModelOverride
from palaver.protocols.adapter import PlatformDown, PlatformRefused, Receiver
from palaver.protocols.agent import Event, Failure, FailureKind, Final, Request
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from tests.engine.agents import Scripted, heard
from tests.engine.gateway import Bench, MovableClock, NoPauses, running, until

WORDS = "401: the key sk-12345 is wrong"
KINDS = (
    FailureKind.UNAUTHORIZED,
    FailureKind.NO_CREDIT,
    FailureKind.UNKNOWN_MODEL,
    FailureKind.UNREACHABLE,
    FailureKind.RATE_LIMITED,
    FailureKind.TRANSIENT,
    FailureKind.FATAL,
)


class _Failing(Scripted):
    """Fails with the kind that the message names."""

    def models(self) -> list[ModelOverride]:
        return [ModelOverride(provider="openai", model="small")]


async def _as_asked(request: Request) -> AsyncGenerator[Event]:
    words = heard(request).splitlines()[-1]
    with suppress(ValueError):
        yield Failure(kind=FailureKind(words), detail=WORDS)
        return
    yield Final(text=f"ok {words}")


def _grants(owner: Person) -> tuple[Grant, ...]:
    return (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", user_id=owner.id, role=AccessRole.OWNER),
    )


async def _problems(here: Bench) -> list[Problem]:
    return await here.store.read(here.store.problems.list_problems(MovableClock().now()))


async def test_the_owner_reads_cause_and_fix_and_strangers_the_safe_sentence(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world = FakePlatform()
    boss, guest = world.person("boss"), world.person("guest")
    agent = _Failing(_as_asked)
    async with running(store_url, world, agent=agent, grants=_grants(boss), chance=NoPauses(), agent_tries=1) as here:
        mine, theirs = world.dm(boss), world.dm(guest)
        for kind in KINDS:
            await mine.say(boss, kind)
            await here.settled()
            (problem,) = await _problems(here)
            shown = mine.shown[-1].text
            assert shown.startswith("I could not answer. ")
            assert (problem.area, problem.kind, problem.subject) == (ProblemArea.AGENT, kind, "main")
            assert "openai:small" in problem.cause
            assert problem.text in shown
            assert f"palaver trace turn:{problem.turn} shows" in shown
            assert problem.detail == WORDS
            assert "sk-12345" not in shown
            await theirs.say(guest, kind)
            await here.settled()
            assert theirs.shown[-1].text in {texts.UNAVAILABLE, texts.RATE_LIMITED, texts.SORRY}
        assert {kind for kind in FailureKind if is_agent_problem(kind)} == set(KINDS)
        await mine.say(boss, "hello")
        await mine.hears("ok hello")
        await here.settled()
        assert await _problems(here) == []
    actions = [record.__dict__.get("action") for record in caplog.records]
    assert actions.count("agent.problem") == 2 * len(KINDS)
    assert actions.count("agent.recovered") == 1
    assert "sk-12345" not in caplog.text


async def test_a_problem_of_others_reaches_the_owner_once_and_keeps_when_it_began(store_url: str) -> None:
    world, clock = FakePlatform(), MovableClock()
    boss, guest = world.person("boss"), world.person("guest")
    agent = _Failing(_as_asked)
    async with running(store_url, world, agent=agent, grants=_grants(boss), clock=clock) as here:
        home, theirs, group = world.dm(boss), world.dm(guest), world.group("Sailing", boss, guest)
        await home.say(boss, "/sethome")
        await home.hears("home channel")
        for _ in range(2):
            await theirs.say(guest, FailureKind.UNAUTHORIZED)
            await here.settled()
            clock.later(minutes=3)
        # Others read along in a group, so even the owner gets the safe sentence there.
        await group.say(boss, FailureKind.UNAUTHORIZED)
        await here.settled()
        (problem,) = await _problems(here)
        assert problem.last - problem.since >= timedelta(minutes=6)
        told = [message.text for message in home.shown if "rejects the key" in message.text]
        assert [text.partition(" palaver trace")[0] for text in told] == [problem.text]
        assert {message.text for chat in (theirs, group) for message in chat.shown} == {texts.UNAVAILABLE}


async def test_a_restarted_gateway_ends_the_problem_with_its_first_answer(store_url: str) -> None:
    world = FakePlatform()
    boss = world.person("boss")
    chat = world.dm(boss)
    for words, count in ((FailureKind.NO_CREDIT, 1), ("hello", 0)):
        agent = _Failing(_as_asked)
        async with running(store_url, world, agent=agent, grants=_grants(boss), lease=timedelta(seconds=0.3)) as here:
            assert (await _problems(here) == []) is (count == 1)
            await here.settled()
            await chat.say(boss, words)
            await chat.hears("ok hello" if count == 0 else "no credit")
            await until(partial(_is_known, here, count))
            await here.settled()  # what it was still sending would be unclear for half a minute


async def _is_known(here: Bench, count: int) -> bool:
    return len(await _problems(here)) == count


class _Dropped(FakeAdapter):
    error: Exception = PlatformRefused("The token is wrong. Set platforms.fake.accounts.other.token")
    tries = 0

    async def run(self, receiver: Receiver) -> None:
        self.tries += 1
        if self.error:
            raise self.error
        await super().run(receiver)


async def test_an_account_that_is_refused_or_stays_away_is_a_problem_until_it_is_back(store_url: str) -> None:
    world, clock = FakePlatform(), MovableClock()
    boss = world.person("boss")
    dropped = _Dropped(world, "other")
    adapters = [FakeAdapter(world), dropped]
    async with running(
        store_url, world, adapters=adapters, grants=_grants(boss), clock=clock, chance=NoPauses()
    ) as here:
        home = world.dm(boss)
        await home.say(boss, "/sethome")
        await home.hears("fake:other is not connected: The token is wrong.")
        (problem,) = await here.store.read(here.store.problems.list_problems(clock.now()))
        assert (problem.area, problem.subject, problem.kind) == (ProblemArea.ACCOUNT, "fake:other", "refused")
        dropped.error = PlatformDown("no answer")
        dropped.tries = 0
        await until(lambda: dropped.tries > 1)
        await here.settled()
        assert [message.text for message in home.shown if "no answer" in message.text] == []
        clock.later(minutes=6)
        dropped.error = None  # pyright: ignore[reportAttributeAccessIssue]
        await until(lambda: here.engine.health["fake:other"].connected_since is not None)
        await until(partial(_is_known, here, 0))


async def test_an_account_that_is_down_is_reported_after_a_while_and_once(store_url: str) -> None:
    world, clock = FakePlatform(), MovableClock()
    boss = world.person("boss")
    dropped = _Dropped(world, "other")
    dropped.error = PlatformDown("no answer")
    adapters = [FakeAdapter(world), dropped]
    async with running(
        store_url, world, adapters=adapters, grants=_grants(boss), clock=clock, chance=NoPauses()
    ) as here:
        home = world.dm(boss)
        await home.say(boss, "/sethome")
        await home.hears("home channel")
        await until(lambda: dropped.tries > 1)
        await here.settled()
        assert not any("no answer" in message.text for message in home.shown)
        clock.later(minutes=6)
        await home.hears("fake:other is not connected: no answer. Palaver keeps trying.")
        tries = dropped.tries
        await until(lambda: dropped.tries > tries + 2)
        await here.settled()
        assert sum("no answer" in message.text for message in home.shown) == 1
