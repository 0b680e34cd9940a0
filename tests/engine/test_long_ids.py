"""Ids that are too long for any index are refused alike on both databases, and hold up nothing that comes after."""

import logging
import random
import re
import string
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from palaver.commands.trace_steps import trace_steps
from palaver.model.source import GROUP, MAX_IDS_BYTES, Source, Trust
from palaver.model.turn import Inbound, InboxState, Revision
from palaver.store.status.invariants import violations
from palaver.store.status.overview import list_inbound
from palaver.store.status.trace import find_traces
from palaver.testkit.platform import FakePlatform, LoopClock
from tests.engine.gateway import OPERATOR, running
from tests.engine.mouth import Mouth

NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)
PLAIN = Source(platform="fake", account="bot", chat_kind=GROUP, chat_id="c1", user_id="p1", message_id="m0")


def id_of(length: int) -> str:
    """No database makes it shorter."""
    return "".join(random.Random(length).choices(string.ascii_letters + string.digits, k=length))  # noqa: S311


def said(source: Source, **more: object) -> Inbound:
    inbound = Inbound(source=source, text="hello", at=NOW, mentions_us=True)
    return replace(inbound, **more)  # pyright: ignore[reportArgumentType]


LONG = id_of(20_000)
UNFIT = [
    *(said(replace(PLAIN, **{name: LONG})) for name in ("message_id", "chat_id", "thread_id", "scope_id", "user_id")),
    said(replace(PLAIN, message_id="長" * 600)),
    said(replace(PLAIN, message_id=LONG), revision=Revision(version="1")),
    said(PLAIN, revision=Revision(version=LONG)),
    said(replace(PLAIN, chat_id=id_of(MAX_IDS_BYTES // 2), message_id=id_of(MAX_IDS_BYTES // 2 + 1))),
    said(replace(PLAIN, chat_id=id_of(MAX_IDS_BYTES // 2), thread_id=id_of(MAX_IDS_BYTES // 2 - 1))),
]


async def test_what_no_index_can_hold_is_refused_with_a_reason_and_the_next_message_is_answered(
    store_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = FakePlatform()
    mouth = Mouth(world, LoopClock())
    async with running(store_url, world, adapters=[mouth]) as here:
        chat, receiver = world.group("Dev"), await mouth.receiver()
        with caplog.at_level(logging.WARNING):
            for inbound in (*UNFIT, *UNFIT):
                await receiver.receive(inbound, Trust())
            await receiver.link_alias(LONG, "p1")
            await receiver.chat_moved("c9", LONG)
        unfit = [each for each in caplog.records if getattr(each, "action", None) == "message.ids_too_long"]
        assert len(unfit) == len(UNFIT) + 2
        assert LONG not in caplog.text
        told = await here.store.read(list_inbound(OPERATOR, states=[InboxState.REFUSED]))
        assert len(told) == len(UNFIT), "each once"
        for each in told:
            assert each.reason
            assert re.fullmatch(r"the ids of a (message|conversation) are too long: \d+ bytes", each.reason)
            (found,) = await here.store.read(find_traces(f"in:{each.number}", OPERATOR))
            assert f"refused: {each.reason}" in [step.sentence for step in trace_steps(found, NOW)]
        assert b"hello" not in b"".join(bytes(row[0]) for row in await here.rows("SELECT body FROM inbox"))
        (by_id,) = await here.store.read(find_traces("長" * 600, OPERATOR))
        assert by_id.messages[0].state is InboxState.REFUSED
        assert await here.store.read(violations()) == []
        await receiver.receive(said(PLAIN), Trust())
        await chat.hears("You said: hello")


async def test_ids_as_long_as_allowed_are_kept(store_url: str) -> None:
    world, half = FakePlatform(), MAX_IDS_BYTES // 2
    mouth = Mouth(world, LoopClock())
    async with running(store_url, world, adapters=[mouth]) as here:
        chat, receiver = world.group("Dev"), await mouth.receiver()
        chat.id = id_of(half)
        world.chats[chat.id] = chat
        source = replace(PLAIN, chat_id=chat.id, thread_id=id_of(half - len("p1")), message_id=id_of(half))
        await receiver.receive(said(source), Trust())
        await chat.hears("You said: hello")
        await here.settled()
        assert await here.rows("SELECT state FROM turns") == [("done",)]
