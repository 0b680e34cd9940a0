"""A turn that asks permission waits for a person, and for nobody else; it goes on or ends as that person says."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.domain.access import AccessRole, Grant
from palaver.domain.transcript import ToolCall
from palaver.engine import words
from palaver.platforms.kit.world import World
from palaver.ports.agent import ApprovalNeeded, Event, Final, Request
from palaver.stores.invariants import violations
from tests.engine.agents import Scripted, heard, noted
from tests.engine.gateway import Bench, running

SLOW = timedelta(minutes=5)


async def states(here: Bench) -> list[str]:
    return [row[0] for row in await here.rows("SELECT state FROM turns ORDER BY no")]


@pytest.mark.parametrize(("command", "told"), [("/approve", "it"), ("/deny", "not allowed")])
async def test_what_a_person_says_is_done_at_once(store_url: str, command: str, told: str) -> None:
    # Nothing but the command itself wakes the turn.
    async with running(store_url, lease=SLOW, poll=SLOW) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!approve it")
        await chat.hears("/approve allows it, /deny does not.")
        await chat.say(alice, "/status")
        await chat.hears("waiting for permission")
        await chat.say(alice, command)
        await chat.hears("You said: it")
        await here.settled()
        assert await states(here) == ["done"]
        assert told in await here.texts()
        assert not any("restarted" in text for text in await here.texts())
        assert await here.store.read(violations()) == []


async def test_a_turn_may_ask_again_and_again(tmp_path: Path) -> None:
    async def asks_thrice(request: Request) -> AsyncGenerator[Event]:
        asked = len(request.approvals)
        if asked < 3:
            yield ApprovalNeeded(call=ToolCall(id=f"c{asked}", name="look"), question=f"May I, {asked}?")
        else:
            yield Final(text=f"thank you for {request.approvals}")

    async with running(tmp_path / "p.db", agent=Scripted(asks_thrice), attempts=1) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        for number in range(3):
            await chat.hears(f"May I, {number}?")
            await chat.say(alice, "/deny" if number == 1 else "/approve")
        await chat.hears("thank you for {'c0': True, 'c1': False, 'c2': True}")


async def test_a_question_outlives_the_gateway(store_url: str) -> None:
    world = World()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(store_url, world):
        await chat.say(alice, "!approve it")
        await chat.hears("May I")
    async with running(store_url, world, worker="w2"):
        await chat.say(alice, "/approve")
        await chat.hears("You said: it")


@pytest.mark.parametrize("command", ["/stop", "/new"])
async def test_nobody_has_to_answer(store_url: str, command: str) -> None:
    async def asks(request: Request) -> AsyncGenerator[Event]:
        if heard(request) == "go":
            yield ApprovalNeeded(call=ToolCall(id="c", name="look"), question="May I?")
        else:
            yield Final(text=f"answer to: {heard(request)}")

    agent = Scripted(asks)
    async with running(store_url, agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "go")
        await chat.hears("May I?")
        await chat.say(alice, "hello?")
        await chat.say(alice, command)
        await chat.hears("not allowed" if command == "/new" else "nothing was allowed")
        await chat.hears("hello?")
        await here.settled()
        assert await states(here) == ["failed", "done"]
        note = words.LEFT_NOTE if command == "/new" else words.STOPPED_NOTE
        first = (await here.rows("SELECT id FROM sessions ORDER BY no"))[0][0]
        assert note in await here.texts(first)
        assert (note in noted(agent.requests[-1])) == (command == "/stop")
        assert await here.store.read(violations()) == []


async def test_whoever_goes_on_talking_is_told_once_what_is_waited_for(store_url: str) -> None:
    async with running(store_url) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, other = here.world.dm(alice), here.world.dm(bob)
        await chat.say(alice, "!approve it")
        await chat.hears("May I")
        for text in ("hello?", "are you there?"):
            await chat.say(alice, text)
        await chat.hears(words.ASKED_FIRST)
        await other.say(bob, "hello")
        await other.hears("You said: hello")
        await chat.say(alice, "/help status")
        await chat.hears("/status")
        await chat.say(alice, "/approve")
        await chat.hears("You said: are you there?")
        await here.settled()
        assert [message.text for message in chat.shown].count(words.ASKED_FIRST) == 1
        assert await here.store.read(violations()) == []


async def test_only_whoever_was_asked_or_an_admin_may_allow_it(tmp_path: Path) -> None:
    world = World()
    alice, bob, carol = (world.person(name) for name in ("alice", "bob", "carol"))
    grants = (
        Grant(platform="fake", role=AccessRole.MEMBER),
        Grant(platform="fake", role=AccessRole.ADMIN, user_id=carol.id),
    )
    async with running(tmp_path / "p.db", world, grants=grants) as here:
        group = world.group("friends", alice, bob, carol)
        await group.say(alice, "!approve it", thread="5")
        await group.hears("May I")
        await group.say(bob, "/approve", thread="5")
        await group.hears("is for people with the role admin")
        assert await states(here) == ["parked"]
        await group.say(carol, "/approve", thread="5")
        await group.hears("You said: it")


@pytest.mark.parametrize("command", ["/approve", "/deny"])
async def test_where_nothing_was_asked_nothing_is_allowed(tmp_path: Path, command: str) -> None:
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, command)
        await chat.hears("Nothing waits for your permission.")
