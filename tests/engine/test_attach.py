"""One conversation reached from several places at once."""

from dataclasses import replace
from pathlib import Path

import pytest

from palaver.cli.trace import print_trace
from palaver.model.key import GroupScope, Scope, ScopedSetting, derive_key
from palaver.model.source import Source
from palaver.model.turn import BusyMode, outbound_to
from palaver.store.status.trace import find_traces
from palaver.testkit.faults import SendFault
from palaver.testkit.platform import LoopClock
from tests.engine.agents import Slow
from tests.engine.gateway import OPERATOR, NoPauses, until
from tests.engine.places import between
from tests.store.world import cause

SHARED = ScopedSetting(default=Scope(group=GroupScope.SHARED))


async def test_two_chats_of_one_person_are_one_conversation(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "from the first")
        await two.ask(second, alice, "of my own")
        assert "now continues “Plans”" in await two.ask(second, alice, "/attach Plans")
        assert await two.ask(second, alice, "from the second") == "You said: from the second"
        assert await two.ask(chat, alice, "and again") == "You said: and again"
        plans = await two.session_of("from the first")
        said = [text for text in await two.here.texts(plans) if not text.startswith("You said")]
        assert said[-3:] == ["from the first", "from the second", "and again"]
        assert [message.text for message in chat.shown if "second" in message.text] == []


async def test_after_detaching_nothing_more_arrives_and_the_own_conversation_goes_on(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "theirs")
        await two.ask(second, alice, "mine")
        await two.ask(second, alice, "/attach Plans")
        assert "own conversation" in await two.ask(second, alice, "/detach")
        await two.ask(second, alice, "mine again")
        plans, mine = await two.session_of("theirs"), await two.session_of("mine")
        assert "mine again" in await two.here.texts(mine)
        assert "mine again" not in await two.here.texts(plans)
        assert "not attached" in await two.ask(second, alice, "/detach")


async def test_what_is_written_right_behind_the_command_goes_along(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "theirs")
        for text in ("/attach Plans", "joined", "/detach", "alone"):
            await second.say(alice, text)
        await second.hears("You said: alone")
        assert "joined" in await two.here.texts(await two.session_of("theirs"))
        assert "joined" not in await two.here.texts(await two.session_of("alone"))


async def test_going_back_takes_first_what_was_done_since_and_then_the_attaching(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "theirs")
        await two.ask(second, alice, "/attach Plans")
        await two.ask(second, alice, "/new")
        assert "reset" in await two.ask(second, alice, "/back")
        await two.ask(second, alice, "still together")
        assert "still together" in await two.here.texts(await two.session_of("theirs"))
        assert "attach" in await two.ask(second, alice, "/back")
        await two.ask(second, alice, "alone")
        assert "alone" not in await two.here.texts(await two.session_of("theirs"))
        assert "There is nothing to undo." in await two.ask(second, alice, "/back")


async def test_nobody_attaches_to_what_they_cannot_see(store_url: str) -> None:
    async with between(store_url) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, other = two.fake.dm(alice), two.fake.dm(bob)
        await two.ask(chat, alice, "/new Secret")
        await two.ask(chat, alice, "the canary")
        session = await two.session_of("the canary")
        for name in ("Secret", session, session[:12]):
            assert "There is no conversation" in await two.ask(other, bob, f"/attach {name}")
        await two.ask(other, bob, "hello")
        assert await two.here.rows("SELECT 1 FROM attached_chats") == []
        assert "hello" not in await two.here.texts(session)


async def test_a_private_conversation_is_opened_to_a_group_only_on_purpose(store_url: str) -> None:
    async with between(store_url, scopes=SHARED) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, bob)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "in private")
        told = await two.ask(group, alice, "/attach Plans")
        assert "can read all of it" in told
        assert await two.here.rows("SELECT 1 FROM attached_chats") == []
        told = await two.ask(group, alice, "/attach Plans --yes")
        assert "Everybody here takes part and can read all of it" in told
        await two.ask(group, bob, "hello all")
        assert "hello all" in await two.here.texts(await two.session_of("in private"))
        told = await two.ask(group, bob, "/status")
        assert "several people take part\nthis chat is attached to it" in told
        assert "this place is attached" not in await two.ask(chat, alice, "/status")


async def test_what_others_said_is_opened_to_a_group_only_by_an_admin(store_url: str) -> None:
    async with between(store_url, scopes=SHARED) as two:
        alice, bob, carol = (two.fake.person(name) for name in ("alice", "bob", "carol"))
        first, second = two.fake.group("Dev", alice, bob), two.fake.group("All", alice, carol)
        await two.ask(first, bob, "/new Plans")
        await two.ask(first, bob, "bob's words")
        await two.ask(first, alice, "mine")
        assert "admin role" in await two.ask(second, alice, "/attach Plans --yes")
        assert await two.here.rows("SELECT 1 FROM attached_chats") == []


async def test_an_attached_group_is_not_read_what_else_was_said_at_home(store_url: str) -> None:
    async with between(store_url, scopes=SHARED) as two:
        alice = two.fake.person("alice")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice)
        for text in ("/new Diary", "the canary", "/new Plans", "let us plan"):
            await two.ask(chat, alice, text)
        await two.ask(group, alice, "/attach Plans --yes")
        for command in ("/sessions", "/search canary", "/resume"):
            told = await two.ask(group, alice, command)
            assert "Diary" not in told
            assert "the canary" not in told


async def test_names_appear_once_several_people_speak(store_url: str) -> None:
    agent = Slow()
    agent.go.set()
    async with between(store_url, scopes=SHARED, agent=agent) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, bob)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "in private")
        assert "several people" not in agent.requests[-1].section
        await two.ask(group, alice, "/attach Plans --yes")
        await two.ask(group, bob, "hello all")
        assert "several people" in agent.requests[-1].section
        assert '⟦from "bob"⟧ hello all' in agent.requests[-1].messages[-1].text
        await two.ask(group, alice, "/detach")
        await two.ask(chat, alice, "what did he say")
        assert '⟦from "bob"⟧ hello all' in "".join(message.text for message in agent.requests[-1].messages)


async def test_another_session_taken_up_there_is_not_shown_to_the_attached(store_url: str) -> None:
    async with between(store_url, scopes=SHARED) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, bob)
        await two.ask(chat, alice, "/new Diary")
        await two.ask(chat, alice, "the canary")
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "let us plan")
        await two.ask(group, alice, "/attach Plans --yes")
        await two.ask(chat, alice, "/resume Diary")
        await group.hears("the other chat switched to another conversation")
        await two.ask(group, bob, "hello")
        assert "hello" not in await two.here.texts(await two.session_of("the canary"))
        assert await two.here.rows("SELECT 1 FROM attached_chats") == []


async def test_going_back_to_what_was_before_the_attaching_is_not_shown_to_the_attached(store_url: str) -> None:
    async with between(store_url, scopes=SHARED) as two:
        alice, bob = two.fake.person("alice"), two.fake.person("bob")
        chat, group = two.fake.dm(alice), two.fake.group("Dev", alice, bob)
        await two.ask(chat, alice, "the canary")
        await two.ask(chat, alice, "/new Plans")
        await two.ask(group, alice, "/attach Plans --yes")
        await two.ask(chat, alice, "/back")
        await two.ask(group, bob, "hello")
        assert "hello" not in await two.here.texts(await two.session_of("the canary"))


async def test_one_turn_at_a_time_and_each_answer_where_it_was_asked(store_url: str) -> None:
    agent = Slow()
    async with between(store_url, agent=agent, busy=ScopedSetting(default=BusyMode.COLLECT)) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        for text in ("two", "three"):
            await second.say(alice, text)
        await chat.say(alice, "four")
        await until(lambda: not two.fake.unacknowledged())
        agent.go.set()
        await chat.hears("answer to: four")
        assert agent.most_at_once == 1
        assert [message.text for message in chat.shown[1:]] == ["answer to: one", "answer to: four"]
        assert "two" in second.shown[-1].text
        assert "three" in second.shown[-1].text


async def test_what_is_said_elsewhere_does_not_steer_a_turn(store_url: str) -> None:
    agent = Slow(tool=True)
    async with between(store_url, agent=agent, busy=ScopedSetting(default=BusyMode.STEER)) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        await second.say(alice, "elsewhere")
        await until(lambda: not two.fake.unacknowledged())
        agent.go.set()
        await second.hears("answer to: elsewhere")
        assert agent.meanwhile == []


async def test_a_conversation_is_attached_once_from_two_workers(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "/new Recipes")
        await two.ask(second, alice, "/attach Recipes")
        assert "open in another chat" in await two.ask(second, alice, "/attach Plans")
        assert len(await two.here.rows("SELECT 1 FROM attached_chats")) == 1
        assert "already takes part in “Recipes”" in await two.ask(chat, alice, "/attach Recipes")


async def test_in_an_attached_place_nothing_else_is_taken_up_for_all(store_url: str) -> None:
    async with between(store_url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(second, alice, "/new Diary")
        await two.ask(second, alice, "the canary")
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        assert "/detach first" in await two.ask(second, alice, "/resume Diary")
        await two.ask(chat, alice, "hello")
        assert "hello" not in await two.here.texts(await two.session_of("the canary"))


async def test_what_we_say_in_an_attached_chat_is_known_where_it_is_attached_to(store_url: str) -> None:
    """Output that is delivered to a chat is mirrored once into the conversation that the chat leads to."""
    async with between(store_url, chance=NoPauses()) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        source = Source(platform="fake", account="bot", chat_id=second.id, user_id=alice.id)
        news = replace(outbound_to(source, "the news"), mirror=derive_key(source, Scope()).text)
        store = two.here.store
        two.fake.injector.script.append(SendFault.LOST_AFTER)
        await store.transact(store.outbox.enqueue(news, cause("news"), LoopClock().now()))
        await second.hears("the news", times=2)
        await two.here.settled()
        await two.ask(chat, alice, "what news")
        texts = await two.here.texts(await two.session_of("what news"))
        assert len([text for text in texts if text.startswith("the news")]) == 1


async def test_the_trace_of_a_message_says_where_it_went_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/p.db"
    async with between(url) as two:
        alice = two.fake.person("alice")
        chat, second = two.fake.dm(alice), two.fake.dm(alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(second, alice, "/attach Plans")
        await two.ask(second, alice, "hello")
        numbers = await two.here.rows("SELECT max(no) FROM inbox")
        trace = (await two.here.store.read(find_traces(f"in:{numbers[0][0]}", OPERATOR)))[0]
    assert trace.messages[0].place == f"agent:main:fake:dm:{second.id}:account:bot"
    print_trace(trace, LoopClock().now(), content=False)
    assert f"its chat agent:main:fake:dm:{second.id}:account:bot is attached to it" in _unwrapped(capsys)


def _unwrapped(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


async def test_a_conversation_is_taken_up_from_another_platform_and_answers_go_there(store_url: str) -> None:
    async with between(store_url) as two:
        alice, also_alice = two.fake.person("alice"), two.other.person("alice")
        chat, second = two.fake.dm(alice), two.other.dm(also_alice)
        await two.ask(chat, alice, "/new Plans")
        await two.ask(chat, alice, "from here")
        store, now = two.here.store, LoopClock().now()
        await store.transact(store.links.link(f"fake:{alice.id}", f"other:{also_alice.id}", now, by="operator"))
        assert "Resumed “Plans”" in await two.ask(second, also_alice, "/resume Plans")
        assert await two.ask(second, also_alice, "from there") == "You said: from there"
        session = await two.session_of("from here")
        assert "from there" in await two.here.texts(session)
        rows = await two.here.rows(
            "SELECT r.address FROM routes r JOIN sessions s ON s.no = r.session_no WHERE s.id = ?", session
        )
        assert any('"other"' in address for (address,) in rows)
        assert len(chat.shown) == 2
