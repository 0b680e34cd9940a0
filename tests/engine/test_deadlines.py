"""A stuck turn is aborted, told, and the queue goes on."""

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta

from palaver.engine import texts
from palaver.model.transcript import Role
from palaver.protocols.agent import Event, Final, Request, TextDelta
from tests.engine.agents import Scripted, heard
from tests.engine.gateway import running


async def _stuck_once(request: Request) -> AsyncGenerator[Event]:
    if heard(request).endswith("hang"):
        await asyncio.Event().wait()
    yield Final(text=f"answer to: {heard(request)}")


async def _babbles(request: Request) -> AsyncGenerator[Event]:
    while heard(request).endswith("babble"):
        yield TextDelta("bla ")
        await asyncio.sleep(0.01)
    yield Final(text=f"answer to: {heard(request)}")


async def test_an_agent_that_says_nothing_for_too_long_is_stopped(store_url: str) -> None:
    quiet = timedelta(seconds=0.1)
    async with running(store_url, agent=Scripted(_stuck_once), quiet_limit=quiet, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hang")
        await chat.say(alice, "next")
        await chat.hears("next")
        assert [message.text for message in chat.shown] == [texts.TOO_LONG, "answer to: hang\n\nnext"]
        assert texts.TOO_LONG_NOTE in [entry.text for entry in await here.entries() if entry.role is Role.NOTE]
        states = await here.rows("SELECT state FROM turns ORDER BY no")
        assert [row[0] for row in states] == ["failed", "done"]


async def test_a_turn_as_a_whole_has_a_deadline_even_if_the_agent_keeps_talking(store_url: str) -> None:
    limit = timedelta(seconds=0.2)
    async with running(store_url, agent=Scripted(_babbles), turn_limit=limit, acknowledges=False) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "babble")
        await chat.say(alice, "next")
        await chat.hears("next")
        await here.settled()
        assert [message.text for message in chat.shown] == [texts.TOO_LONG, "answer to: babble\n\nnext"]
