"""`/usage` tells everybody of their own use and of nobody else's."""

from collections.abc import AsyncGenerator

from palaver.model.turn import Usage
from palaver.protocols.agent import Event, Final, Request, UsageReport
from tests.engine.agents import Scripted
from tests.engine.gateway import MovableClock, running


async def _answer(_: Request) -> AsyncGenerator[Event]:
    yield UsageReport(usage=Usage(model="m", input_tokens=60, output_tokens=40, cost_micros=12_300))
    yield Final(text="yes")


async def test_usage_of_the_conversation_of_today_and_of_the_month(store_url: str) -> None:
    clock = MovableClock()
    clock.later(days=14 - clock.now().day)  # the middle of a month
    async with running(store_url, agent=Scripted(_answer), clock=clock) as here:
        alice, bob = here.world.person("alice"), here.world.person("bob")
        chat, his = here.world.dm(alice), here.world.dm(bob)
        for _ in range(2):
            await chat.say(alice, "hello")
            await here.settled()
        clock.later(days=1)
        await chat.say(alice, "hello")
        await his.say(bob, "hello")
        await here.settled()
        await chat.say(alice, "/usage")
        told = await chat.hears("This conversation")
        assert told.text.splitlines() == [
            "This conversation: 3 turns, 180 tokens in, 120 out, at a cost of 0.0369.",
            "You today: 1 turn, 60 tokens in, 40 out, at a cost of 0.0123.",
            "You this month: 3 turns, 180 tokens in, 120 out, at a cost of 0.0369.",
        ]
        await chat.say(alice, "/new")
        await here.settled()
        await chat.say(alice, "/usage")
        await chat.hears("This conversation: 0 turns, 0 tokens in, 0 out.")
