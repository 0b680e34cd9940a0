"""What the gateway says is true for the person who reads it."""

from collections.abc import AsyncGenerator
from dataclasses import replace
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.session import Principal
from palaver.model.text import without_invisible
from palaver.model.tools import ApprovalMode, ToolRules
from palaver.model.transcript import ToolCall
from palaver.model.turn import BusyMode
from palaver.protocols.agent import ApprovalNeeded, Event, Final, Request
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.platform import FakePlatform
from palaver.tools.messages import MessageTools
from tests.engine.agents import Scripted, Slow
from tests.engine.gateway import MovableClock, running, until
from tests.store.world import NOON


async def test_someone_who_cannot_approve_learns_who_can_and_the_owner_gets_the_question(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, boss = world.person("alice"), world.person("boss")
    grants = (
        Grant(platform="fake", role=AccessRole.GUEST),
        Grant(platform="fake", user_id=boss.id, role=AccessRole.OWNER),
    )
    async with running(tmp_path / "p.db", world, grants=grants):
        chat, home = world.dm(alice), world.dm(boss)
        await chat.say(alice, "!approve it")
        question = await chat.hears("Only an admin can approve this. The owner can do it on the dashboard.")
        assert "Reply" not in question.text
        assert "You can deny" not in question.text
        assert not question.choices
        group = world.group("team", boss, alice)
        await group.say(boss, "/sethome")
        await group.hears("home channel")
        await chat.say(alice, "!approve this")
        await chat.hears("The owner can do it on the dashboard.", times=2)
        assert not any("May I use" in shown.text for shown in group.shown)
        await home.say(boss, "/sethome")
        await home.hears("home channel")
        await chat.say(alice, "!approve that")
        await chat.hears("Only an admin can approve this. I asked in the home channel. The owner")
        asked = await home.hears("May I use the echo tool for: that")
        assert asked.text.startswith("Somebody who cannot decide this needs your answer (DM with alice).")
        name = asked.text.partition("Reply /approve ")[2].partition(" ")[0]
        await home.say(boss, f"/approve {name}")
        await chat.hears("You said: that")


async def test_nothing_goes_to_the_home_of_somebody_who_lost_access(tmp_path: Path) -> None:
    world = FakePlatform()
    alice, boss, stranger = world.person("alice"), world.person("boss"), world.person("stranger")
    grants = (Grant(platform="fake", user_id=alice.id, role=AccessRole.GUEST),)
    async with running(tmp_path / "p.db", world, grants=grants) as here:
        chat, home = world.dm(alice), world.dm(boss)
        owner = Grant(platform="fake", user_id=boss.id, role=AccessRole.OWNER)
        granted = await here.store.transact(here.store.grants.add(owner, NOON, by="operator"))
        await home.say(boss, "/sethome")
        await home.hears("home channel")
        await world.dm(stranger).say(stranger, "let me in")
        await home.hears("asks fake:bot for access")
        heard = len(home.shown)
        await here.store.transact(here.store.grants.remove(granted, NOON, by="operator", force=True))
        another = world.person("another")
        asking = world.dm(another)
        await asking.say(another, "let me in")
        await asking.hears("Your code is")
        await chat.say(alice, "!approve it")
        question = await chat.hears("Only an admin can approve this")
        assert "home channel" not in question.text
        await here.settled()
        assert len(home.shown) == heard


async def test_a_notice_names_commands_as_people_type_them_where_it_goes(tmp_path: Path) -> None:
    async def ask(_request: Request) -> AsyncGenerator[Event]:
        yield ApprovalNeeded(call=ToolCall(id="1", name="rm"), question="May I use rm?\npath: /new")

    world, plain, keeping = FakePlatform(), replace(FAKE, name="plain"), replace(FAKE, name="keeping", keeps_slash=True)
    adapters = [FakeAdapter(world, "p", platform=plain), FakeAdapter(world, "k", platform=keeping)]
    alice, boss = world.person("alice"), world.person("boss")
    grants = (Grant(role=AccessRole.GUEST), Grant(platform="plain", user_id=boss.id, role=AccessRole.OWNER))
    async with running(tmp_path / "p.db", world, adapters=adapters, agent=Scripted(ask), grants=grants):
        chat, home = world.group("team", alice, accounts=["k"]), world.dm(boss, account="p")
        await home.say(boss, "/sethome")
        await home.hears("home channel")
        await chat.say(alice, "go on")
        shown = await chat.hears("Only an admin can approve this, here with !approve ")
        assert "path: /new\n" in shown.text
        await home.hears("Reply /approve ")
        await chat.say(alice, "!sethome")
        await chat.hears("!sethome needs")


async def test_words_of_people_stay_as_they_are_in_an_answer_with_commands(tmp_path: Path) -> None:
    async def answer(_request: Request) -> AsyncGenerator[Event]:
        yield Final(text="ok")

    world, keeping = FakePlatform(), replace(FAKE, keeps_slash=True)
    adapters, said = [FakeAdapter(world, platform=keeping)], f"It has /new and (/stop). {'x ' * 50}end"
    async with running(
        tmp_path / "p.db", world, adapters=adapters, agent=Scripted(answer), grants=(Grant(role=AccessRole.OWNER),)
    ) as here:
        alice = replace(world.person("alice"), name="alice /new")
        chat = world.dm(alice)
        await chat.say(alice, said)
        await chat.hears("ok")
        await chat.say(alice, "!title see /new")
        assert (await chat.hears("now called")).text == "This conversation is now called “see /new”."
        for command, shown in (
            ("!title", "is called “see /new”. !title Holiday"),
            ("!status", "see /new ("),
            ("!search stop", "It has /new and (/stop)."),
            ("!sessions", "see /new ("),
            ("!jobs add 2h look at /new", "“look at /new” runs once"),
            ("!jobs", "“look at /new”: once"),
            ("!resume about /new now", "There is no conversation 'about /new now'. !sessions lists yours."),
            ("!jobs pause the /new one", "There is no job 'the /new one' that you can see. !jobs lists yours."),
            ("!whoami", 'You are fake:p1 (`"alice /new"`) here'),
            ("!undo", "!redo brings it back. To edit and send again:\n\n" + said),
        ):
            await chat.say(alice, command)
            text = (await chat.hears(shown)).text
            assert without_invisible(text) == text
        (row,) = await here.rows("SELECT id FROM sessions")
        outside = await here.engine.run_command("/title", row[0], Principal.operator())
        assert outside.startswith("This conversation is called “see /new”. /title")


async def test_an_answer_names_only_commands_that_its_reader_can_use(tmp_path: Path) -> None:
    roles = {"back": AccessRole.ADMIN, "sessions": AccessRole.ADMIN}
    async with running(tmp_path / "p.db", grants=(Grant(role=AccessRole.MEMBER),), command_roles=roles) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        for text, answer in (
            ("/new Read /back. Then go", "Started a new conversation. Its title is “Read /back. Then go”."),
            ("/resume nothing", "There is no conversation 'nothing'."),
            ("/branch Other", "This is “Other”, a branch of “Read /back. Then go”; from now on they are separate."),
            ("/sessions", "/sessions needs the admin role. Ask the owner of this gateway for it."),
        ):
            before = len(chat.shown)
            await chat.say(alice, text)
            assert (await chat.hears("", times=before + 1)).text == answer
        await chat.say(alice, "/help")
        listed = (await chat.hears("Send /help and a command name for details.")).text
        assert "/new, /reset: Start a new conversation.\n" in listed
        assert "/back" not in listed


@pytest.mark.parametrize("first_word", ["half an", ""])
async def test_the_agent_learns_what_stopped_its_answer(tmp_path: Path, first_word: str) -> None:
    agent = Slow(first_word)
    async with running(tmp_path / "p.db", agent=agent, busy=ScopedSetting(default=BusyMode.INTERRUPT)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "first")
        await until(lambda: bool(agent.requests))
        if first_word:
            await chat.hears(first_word)
        await chat.say(alice, "second")
        await until(lambda: len(agent.requests) == 2)
        agent.go.set()
        await chat.hears("second")
        said = "; what you had said by then is above" if first_word else ""
        assert f"a newer message stopped your last answer{said}" in await here.texts()


async def test_what_was_only_overheard_is_no_turn(tmp_path: Path) -> None:
    attention = ScopedSetting(default=AddressingRules(answers=AnswerMode.ADDRESSED, observes=True))
    shared = ScopedSetting(default=Scope(group=GroupScope.SHARED))
    async with running(tmp_path / "p.db", attention=attention, scopes=shared) as here:
        alice = here.world.person("alice")
        group = here.world.group("friends", alice)
        await group.say(alice, "to the others")
        await here.settled()
        await group.say(alice, "/usage")
        await group.hears("This conversation: 0 turns")


async def test_an_admin_learns_how_to_answer_the_question_of_somebody_else(store_url: str) -> None:
    world = FakePlatform()
    alice, boss = world.person("alice"), world.person("boss")
    grants = (Grant(platform="fake"), Grant(platform="fake", user_id=boss.id, role=AccessRole.OWNER))
    async with running(store_url, world, grants=grants):
        group = world.group("friends", alice, boss)
        await group.say(boss, "/approve")
        await group.hears("There is nothing to approve or deny.")
        await group.say(alice, "!approve it")
        await group.hears("May I use the echo tool for: it")
        await group.say(boss, "/approve")
        told = await group.hears("The open question here is not yours.")
        await group.say(boss, f"/approve {told.text.rpartition(' ')[2].rstrip('.')}")
        await group.hears("You said: it")


@pytest.mark.parametrize("allowed", [ApprovalMode.ALWAYS, ApprovalMode.ASK])
async def test_the_agent_learns_of_an_approval_where_one_is_needed(tmp_path: Path, allowed: ApprovalMode) -> None:
    described = list[str]()

    async def describe(request: Request) -> AsyncGenerator[Event]:
        tools = request.toolbox.tools if request.toolbox else ()
        described.extend(tool.description for tool in tools if tool.name == "send_message")
        yield Final(text="done")

    rules, owners = ToolRules(allowed={"send_message": allowed}), (Grant(platform="fake", role=AccessRole.OWNER),)
    async with running(
        tmp_path / "p.db", agent=Scripted(describe), grants=owners, tools=rules, toolsets=lambda _: (MessageTools(),)
    ) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hi")
        await chat.hears("done")
        assert ["must approve" in text for text in described] == [allowed is ApprovalMode.ASK]


@pytest.mark.parametrize(("role", "named"), [(AccessRole.GUEST, False), (AccessRole.MEMBER, True)])
async def test_a_reset_names_commands_to_those_who_can_use_them(
    tmp_path: Path, role: AccessRole, *, named: bool
) -> None:
    clock, resets = MovableClock(), ScopedSetting(default=ResetPolicy(mode=ResetMode.IDLE, idle_minutes=60))
    grants = (Grant(platform="fake", role=role),)
    async with running(tmp_path / "p.db", clock=clock, resets=resets, grants=grants) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "one")
        await chat.hears("You said: one")
        clock.later(hours=2)
        await chat.say(alice, "two")
        notice = await chat.hears("This is a fresh conversation because nobody wrote for a while.")
        assert ("/back" in notice.text) is named
