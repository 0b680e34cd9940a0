"""A whole gateway on Slack: threads, buttons, commands, redeliveries, growing answers, lost channels."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from copy import deepcopy
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.model.transcript import ToolCall
from palaver.protocols.agent import ApprovalNeeded, Event, Final, Request, TextDelta, ToolCalled, ToolReturned
from palaver.store.status.invariants import violations
from tests.engine.agents import Scripted
from tests.engine.gateway import Bench, NoPauses, running, until
from tests.platforms.slack.fakes import ALICE, EVE, adapter_of
from tests.platforms.slack.server import Server
from tests.platforms.slack.world import BOT_USER, Json, No, World

US = f"<@{BOT_USER}>"


@pytest.fixture
def world(server: Server) -> World:
    world = server.world
    for user, name in ((ALICE, "alice"), (EVE, "eve")):
        world.user(user, name)
    world.channel("C0DEV")
    world.channel("D0ALICE", "im")
    return world


def gateway(
    server: Server, folder: Path, *, reply_in_thread: bool = False, **changed: object
) -> AbstractAsyncContextManager[Bench]:
    """Alice may speak there."""
    grants = (Grant(platform="slack", role=AccessRole.MEMBER, user_id=ALICE),)
    adapters = [adapter_of(server, reply_in_thread=reply_in_thread)]
    return running(folder / "p.db", adapters=adapters, **{"grants": grants, "acknowledges": False, **changed})  # pyright: ignore[reportArgumentType]


async def hears(world: World, text: str) -> Json:
    """The first message that has this in it."""
    await until(lambda: any(text in each["text"] for each in world.sent()))
    return next(each for each in world.sent() if text in each["text"])


async def test_a_button_in_a_thread_allows_only_what_its_presser_may_allow(
    server: Server, world: World, tmp_path: Path
) -> None:
    call = ToolCall("c", "look")

    async def asks(request: Request) -> AsyncGenerator[Event]:
        if not request.approvals:
            yield ToolCalled(calls=(call,))
            yield ApprovalNeeded(call=call, question="May I look?")
            return
        yield ToolReturned(call=call.id, text="seen")
        yield Final(text="I looked.")

    async with gateway(server, tmp_path, reply_in_thread=True, agent=Scripted(asks)) as here:
        said = world.says("C0DEV", ALICE, f"{US} look")
        question = await hears(world, "May I")
        assert question["thread_ts"] == said["ts"]
        value = question["blocks"][1]["elements"][0]["value"]
        for who in (EVE, ALICE):
            world.press("C0DEV", who, question, value)
        assert (await hears(world, "I looked."))["thread_ts"] == said["ts"]
        await until(lambda: not world.envelopes)
        await here.settled()
        pressed = await here.rows("SELECT state FROM inbox WHERE message_id LIKE '%action%' ORDER BY no")
        assert [row[0] for row in pressed] == ["refused", "done"]
        assert await here.store.read(violations()) == []


async def test_commands_work_with_both_prefixes_and_as_slash_command(
    server: Server, world: World, tmp_path: Path
) -> None:
    async with gateway(server, tmp_path) as here:
        for say in (
            lambda: world.says("D0ALICE", ALICE, "!status"),
            lambda: world.command("D0ALICE", ALICE, "status"),
            lambda: world.command("D0ALICE", ALICE, "/status"),
        ):
            before = len(world.sent())
            say()
            await until(lambda before=before: len(world.sent()) > before)
        await here.settled()
        assert await here.rows("SELECT count(*) FROM turns") == [(0,)]
    assert len({each["text"] for each in world.sent()}) == 1


async def test_a_redelivery_and_the_second_event_of_a_mention_are_one_turn(
    server: Server, world: World, tmp_path: Path
) -> None:
    async with gateway(server, tmp_path) as here:
        said = world.says("C0DEV", ALICE, f"{US} once")
        mention = {**world.about("C0DEV", said), "type": "app_mention"}
        del mention["channel_type"]
        world.event(mention)
        world.push("events_api", deepcopy(world.envelopes[0]["payload"]))
        world.says("C0DEV", ALICE, "not for you")
        await hears(world, "You said: once")
        await until(lambda: not world.envelopes)
        await here.settled()
        assert await here.rows("SELECT count(*) FROM turns") == [(1,)]
    assert len(world.sent()) == 1


async def test_an_edit_changes_its_message_and_a_deletion_removes_it(
    server: Server, world: World, tmp_path: Path
) -> None:
    async with gateway(server, tmp_path) as here:
        said = world.says("D0ALICE", ALICE, "helo")
        await hears(world, "You said: helo")
        await here.settled()
        world.edit("D0ALICE", said, "hello")
        world.delete("D0ALICE", said)
        await until(lambda: not world.envelopes)
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM inbox")) == 3
        assert await here.store.read(violations()) == []


async def test_an_answer_grows_in_one_message_and_is_sent_whole_after_a_rate_limit(
    server: Server, world: World, tmp_path: Path
) -> None:
    async def grows(_: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="**half")
        await until(lambda: bool(world.sent()))
        world.refuses["chat.update"] = [No("ratelimited", 429, retry_after=1)]
        yield Final(text="**half an answer** `x`")

    async with gateway(server, tmp_path, agent=Scripted(grows), chance=NoPauses(1)) as here:
        world.says("D0ALICE", ALICE, "go")
        await hears(world, "*half an answer* `x`")
        await here.settled()
    assert len(world.sent()) == 1


async def test_a_long_answer_is_split_as_slack_counts(server: Server, world: World, tmp_path: Path) -> None:
    async def long(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="**a** <b> & word " * 700)

    async with gateway(server, tmp_path, agent=Scripted(long)) as here:
        world.says("D0ALICE", ALICE, "go")
        await until(lambda: sum(each["text"].count("word") for each in world.sent()) == 700)
        await here.settled()
        assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []


async def test_a_channel_that_is_lost_is_remembered(server: Server, world: World, tmp_path: Path) -> None:
    async with gateway(server, tmp_path) as here:
        world.refuses["chat.postMessage"].append(No("not_in_channel"))
        world.says("C0DEV", ALICE, f"{US} hello?")

        async def is_gone() -> bool:
            return bool(await here.rows("SELECT 1 FROM gone_chats"))

        await until(is_gone)
        await here.settled()
    assert not world.sent()
