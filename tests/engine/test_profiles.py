"""Each profile is answered by its own agent, and nobody hears of one profile in another."""

from pathlib import Path

from palaver.engine.settings import Agents
from palaver.model.access import AccessRole, Grant
from palaver.model.key import ProfileRule
from palaver.model.source import Source
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.tools.toolsets import Toolsets
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, running, settings, until
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

    async with running(
        tmp_path / "p.db",
        world,
        agent=Agents(usual, {"work": other}),
        profiles=(rule,),
        toolsets=Toolsets({}).toolsets,
        grants=(Grant(role=AccessRole.OWNER),),
    ) as here:
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
        here.engine.reload(settings(), Agents(after))
        await chat.say(alice, "two")
        await chat.hears("two")
        assert [len(agent.requests) for agent in (before, after)] == [1, 1]


async def test_only_the_owner_reaches_into_another_profile(tmp_path: Path) -> None:
    """As docs/profiles.md says."""
    world = FakePlatform()
    alice, bob, carol = (world.person(name) for name in ("alice", "bob", "carol"))
    home, work = world.dm(alice), world.dm(alice, account="second")
    rule = ProfileRule(profile="work", platform="fake", account="second")
    grants = tuple(
        Grant(platform="fake", user_id=person.id, role=role)
        for person, role in ((alice, AccessRole.OWNER), (bob, AccessRole.MEMBER), (carol, AccessRole.ADMIN))
    )
    adapters = [FakeAdapter(world), FakeAdapter(world, "second")]
    async with running(tmp_path / "p.db", world, adapters=adapters, profiles=(rule,), grants=grants) as here:

        async def ask(chat: Chat, text: str) -> str:
            said = await chat.say(chat.people[0], text)
            await until(lambda: any(each.reply_to == said.id for each in chat.shown))
            return next(each.text for each in chat.shown if each.reply_to == said.id)

        await ask(home, "/new Mine")
        await ask(world.dm(bob), "/new His")
        assert "no " in await ask(work, "/resume Mine")
        for refused in (world.dm(carol), world.dm(bob)):
            assert "owner" in await ask(refused, "/resume Mine --all")
        assert "Resumed “Mine”" in await ask(work, "/resume Mine --all")
        profile = "SELECT profile FROM sessions WHERE title = 'Mine'"
        assert await here.rows(profile) == [("work",)]
        await ask(work, "/back")
        assert await here.rows(profile) == [("main",)]
        assert "a branch of “His”" in await ask(work, "/resume His --all")
        uses = await here.rows("SELECT actor FROM access_log WHERE kind = 'read-all'")
        assert [row[0] for row in uses] == [f"fake:{alice.id}"] * 2
