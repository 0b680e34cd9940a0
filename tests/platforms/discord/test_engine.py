"""A whole gateway on Discord: mentions, threads, roles, buttons, slash commands, two servers, long answers."""

import re
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from palaver.model.access import AccessRole, Basis, Grant
from palaver.model.transcript import ToolCall
from palaver.protocols.agent import ApprovalNeeded, Event, Final, Request, TextDelta, ToolCalled, ToolReturned
from palaver.store.status.invariants import violations
from tests.engine.agents import Scripted
from tests.engine.gateway import Bench, NoPauses, running, until
from tests.platforms.discord.fakes import GUILD, ROOM, THREAD, FakeServerChannel, adapter_of
from tests.platforms.discord.server import Server, serving
from tests.platforms.discord.world import ALICE, BOT, No, World

EVE = {**ALICE, "id": "8", "username": "eve", "global_name": "eve"}
US = f"<@{BOT['id']}>"


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as server:
        FakeServerChannel(server)
        server.world.dm("700")
        yield server


@pytest.fixture
def world(server: Server) -> World:
    return server.world


def gateway(
    server: Server, folder: Path, account: dict[str, Any] | None = None, **changed: object
) -> AbstractAsyncContextManager[Bench]:
    """Alice may speak there."""
    grants = (Grant(platform="discord", role=AccessRole.MEMBER, user_id="7"),)
    adapters = [adapter_of(server, **(account or {}))]
    return running(folder / "p.db", adapters=adapters, **{"grants": grants, "acknowledges": False, **changed})  # pyright: ignore[reportArgumentType]


async def hears(world: World, text: str) -> dict[str, Any]:
    """The first message that has this in it."""
    await until(lambda: any(text in each["content"] for each in world.sent))
    return next(each for each in world.sent if text in each["content"])


async def test_in_a_channel_it_answers_mentions_with_a_reply(server: Server, world: World, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        await world.begun.wait()
        world.says(ROOM, ALICE, "hello all")
        said = world.says(ROOM, ALICE, f"{US} hello you")
        world.says(ROOM, EVE, f"{US} me, too")
        world.says(THREAD, ALICE, f"{US} in here")
        world.says("700", ALICE, "in private")
        assert (await hears(world, "hello you"))["message_reference"]["message_id"] == said["id"]
        assert (await hears(world, "in here"))["channel_id"] == THREAD
        assert "message_reference" not in await hears(world, "in private")
        await here.settled()
        assert not [each for each in world.sent if "You said: hello all" in each["content"]]
        assert await here.store.read(violations()) == []
    assert not [each for each in world.sent if "You said: me" in each["content"]]


async def test_a_button_allows_what_was_asked_and_only_for_those_who_can(
    server: Server, world: World, tmp_path: Path
) -> None:
    call = ToolCall("c1", "door", "{}")

    async def asks(request: Request) -> AsyncGenerator[Event]:
        if call.id not in request.approvals:
            yield ToolCalled(calls=(call,))
            yield ApprovalNeeded(call=call, question="May I open the door?")
        else:
            yield ToolReturned(call=call.id, text="open")
            yield Final(text="It is open.")

    async with gateway(server, tmp_path, agent=Scripted(asks)) as here:
        await world.begun.wait()
        world.says(THREAD, ALICE, f"{US} open the door")
        question = await hears(world, "May I")
        assert question["channel_id"] == THREAD
        chosen = question["components"][0]["components"][0]["custom_id"]
        for who in (EVE, ALICE):
            world.press(who, question, chosen)
        await hears(world, "It is open.")
        await here.settled()
        pressed = await here.rows("SELECT state FROM inbox WHERE message_id LIKE '%interaction%' ORDER BY no")
        assert [row[0] for row in pressed] == ["refused", "done"]
        await until(lambda: len(world.confirmed) == 2)


async def test_slash_commands_are_those_of_the_registry(server: Server, world: World, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        await until(lambda: bool(world.commands))
        assert {"new", "status", "help"} <= {each["name"] for each in world.commands}
        world.command("700", ALICE, "status")
        assert (await hears(world, "no open conversation"))["channel_id"] == "700"
        world.says("700", ALICE, "!status")
        await until(lambda: len(world.sent) == 2)
        await here.settled()


async def test_a_mention_is_answered_in_a_thread_where_people_go_on(
    server: Server, world: World, tmp_path: Path
) -> None:
    async with gateway(server, tmp_path, account={"auto_thread": True}) as here:
        await world.begun.wait()
        said = world.says(ROOM, ALICE, f"{US} one")
        assert (await hears(world, "You said: one"))["channel_id"] == said["id"]
        world.says(said["id"], ALICE, "two")
        assert (await hears(world, "You said: two"))["channel_id"] == said["id"]
        world.says(ROOM, EVE, f"{US} mine")
        await until(lambda: _count(here, "SELECT 1 FROM inbox WHERE state = 'refused'"))
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
    threads = [each for each in world.channels.values() if each.get("owner_id") == BOT["id"]]
    assert [each["id"] for each in threads] == [said["id"]], "strangers open none"


async def test_a_server_role_admits_and_is_not_stored(server: Server, world: World, tmp_path: Path) -> None:
    by_role = Grant(platform="discord", role=AccessRole.MEMBER, basis=Basis.PLATFORM_ROLE)
    world.members[GUILD, EVE["id"]] = ["3141592653"]
    account = {"roles": ["3141592653"]}
    async with gateway(server, tmp_path, grants=(by_role,), account=account) as here:
        await world.begun.wait()
        world.says(ROOM, ALICE, f"{US} nobody")
        world.says("700", EVE, "in private")
        world.says(ROOM, EVE, f"{US} with the role")
        await hears(world, "You said: with the role")
        world.members[GUILD, EVE["id"]] = []
        world.says(ROOM, EVE, f"{US} without it")
        await until(lambda: _count(here, "SELECT 1 FROM inbox WHERE state = 'refused'", 3))
        await here.settled()
    assert len([each for each in world.sent if "You said" in each["content"]]) == 1
    stored = [file.read_bytes() for file in tmp_path.glob("p.db*") if file.is_file()]  # noqa: ASYNC240
    assert stored
    assert not [content for content in stored if b"3141592653" in content]


async def test_the_same_ids_on_two_servers_are_two_conversations(server: Server, world: World, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        await world.begun.wait()
        said = world.says(ROOM, ALICE, f"{US} hello")
        elsewhere = {**said, "guild_id": "600", "content": f"{US} hello there"}
        for event in (elsewhere, elsewhere, {**said, "guild_id": GUILD}):
            world.emit("MESSAGE_CREATE", event)
        await hears(world, "You said: hello there")
        world.says(ROOM, ALICE, f"{US} that was all")
        await hears(world, "that was all")
        await here.settled()
        sessions = await here.rows("SELECT key FROM sessions")
        assert await here.store.read(violations()) == []
    assert len(sessions) == 2
    assert {GUILD in row[0] for row in sessions} == {True, False}
    assert sorted(each["content"] for each in world.sent) == [
        "You said: hello",
        "You said: hello there",
        "You said: that was all",
    ]


async def test_what_was_written_while_the_session_was_lost_is_answered_once(
    server: Server, world: World, tmp_path: Path
) -> None:
    async with gateway(server, tmp_path, chance=NoPauses()) as here:
        await world.begun.wait()
        world.says("700", ALICE, "before")
        await hears(world, "You said: before")
        world.sessions.clear()
        world.says("700", ALICE, "meanwhile")
        world.says(ROOM, ALICE, f"{US} meanwhile, in the channel")
        server.cut()
        await hears(world, "You said: meanwhile, in the channel")
        await here.settled()
        ((position,),) = await here.rows("SELECT position FROM accounts WHERE platform = 'discord'")
        assert not re.search(r"\b700\b", position), "a direct chat names its person"
    answers = [each["content"] for each in world.sent]
    assert sorted(answers) == ["You said: before", "You said: meanwhile", "You said: meanwhile, in the channel"]


async def test_a_long_answer_grows_and_is_split_after_a_rate_limit(
    server: Server, world: World, tmp_path: Path
) -> None:
    async def grows(_: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="**half")
        await until(lambda: bool(world.sent))
        world.refuses.append((r"PATCH .*", No(429, 20_028, "You are being rate limited.", retry_after=0.01)))
        yield Final(text="**half** an answer " + "💚🇩🇪 word_ " * 700)

    async with gateway(server, tmp_path, agent=Scripted(grows), chance=NoPauses(1)) as here:
        await world.begun.wait()
        world.says("700", ALICE, "go")
        await until(lambda: sum(each["content"].count("word") for each in world.sent) == 700)
        await here.settled()
    assert world.sent[0]["content"].startswith("**half** an answer")
    assert max(len(each["content"]) for each in world.sent) <= 2000


async def test_a_channel_without_access_is_remembered(server: Server, world: World, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        await world.begun.wait()
        world.gone.add(ROOM)
        world.says(ROOM, ALICE, f"{US} hello?")
        await until(lambda: _count(here, "SELECT 1 FROM gone_chats"))
        await here.settled()
    assert not world.sent


async def _count(here: Bench, sql: str, wanted: int = 1) -> bool:
    return len(await here.rows(sql)) >= wanted
