"""Each profile is answered by its own agent, and nobody hears of one profile in another."""

from pathlib import Path

from palaver.engine.options import Agents
from palaver.model.key import ProfileRule
from palaver.model.source import Source
from palaver.testkit.platform import FakePlatform
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, options, running
from tests.store.world import NOON


def ready() -> Slow:
    agent = Slow()
    agent.go.set()
    return agent


async def test_the_agent_of_the_profile_answers(tmp_path: Path) -> None:
    world, usual, other = FakePlatform(), ready(), ready()
    alice = world.person("alice")
    home, work = world.dm(alice), world.dm(world.person("bob"))
    rule = ProfileRule(profile="work", platform="fake", chat_id=work.id)
    quiet = ProfileRule(profile="quiet", platform="fake", chat_id=home.id)
    async with running(tmp_path / "p.db", world, agent=Agents(usual, {"work": other}), profiles=(rule, quiet)) as here:
        for chat, text in ((home, "a walk"), (work, "a report")):
            await chat.say(chat.people[0], text)
            await chat.hears("answer to")
        assert [len(agent.requests) for agent in (usual, other)] == [1, 1]
        assert "a report" in other.requests[0].messages[-1].text
        rows = await here.rows("SELECT profile FROM sessions ORDER BY no")
        assert [row[0] for row in rows] == ["quiet", "work"]


async def test_a_home_channel_belongs_to_its_profile(tmp_path: Path) -> None:
    world, usual, other = FakePlatform(), ready(), ready()
    alice = world.person("alice")
    home, work = world.dm(alice), world.dm(world.person("bob"))
    rule = ProfileRule(profile="work", platform="fake", chat_id=work.id)

    async def heard(here: Bench) -> list[bool]:
        await home.say(alice, "hello")
        await home.hears("hello")
        await work.say(work.people[0], "hello")
        await work.hears("hello")
        await here.settled()
        return ["Home channel of" in agent.requests[-1].section for agent in (usual, other)]

    async with running(tmp_path / "p.db", world, agent=Agents(usual, {"work": other}), profiles=(rule,)) as here:
        source = Source(platform="fake", account="bot", chat_id=work.id)
        await here.store.transact(here.store.accounts.set_home("work", source, NOON, by="bob"))
        assert await heard(here) == [False, True]


async def test_another_agent_answers_after_a_reload(tmp_path: Path) -> None:
    before, after = ready(), ready()
    async with running(tmp_path / "p.db", agent=before) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("one")
        here.engine.reload(options(), Agents(after))
        await chat.say(alice, "two")
        await chat.hears("two")
        assert [len(agent.requests) for agent in (before, after)] == [1, 1]
