"""Rights hold when a thing is done, not only when it was accepted."""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.model.access import ACCESS_ENDED, BLOCKED, AccessRole, Basis, Effect, Grant
from palaver.model.key import ScopedSetting, SessionKey
from palaver.model.revision import RevisionPolicy
from palaver.model.source import Source
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode, Cause, Inbound
from palaver.protocols.adapter import Receiver
from palaver.protocols.agent import Event, Final, Request
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.agents import Scripted, Slow, heard
from tests.engine.gateway import Bench, running, until
from tests.engine.test_tools import Lever

RERUN = ScopedSetting(default=RevisionPolicy.RERUN)
MEMBER = Grant(platform="fake", user_id="p1", role=AccessRole.MEMBER)
ADMIN = Grant(platform="fake", user_id="p1", role=AccessRole.ADMIN)
NOW = datetime(2026, 3, 1, tzinfo=UTC)
BLOCK = Grant(platform="fake", user_id="p1", effect=Effect.BLOCK)


async def give(here: Bench, grant: Grant) -> int:
    return await here.store.transact(here.store.grants.add(grant, LoopClock().now(), by="owner", force=True))


async def waiting(here: Bench, count: int) -> None:
    async def do_wait() -> bool:
        return await here.store.read(here.store.inbox.count_waiting()) == count

    await until(do_wait)


async def test_what_waits_while_its_sender_is_blocked_is_refused(store_url: str) -> None:
    agent, world = Slow(), FakePlatform()
    alice = world.person("alice")
    async with running(store_url, world, agent=agent) as here:
        chat = world.dm(alice)
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        await chat.say(alice, "two")
        await chat.say(alice, "three")
        await chat.say(alice, "/title mine")
        await waiting(here, 3)
        await give(here, BLOCK)
        agent.go.set()
        await here.settled()
        states = await here.rows("SELECT state, reason FROM inbox ORDER BY no")
        assert [tuple(row) for row in states[1:]] == [("refused", BLOCKED)] * 3
        assert [shown.text for shown in chat.shown].count(texts.BLOCKED_MEANWHILE) == 1
        assert chat.shown[-1].text == texts.BLOCKED_MEANWHILE, "one sentence for all that waits"
        assert len(agent.requests) == 1
        assert "two" not in await here.texts(), "what was refused is not in the conversation"
        bodies = [body for (body,) in await here.rows("SELECT body FROM inbox ORDER BY no")]
        assert b"one" in bodies[0]
        assert not any(word in body for body in bodies[1:] for word in (b"two", b"three", b"mine"))


@pytest.mark.parametrize("rises", [False, True])
async def test_a_command_that_waited_runs_with_the_lower_of_its_roles(tmp_path: Path, *, rises: bool) -> None:
    """A role that somebody gets later is not one for what they said before."""
    agent, world = Slow(), FakePlatform()
    alice = world.person("alice")
    async with running(
        tmp_path / "p.db", world, agent=agent, grants=(MEMBER,), command_roles={"title": AccessRole.ADMIN}
    ) as here:
        number = 0 if rises else await give(here, ADMIN)
        chat = world.dm(alice)
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        await chat.say(alice, "/title mine")
        await waiting(here, 1)
        if rises:
            await give(here, ADMIN)
        else:
            await here.store.transact(here.store.grants.remove(number, LoopClock().now(), by="owner", force=True))
        agent.go.set()
        await chat.hears("admin")
        assert (await here.rows("SELECT title FROM sessions"))[0][0] != "mine"


@transaction
def _join(here: Bench, text: str, cause: Cause) -> Statements[None]:
    """Have a message join the turn of the first."""
    (first,) = yield "SELECT key FROM inbox", ()
    source = Source(platform="fake", chat_id="d1", user_id="p1", message_id=text)
    inbound = Inbound(source=source, text=text, at=NOW, cause=cause)
    yield from here.store.inbox.accept(inbound, SessionKey.parse(first[0]), NOW, role=AccessRole.MEMBER)
    joined = "(SELECT state, turn_no FROM inbox WHERE message_id <> ?)"
    yield f"UPDATE inbox SET (state, turn_no) = {joined} WHERE message_id = ?", (text, text)  # noqa: S608


async def test_a_turn_that_was_cut_off_is_not_resumed_for_somebody_who_lost_access(tmp_path: Path) -> None:
    """They hear it even if a process had something to say since."""
    agent, world = Slow(), FakePlatform()
    alice = world.person("alice")
    chat = world.dm(alice)
    async with running(tmp_path / "p.db", world, agent=agent) as here:
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        await here.store.transact(_join(here, "ended", Cause.PROCESS))
        await give(here, BLOCK)
    agent.go.set()
    async with running(tmp_path / "p.db", world, agent=agent, worker="w2") as here:

        async def is_over() -> bool:
            return bool(await here.rows("SELECT 1 FROM turns WHERE state = 'failed'"))

        await until(is_over)
        assert (await here.rows("SELECT error FROM turns"))[0][0] == f"not resumed: {BLOCKED}"
        await here.settled()
        assert len(agent.requests) == 1
        assert [shown.text for shown in chat.shown] == [texts.BLOCKED_MEANWHILE]


async def test_an_edit_that_waits_while_its_sender_is_blocked_takes_nothing_back(store_url: str) -> None:
    agent, world = Slow(), FakePlatform()
    alice = world.person("alice")
    async with running(store_url, world, agent=agent, revisions=RERUN) as here:
        chat = world.dm(alice)
        agent.go.set()
        first = await chat.say(alice, "one")
        await chat.hears("answer to: one")
        agent.go.clear()
        await chat.say(alice, "two")
        await until(lambda: len(agent.requests) == 2)
        await chat.edit(alice, first, "uno")
        await waiting(here, 1)
        await give(here, BLOCK)
        agent.go.set()
        await here.settled()
        (edit,) = await here.rows("SELECT state, reason FROM inbox WHERE version <> ''")
        assert tuple(edit) == ("refused", BLOCKED)
        said = [entry.text for entry in await here.entries() if entry.role in {"user", "assistant"}]
        assert said == ["one", "answer to: one", "two", "answer to: two"]


async def test_an_edited_message_runs_with_the_role_of_now(store_url: str) -> None:
    async def pulls(request: Request) -> AsyncGenerator[Event]:
        yield Final(text=f"{heard(request)}: {[tool.name for tool in request.toolbox.tools]}")

    world, agent = FakePlatform(), Scripted(pulls)
    alice = world.person("alice")
    async with running(
        store_url, world, agent=agent, revisions=RERUN, grants=(MEMBER,), toolsets=lambda _: (Lever(),)
    ) as here:
        number = await give(here, replace(MEMBER, role=AccessRole.OWNER))
        chat = world.dm(alice)
        first = await chat.say(alice, "one")
        await chat.hears("one: ['lever']")
        await here.store.transact(here.store.grants.remove(number, LoopClock().now(), by="owner", force=True))
        await chat.edit(alice, first, "uno")
        await chat.hears("uno: []")


class Listener(FakeAdapter):
    async def run(self, receiver: Receiver) -> None:
        self.receiver = receiver
        await super().run(receiver)


async def test_an_adapter_learns_who_is_an_owner_now(tmp_path: Path) -> None:
    world = FakePlatform()
    adapter = Listener(world)
    async with running(tmp_path / "p.db", world, adapters=[adapter], grants=(MEMBER,)) as here:
        await until(lambda: hasattr(adapter, "receiver"))
        assert not await adapter.receiver.is_owner("p1")
        number = await give(here, Grant(platform="fake", user_id="p1", role=AccessRole.OWNER))
        assert [await adapter.receiver.is_owner(each) for each in ("p1", "p2")] == [True, False]
        await here.store.transact(here.store.grants.remove(number, LoopClock().now(), by="owner", force=True))
        assert not await adapter.receiver.is_owner("p1")


async def test_a_grant_to_bots_or_roles_does_not_speak_for_somebody_else(store_url: str) -> None:
    others = tuple(Grant(basis=basis) for basis in (Basis.BOT, Basis.RELAY, Basis.PLATFORM_ROLE))
    agent, world = Slow(), FakePlatform()
    alice, robot = world.person("alice"), world.person("robot", is_bot=True)
    async with running(store_url, world, agent=agent, grants=others) as here:
        number = await give(here, MEMBER)
        chat, room = world.dm(alice), world.dm(robot)
        await chat.say(alice, "one")
        await room.say(robot, "beep")
        await until(lambda: len(agent.requests) == 2)
        await chat.say(alice, "two")
        await room.say(robot, "boop")
        await waiting(here, 2)
        await here.store.transact(here.store.grants.remove(number, LoopClock().now(), by="owner", force=True))
        agent.go.set()
        await room.hears("answer to: boop")
        await here.settled()
        states = await here.rows("SELECT state, reason FROM inbox ORDER BY no")
        assert tuple(states[2]) == ("refused", ACCESS_ENDED)
        assert [shown.text for shown in chat.shown[2:]] == [texts.NO_LONGER_ANSWERED]
        assert "two" not in await here.texts()
        await room.say(robot, "/retry")
        await room.hears("answer to: boop", times=2)


async def test_a_message_from_before_the_basis_was_recorded_keeps_its_access(store_url: str) -> None:
    agent, world = Slow(), FakePlatform()
    robot = world.person("robot", is_bot=True)
    async with running(store_url, world, agent=agent, grants=(Grant(basis=Basis.BOT),)) as here:
        room = world.dm(robot)
        await room.say(robot, "beep")
        await until(lambda: len(agent.requests) == 1)
        await room.say(robot, "boop")
        await waiting(here, 1)
        ((number, body),) = await here.rows("SELECT no, body FROM inbox WHERE state = 'waiting'")
        old = {name: value for name, value in json.loads(body).items() if name != "basis"}
        await here.store.transact(_rewrite(number, json.dumps(old).encode()))
        agent.go.set()
        await room.hears("answer to: boop")


@transaction
def _rewrite(number: int, body: bytes) -> Statements[None]:
    yield "UPDATE inbox SET body = ? WHERE no = ?", (body, number)


async def test_a_message_that_joins_a_turn_has_the_role_of_now(tmp_path: Path) -> None:
    async def pulls(request: Request) -> AsyncGenerator[Event]:
        await go.wait()
        assert await request.new_messages()
        yield Final(text=await request.toolbox.use(ToolCall(id="c", name="lever")))

    go, agent, world, lever = asyncio.Event(), Scripted(pulls), FakePlatform(), Lever()
    alice = world.person("alice")
    async with running(
        tmp_path / "p.db",
        world,
        agent=agent,
        grants=(MEMBER,),
        busy=ScopedSetting(default=BusyMode.STEER),
        toolsets=lambda _: (lever,),
    ) as here:
        number = await give(here, replace(MEMBER, role=AccessRole.OWNER))
        chat = world.dm(alice)
        await chat.say(alice, "one")
        await until(lambda: len(agent.requests) == 1)
        await chat.say(alice, "two")
        await waiting(here, 1)
        await here.store.transact(here.store.grants.remove(number, LoopClock().now(), by="owner", force=True))
        go.set()
        await chat.hears("Not everybody in this conversation")


async def test_who_turns_out_to_be_somebody_blocked_while_they_wait_is_refused(tmp_path: Path) -> None:
    """Nothing but the directory shows it: neither grants nor people have changed."""
    agent, world = Slow(), FakePlatform()
    alice, bob = world.person("alice"), world.person("bob")
    chat, grants = world.dm(bob), (MEMBER, replace(MEMBER, user_id=bob.id))
    async with running(tmp_path / "p.db", world, agent=agent, grants=grants, concurrent_turns=1) as here:
        await give(here, replace(BLOCK, user_id="another id of hers"))
        await chat.say(bob, "one")
        await until(lambda: len(agent.requests) == 1)
        await world.dm(alice).say(alice, "two")
        await waiting(here, 1)
        await here.store.transact(here.store.aliases.learn("fake", alice.id, "another id of hers", NOW))
        await chat.say(bob, "three")
        await waiting(here, 2)
        agent.go.set()
        await here.settled()
        states = await here.rows("SELECT state, reason FROM inbox ORDER BY no")
        assert tuple(states[1]) == ("refused", BLOCKED)
