"""In a group the agent answers whoever speaks to it, overhears what it may, and keeps nothing else."""

from palaver.domain.attention import Answers, Attention
from palaver.domain.layers import Chat, Layers
from palaver.domain.platform import Platform
from palaver.domain.source import GROUP
from palaver.platforms.kit.adapter import FakeAdapter
from palaver.platforms.kit.world import BOT, World
from tests.engine.agents import Slow, noted
from tests.engine.gateway import Bench, running

MENTIONING = Platform(name="fake", title="Fake platform", has_threads=True, has_mentions=True)


async def inbox(here: Bench) -> int:
    return (await here.rows("SELECT count(*) FROM inbox"))[0][0]


def adapter(world: World) -> FakeAdapter:
    return FakeAdapter(world, platform=MENTIONING)


async def test_in_a_group_only_who_addresses_the_agent_is_answered(store_url: str) -> None:
    world = World()
    calls = Layers(default=Attention(wake_words=frozenset({"computer"})))
    async with running(store_url, world, adapters=[adapter(world)], attention=calls) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        for chatter in ("hello all", "/nonsense", "/status@other_bot", "computers are nice"):
            await group.say(alice, chatter)
        await here.settled()
        assert (group.shown, await inbox(here)) == ([], 0)
        await group.say(alice, "first", mentions=(BOT,))
        answer = await group.hears("first")
        await group.say(alice, "second", reply_to=answer.id)
        await group.hears("second")
        await group.say(alice, "Computer, third")
        await group.hears("third")
        await group.say(alice, "/status")
        await group.hears("idle")
        await group.say(alice, "between us", reply_to="1")
        await here.settled()
        assert await inbox(here) == 4
        chat = world.dm(alice)
        await chat.say(alice, "in private")
        await chat.hears("in private")


async def test_a_chat_may_be_free_and_a_kind_observed(store_url: str) -> None:
    world, agent = World(), Slow()
    agent.go.set()
    alice = world.person("alice")
    free, quiet = world.group("free", alice), world.group("quiet", alice)
    attention = Layers(
        default=Attention(),
        chats={Chat("fake", free.id): Attention(answers=Answers.EVERYTHING)},
        kinds={GROUP: Attention(observes=True)},
    )
    async with running(store_url, world, agent=agent, adapters=[adapter(world)], attention=attention) as here:
        await free.say(alice, "anybody")
        await free.hears("anybody")
        await quiet.say(alice, "between us")
        await here.settled()
        assert quiet.shown == []
        await quiet.say(alice, "what was it", mentions=(BOT,))
        await quiet.hears("what was it")
        assert "between us" in noted(agent.requests[-1])


async def test_what_strangers_say_to_others_is_not_kept(store_url: str) -> None:
    world = World()
    hears = Layers(default=Attention(observes=True))
    async with running(store_url, world, adapters=[adapter(world)], attention=hears, grants=()) as here:
        alice = world.person("alice")
        group = world.group("friends", alice)
        await group.say(alice, "xylophone")
        await here.settled()
        rows = await here.rows("SELECT state, body FROM inbox")
        assert [state for state, _ in rows] == ["refused"]
        assert b"xylophone" not in rows[0][1]
