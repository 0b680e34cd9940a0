"""Tools that the sender of a message has: called by the agent, used by them, durable in between."""

from collections.abc import AsyncGenerator, Mapping

from palaver.model.source import Source, Trust
from palaver.model.transcript import ToolCall
from palaver.model.turn import ClientTool, Inbound, TurnState
from palaver.model.view import open_calls
from palaver.protocols.agent import ApprovalNeeded, Event, Final, Request, ToolCalled
from palaver.store.status.invariants import violations
from palaver.store.status.message_status import Reply
from palaver.testkit.platform import BOT, FakePlatform, LoopClock
from tests.engine.agents import Scripted
from tests.engine.gateway import OPERATOR, Bench, running, until

CALLS = (ToolCall("c1", "weather", '{"where": "here"}'), ToolCall("c2", "clock"), ToolCall("c3", "nobodys"))
OFFERS = (ClientTool("weather", "How it is", '{"type": "object"}'), ClientTool("clock"))


async def uses_both(request: Request) -> AsyncGenerator[Event]:
    """As the model agent does: what was asked and has no answer yet is asked again."""
    answered = {message.answers: message.text for message in request.messages if message.answers}
    waiting = open_calls(request.messages)
    if not answered and not waiting:
        yield ToolCalled(calls=CALLS[:2])
        waiting = CALLS[:2]
    for call in waiting:
        if question := await request.toolbox.question(call):
            yield ApprovalNeeded(call=call, question=question)
            return
    yield Final(text=f"{answered} of {[tool.name for tool in request.toolbox.tools]}")


async def say(here: Bench, offers: tuple[ClientTool, ...] = OFFERS) -> None:
    chat = here.world.dm(here.world.person("alice"))
    source = Source(platform="fake", account=BOT, chat_id=chat.id, user_id="alice", message_id="m1")
    await here.engine.receive(Inbound(source=source, text="go", at=LoopClock().now(), client_tools=offers), Trust())


async def reply(here: Bench) -> Reply:
    return await here.store.read(here.store.message_status.load_reply(1, OPERATOR))


async def until_parked(here: Bench) -> Reply:
    async def parked() -> bool:
        return (await reply(here)).is_parked

    await until(parked)
    return await reply(here)


async def give(here: Bench, results: Mapping[str, str]) -> bool:
    turn = (await reply(here)).turn
    assert turn
    return await here.store.transact(
        here.store.message_status.submit_tool_results(turn.number, results, LoopClock().now(), OPERATOR)
    )


async def test_a_turn_waits_for_the_client_that_offered_and_goes_on_through_a_restart(store_url: str) -> None:
    world = FakePlatform()
    async with running(store_url, world, agent=Scripted(uses_both)) as here:
        await say(here)
        assert (await until_parked(here)).pending_tool_calls == CALLS[:2]
        assert (await reply(here)).notices == (), "nobody is asked for leave"
    async with running(store_url, world, agent=Scripted(uses_both)) as here:
        assert await give(here, {"c1": "rain"})
        assert (await until_parked(here)).pending_tool_calls == CALLS[1:2], "the other call still waits"
        assert await give(here, {"c2": "noon"})
        await here.settled()
        told = await reply(here)
        assert told.turn
        assert told.turn.state is TurnState.DONE
        assert told.entries[-1].text == "{'c1': 'rain', 'c2': 'noon'} of ['weather', 'clock']"
        assert await here.store.read(violations()) == []


async def test_what_nobody_has_used_has_no_result(store_url: str) -> None:
    """Somebody may allow the call, but nobody here can use it."""

    async def uses_at_once(request: Request) -> AsyncGenerator[Event]:
        yield Final(text="; ".join([await request.toolbox.use(call) for call in (CALLS[0], CALLS[2])]))

    async with running(store_url, agent=Scripted(uses_at_once)) as here:
        await say(here)
        await here.settled()
        assert (await here.texts())[-1].startswith(
            "The client has to run this tool itself, and has not done so.; There is no"
        )
