"""Chats that are gone, home channels, and output that a conversation is to know of."""

from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.model.key import Scope, derive_key
from palaver.model.platform import Platform
from palaver.model.source import Source
from palaver.model.tools import ApprovalMode, ToolRules
from palaver.model.turn import Outbound
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.faults import SendFault
from palaver.testkit.platform import FakePlatform
from palaver.tools.messages import MessageTools
from palaver.tools.toolsets import Toolsets
from tests.engine.agents import Slow
from tests.engine.gateway import Bench, MovableClock, NoPauses, running
from tests.engine.test_tools import use
from tests.store.world import cause


async def set_home(here: Bench, chat: Chat, clock: MovableClock) -> None:
    home = Source(platform="fake", account="bot", chat_id=chat.id, user_id="owner")
    await here.store.transact(here.store.accounts.set_home("main", home, clock.now(), by="owner"))


async def gone(here: Bench) -> int:
    return len(await here.rows("SELECT chat FROM gone_chats"))


async def test_a_chat_that_is_gone_is_remembered_and_told_to_the_owner_once(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock, acknowledges=False) as here:
        alice, owner = here.world.person("alice"), here.world.person("owner")
        chat, home = here.world.dm(alice), here.world.dm(owner)
        await set_home(here, home, clock)
        chat.gone = True
        for text in ("one", "two", "three"):
            await chat.say(alice, text)
            await here.settled()
        await home.hears(f"fake:{chat.id}")
        assert len(home.shown) == 1
        assert await gone(here) == 1
        states = await here.rows("SELECT state FROM outbox WHERE id > 0")
        assert [row[0] for row in states] == ["dead"] * 3


async def test_without_a_home_the_owner_learns_where_they_wrote_last_and_home_is_mentioned_once(
    store_url: str,
) -> None:
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", user_id="p1", role=AccessRole.OWNER),
    )
    async with running(store_url, grants=grants, acknowledges=False) as here:
        owner, alice, bob = (here.world.person(name) for name in ("owner", "alice", "bob"))
        window = here.world.dm(owner)
        await window.say(owner, "hello")
        await window.hears("You said: hello")
        await here.settled()
        assert not any("home" in message.text for message in window.shown)  # no lecture before or after an answer
        for person in (alice, bob):
            chat = here.world.dm(person)
            chat.gone = True
            await chat.say(person, "one")
            await window.hears(f"fake:{chat.id} can no longer be delivered")
        await here.settled()
        assert len([message for message in window.shown if "/sethome" in message.text]) == 1


async def test_a_chat_that_is_back_is_reported_again_when_it_goes_again(store_url: str) -> None:
    clock = MovableClock()
    async with running(store_url, clock=clock) as here:
        alice, owner = here.world.person("alice"), here.world.person("owner")
        chat, home = here.world.dm(alice), here.world.dm(owner)
        await set_home(here, home, clock)
        here.world.injector.script.append(SendFault.GONE)
        await chat.say(alice, "one")
        await home.hears("gone")
        await chat.say(alice, "two")
        await chat.hears("You said: two")
        await here.settled()
        assert await gone(here) == 0
        here.world.injector.script.append(SendFault.GONE)
        await chat.say(alice, "three")
        await home.hears("gone", times=2)


async def test_an_owner_who_only_gives_commands_learns_that_the_home_is_gone(store_url: str) -> None:
    clock, grants = MovableClock(), (Grant(platform="fake", user_id="p1", role=AccessRole.OWNER),)
    async with running(store_url, clock=clock, grants=grants) as here:
        owner = here.world.person("owner")
        chat, home = here.world.dm(owner), here.world.group("home", owner)
        await set_home(here, home, clock)
        await chat.say(owner, "/whoami")
        await here.settled()
        home.gone = True
        notice = Outbound(platform="fake", account="bot", chat_id=home.id, text="news")
        await here.store.transact(here.store.outbox.enqueue(notice, cause("n"), clock.now()))
        await chat.hears(f"fake:{home.id} can no longer be delivered")


async def test_a_home_that_is_gone_itself_is_not_told(tmp_path: Path) -> None:
    clock = MovableClock()
    async with running(tmp_path / "p.db", clock=clock) as here:
        owner = here.world.person("owner")
        home = here.world.dm(owner)
        await set_home(here, home, clock)
        here.world.injector.script.append(SendFault.GONE)
        await home.say(owner, "hello")
        await here.settled()
        assert home.shown == []


async def test_when_the_only_home_is_gone_the_owner_learns_where_they_can_read_it(store_url: str) -> None:
    """Not where a program reads, and in a window only if there is no other chat."""
    grants = (
        Grant(role=AccessRole.MEMBER),
        *(Grant(platform=name, user_id="p1", role=AccessRole.OWNER) for name in ("fake", "window", "program")),
    )
    world, clock = FakePlatform(), MovableClock()
    window = FakeAdapter(world, account="w", platform=Platform(name="window", title="Window", place="window"))
    program = FakeAdapter(world, account="p", platform=Platform(name="program", title="Program", for_people=False))
    adapters = [FakeAdapter(world), window, program]
    async with running(store_url, world, clock=clock, grants=grants, adapters=adapters, acknowledges=False) as here:
        owner, alice = world.person("owner"), world.person("alice")
        chat, own, other = (world.dm(owner, account=name) for name in ("bot", "w", "p"))
        home = world.group("home", alice)
        await set_home(here, home, clock)
        home.gone = True
        unserved = Source(platform="window", account="removed", chat_id="1", user_id="owner")
        await here.store.transact(here.store.accounts.set_home("main", unserved, clock.now(), by="owner"))
        for place in (chat, own, other):
            await place.say(owner, "hello")
            await here.settled()
        await home.say(alice, "anybody?")
        await chat.hears(f"fake:{home.id} can no longer be delivered")
        assert not any("/sethome" in message.text for message in chat.shown), "there is a home channel"
        await here.settled()
        here.world.injector.script.append(SendFault.GONE)
        await chat.say(owner, "hello?")
        await own.hears(f"fake:{chat.id} can no longer be delivered")
        assert len(other.shown) == 1


async def test_a_notice_that_is_refused_goes_on_to_the_next_place_and_once_to_each(tmp_path: Path) -> None:
    grants = (
        Grant(role=AccessRole.MEMBER),
        *(Grant(platform=name, user_id="p1", role=AccessRole.OWNER) for name in ("fake", "window")),
    )
    world, clock = FakePlatform(), MovableClock()
    window = FakeAdapter(world, account="w", platform=Platform(name="window", title="Window", place="window"))
    adapters = [FakeAdapter(world), window]
    async with running(tmp_path / "p.db", world, clock=clock, grants=grants, adapters=adapters) as here:
        owner, alice = world.person("owner"), world.person("alice")
        home, chat, own = world.group("home", alice), world.dm(owner), world.dm(owner, account="w")
        await set_home(here, home, clock)
        for place in (own, chat):
            await place.say(owner, "/whoami")
        await here.settled()
        heard = [len(place.shown) for place in (home, chat, own)]
        for refusing in range(4):
            # The answer is refused twice, with and without the reference; then its notice, in the first places.
            world.injector.script.extend([SendFault.REFUSED] * (2 + refusing))
            await world.dm(alice).say(alice, "hello")
            await here.settled()
            clock.later(hours=1)
            assert not world.injector.script
        news = [len(place.shown) - before for place, before in zip((home, chat, own), heard, strict=True)]
        assert news == [1, 1, 1], "each is told once, by the first place that takes it; in the end there is none"
        assert "did not take my message" in chat.shown[-1].text
        assert (await here.rows("SELECT count(*) FROM outbox WHERE state = 'dead'")) == [(4 + 1 + 2 + 3,)]


async def test_the_agent_knows_the_home_channel(tmp_path: Path) -> None:
    agent, clock = Slow(), MovableClock()
    agent.go.set()
    toolsets, owner = Toolsets({}).toolsets, (Grant(role=AccessRole.OWNER),)
    async with running(tmp_path / "p.db", agent=agent, clock=clock, toolsets=toolsets, grants=owner) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        await set_home(here, chat, clock)
        await chat.say(alice, "again")
        await chat.hears("again")
        assert ["Home channel of" in request.section for request in agent.requests] == [False, True]


def news_for(chat: Chat, user: str) -> Outbound:
    source = Source(platform="fake", account="bot", chat_id=chat.id, user_id=user)
    key = derive_key(source, Scope()).text
    return Outbound(platform="fake", account="bot", chat_id=chat.id, text="the news", mirror=key)


async def test_the_agent_knows_what_was_said_in_its_chat_by_others_of_ours(store_url: str) -> None:
    agent, clock, world = Slow(), MovableClock(), FakePlatform()
    agent.go.set()
    async with running(store_url, world, agent=agent, clock=clock, chance=NoPauses()) as here:
        alice = world.person("alice")
        chat = world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("hello")
        await here.settled()
        world.injector.script.append(SendFault.BUSY)
        news = news_for(chat, alice.id)
        await here.store.transact(here.store.outbox.enqueue(news, cause("news"), clock.now()))
        await chat.hears("the news")
        await chat.say(alice, "tell me more")
        await chat.hears("tell me more")
        assert [message.text for message in agent.requests[1].messages].count("answer to: hello\n\nthe news") == 1


async def test_an_agent_that_is_answered_elsewhere_knows_what_it_asked_there(store_url: str) -> None:
    """In a direct chat, and in a group where everybody has a conversation of their own."""
    asks = ToolRules(allowed={"send_message": ApprovalMode.ALWAYS})
    owner, world = (Grant(role=AccessRole.OWNER),), FakePlatform()
    async with running(store_url, world, toolsets=lambda _: (MessageTools(),), tools=asks, grants=owner) as here:
        alice, bob, carl = (world.person(name) for name in ("alice", "bob", "carl"))
        mine, his, group, other = (
            world.dm(alice),
            world.dm(bob),
            world.group("Dev", bob, carl),
            world.group("Else", bob),
        )
        for person, chat in ((bob, his), (bob, group), (carl, group), (bob, other)):
            await chat.say(person, "hello")
        await here.settled()
        for chat in (his, group, mine):
            await mine.say(alice, use("send_message", to=f"fake:{chat.id}", text="Is 8 o'clock all right?"))
            await chat.hears("Is 8 o'clock all right?")
        await here.settled()
        await his.say(bob, "yes, 8 o'clock")
        await his.hears("yes, 8 o'clock")
        sessions = await here.rows("SELECT id FROM sessions ORDER BY no")
        texts = [[entry.text for entry in await here.entries(row[0])] for row in sessions]
        assert [each.count("Is 8 o'clock all right?") for each in texts] == [1, 1, 1, 0, 0]
        assert texts[0][-3:] == ["Is 8 o'clock all right?", "yes, 8 o'clock", "You said: yes, 8 o'clock"]


async def test_where_no_conversation_is_open_there_is_nothing_to_know(tmp_path: Path) -> None:
    clock, world = MovableClock(), FakePlatform()
    async with running(tmp_path / "p.db", world, clock=clock) as here:
        chat = world.dm(world.person("alice"))
        news = news_for(chat, "p1")
        await here.store.transact(here.store.outbox.enqueue(news, cause("news"), clock.now()))
        await chat.hears("the news")
        await here.settled()
        assert await here.rows("SELECT 1 FROM sessions") == []
