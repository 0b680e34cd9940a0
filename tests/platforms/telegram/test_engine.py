"""A whole gateway on Telegram: buttons, groups that become supergroups, albums, redeliveries, long answers."""

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from palaver.engine import texts
from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import ChatSelector as LayerChat
from palaver.model.key import ScopedSetting
from palaver.model.split import Unit
from palaver.protocols.agent import Event, Final, Request, TextDelta
from palaver.store.status.invariants import violations
from tests.engine.agents import Scripted, Slow, noted
from tests.engine.gateway import Bench, NoPauses, running, until
from tests.platforms.telegram.fakes import ALICE, adapter_of
from tests.platforms.telegram.server import Server, serving
from tests.platforms.telegram.world import Chat, No, World

EVE = {**ALICE, "id": 8, "first_name": "eve"}


@pytest.fixture
async def server() -> AsyncGenerator[Server]:
    async with serving(World()) as server:
        yield server


@pytest.fixture
def world(server: Server) -> World:
    return server.world


def gateway(server: Server, folder: Path, **changed: object) -> AbstractAsyncContextManager[Bench]:
    """Alice may speak there."""
    grants = (Grant(platform="telegram", role=AccessRole.MEMBER, user_id="7"),)
    adapters = [adapter_of(server)]
    return running(folder / "p.db", adapters=adapters, **{"grants": grants, "acknowledges": False, **changed})  # pyright: ignore[reportArgumentType]


async def hears(world: World, text: str) -> dict[str, Any]:
    """The first message that has this in it."""
    await until(lambda: any(text in each.get("text", "") for each in world.sent))
    return next(each for each in world.sent if text in each.get("text", ""))


def says(world: World, chat: Chat, text: str, **more: Any) -> None:
    world.push(world.says(chat, ALICE, text, **more))


async def test_a_button_allows_what_was_asked_only_to_those_who_can_allow_it(
    server: Server, world: World, tmp_path: Path
) -> None:
    group = world.chat(-1001, "supergroup", title="Dev", topics={77})
    async with gateway(server, tmp_path) as here:
        says(world, group, "@helper_bot !approve it", topic=77)
        question = await hears(world, "May I")
        assert question["message_thread_id"] == 77
        for who in (EVE, ALICE):
            world.press(who, question, question["reply_markup"]["inline_keyboard"][0][0]["callback_data"])
        await hears(world, "You said: it")
        await here.settled()
        pressed = await here.rows("SELECT state FROM inbox WHERE message_id LIKE '%callback%' ORDER BY no")
        assert [row[0] for row in pressed] == ["refused", "done"]


@pytest.mark.parametrize("is_told", [True, False], ids=["told", "found out by a send"])
async def test_a_group_that_becomes_a_supergroup_is_the_same_conversation(
    server: Server, world: World, tmp_path: Path, is_told: bool
) -> None:
    group = world.chat(-5, "group", title="Dev")
    async with gateway(server, tmp_path) as here:
        says(world, group, "@helper_bot one")
        await hears(world, "You said: one")
        moved = world.upgrade(group, -1001)
        if not is_told:
            says(world, group, "@helper_bot on the way")
            world.updates[:] = [each for each in world.updates if "migrate" not in str(each)]
            await hears(world, "You said: on the way")
        says(world, moved, "@helper_bot two")
        assert (await hears(world, "You said: two"))["chat"]["id"] == -1001
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM sessions")) == 1
        assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []
        assert await here.store.read(violations()) == []


@pytest.mark.parametrize("named", [0, 1])
@pytest.mark.parametrize("kind", ["private", "group"])
async def test_an_album_is_one_turn_and_a_redelivery_none(
    server: Server, world: World, tmp_path: Path, kind: str, named: int
) -> None:
    chat = world.chat(7 if kind == "private" else -5, kind)
    photo = [{"file_id": "p", "file_unique_id": "p", "width": 1, "height": 1}]
    async with gateway(server, tmp_path, burst_window=timedelta(milliseconds=200)) as here:
        album = [world.says(chat, ALICE, photo=photo, media_group_id="1") for _ in range(2)]
        mention = {"type": "mention", "offset": 0, "length": 11}
        album[named] |= {"caption": "@helper_bot look", "caption_entities": [mention]}
        for message in (*album, album[0], world.says(chat, ALICE, photo=photo, media_group_id="2")):
            world.push(message)
        await hears(world, "look")
        await until(lambda: not world.updates)
        await here.settled()
        assert len(await here.rows("SELECT 1 FROM turns")) == (2 if kind == "private" else 1)
        kept = await here.rows("SELECT 1 FROM inbox WHERE length(body) > 0")
        assert len(kept) == (3 if kind == "private" else 2)


async def test_in_groups_the_bot_answers_those_who_speak_to_it_and_overhears_what_it_can(
    server: Server, world: World, tmp_path: Path
) -> None:
    agent = Slow()
    agent.go.set()
    usual, free, quiet = (world.chat(number, "group", title="Dev") for number in (-5, -6, -7))
    attention = ScopedSetting(
        default=AddressingRules(wake_words=frozenset({"computer"})),
        chats={
            LayerChat("telegram", "-6"): AddressingRules(answers=AnswerMode.EVERYTHING),
            LayerChat("telegram", "-7"): AddressingRules(observes=True),
        },
    )
    async with gateway(server, tmp_path, agent=agent, attention=attention) as here:
        for chatter in ("hello all", "/status@other_bot", "@somebody_else look"):
            says(world, usual, chatter)
        for words in ("@helper_bot by name", "Computer, by wake word"):
            says(world, usual, words)
        says(world, free, "to anybody")
        says(world, quiet, "between us")
        await hears(world, "to anybody")
        answer = await hears(world, "by name")
        says(world, usual, "by reply", reply_to_message=answer)
        says(world, quiet, "@helper_bot what was it")
        await hears(world, "by reply")
        await hears(world, "what was it")
        await hears(world, "by wake word")
        await here.settled()
        says(world, usual, "/status")
        assert (await hears(world, "idle"))["chat"]["id"] == -5
        assert [each["chat"]["id"] for each in world.sent].count(-7) == 1
        (asked,) = [each for each in map(noted, agent.requests) if "what was it" in each]
        assert "between us" in asked
        assert await here.rows("SELECT count(*) FROM inbox") == [(7,)]


async def test_an_answer_grows_in_one_message_and_is_sent_whole_after_a_rate_limit(
    server: Server, world: World, tmp_path: Path
) -> None:
    async def grows(_: Request) -> AsyncGenerator[Event]:
        yield TextDelta(text="**half")
        await until(lambda: bool(world.sent))
        world.refuses["editmessagetext"] = [No(429, "Too Many Requests: retry after 1", retry_after=0)]
        yield Final(text="**half an answer** `x`")

    chat = world.chat(7)
    async with gateway(server, tmp_path, agent=Scripted(grows), chance=NoPauses(1)) as here:
        says(world, chat, "go")
        await hears(world, "half an answer x")
        await here.settled()
    assert [each["text"] for each in world.sent] == ["half an answer x"]


async def test_an_answer_outlives_a_telegram_that_fails_for_a_while(
    server: Server, world: World, tmp_path: Path
) -> None:
    async def answers(_: Request) -> AsyncGenerator[Event]:
        world.trouble = No(502, "Bad Gateway")
        yield Final(text="at last")

    async with gateway(server, tmp_path, agent=Scripted(answers), chance=NoPauses()) as here:
        says(world, world.chat(7), "go")
        await until(lambda: bool(world.asked("sendmessage")))
        asked = len(world.asked("getme"))
        await until(lambda: len(world.asked("getme")) > asked + 5)
        world.trouble = None
        assert texts.MAY_BE_DUPLICATE in (await hears(world, "at last"))["text"]
        await here.settled()
        assert await here.rows("SELECT state FROM outbox") == [("delivered",)]
    assert len(world.asked("sendmessage")) == 2, "it is tried again only once"


async def test_a_long_answer_is_cut_by_what_telegram_counts(server: Server, world: World, tmp_path: Path) -> None:
    async def long(_: Request) -> AsyncGenerator[Event]:
        yield Final(text="💚🇩🇪 word " * 1500)

    async with gateway(server, tmp_path, agent=Scripted(long)) as here:
        says(world, world.chat(7), "go")
        await here.settled()
        await until(lambda: sum(each["text"].count("word") for each in world.sent) == 1500)
    assert max(Unit.UTF16.measure(each["text"]) for each in world.sent) <= 4096


async def test_a_chat_that_blocks_us_is_remembered(server: Server, world: World, tmp_path: Path) -> None:
    chat = world.chat(7)
    async with gateway(server, tmp_path) as here:
        chat.is_gone = No(403, "Forbidden: bot was blocked by the user")
        says(world, chat, "hello?")
        await until(lambda: _count(here, "SELECT 1 FROM gone_chats"))
        await here.settled()
    assert not world.sent


async def _count(here: Bench, sql: str) -> bool:
    return bool(await here.rows(sql))
