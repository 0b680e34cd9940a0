"""What goes wrong between the model agent and its provider."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from palaver.agents.model.agent import ModelAgent, ModelFailed
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import Excerpt, Failure, FailureKind, Final, ToolCalled
from tests.agents.fake_provider import Call, Hangs, Page, Refuses, Says, Step
from tests.agents.model_helpers import KEY, Box, asked, events, kinds, request


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Refuses(status=500), FailureKind.TRANSIENT),
        (Refuses(status=503, message="overloaded"), FailureKind.TRANSIENT),
        (Refuses(status=429, code="rate_limit_exceeded"), FailureKind.RATE_LIMITED),
        (Refuses(status=429, code="insufficient_quota"), FailureKind.NO_CREDIT),
        (Refuses(status=401, code="invalid_api_key"), FailureKind.UNAUTHORIZED),
        (Refuses(status=404, code="model_not_found"), FailureKind.UNKNOWN_MODEL),
        (Refuses(status=400, message="what is this"), FailureKind.REJECTED),
        (Refuses(status=400, code="context_length_exceeded"), FailureKind.OVERFLOW),
        (Refuses(status=400, message="This model's maximum context length is 8192 tokens"), FailureKind.OVERFLOW),
        (Refuses(status=400, message="the request exceeds the available context size"), FailureKind.OVERFLOW),
        (Says(text="Once upon a time", cut_after=3), FailureKind.TRANSIENT),
        (Says(text="Once upon a time", stops_after=3), FailureKind.TRANSIENT),
        (Page(), FailureKind.TRANSIENT),
        (Page("{", "application/json"), FailureKind.TRANSIENT),
        (Page("data: {nonsense\n\n", "text/event-stream"), FailureKind.TRANSIENT),
        (Says(), FailureKind.TRANSIENT),
        (Says(stop="content_filter"), FailureKind.REJECTED),
        (Says(stop="length"), FailureKind.FATAL),
    ],
    ids=str,
)
async def test_what_goes_wrong_is_a_failure_of_its_kind(step: Step, kind: FailureKind) -> None:
    async with asked(step) as (agent, provider):
        *_, last = await events(agent, request())
        assert isinstance(last, Failure)
        assert last.kind is kind
        assert len(provider.requests) == 1


async def test_a_provider_that_says_nothing_is_left() -> None:
    async with asked(Hangs(), timeout=timedelta(milliseconds=50)) as (agent, _):
        *_, last = await events(agent, request())
    assert isinstance(last, Failure)
    assert last.kind is FailureKind.TRANSIENT


async def test_a_provider_that_is_not_there_may_come_back() -> None:
    async with asked() as (agent, _):
        gone = ModelAgent.of(replace(agent.options, base_url="http://127.0.0.1:9/v1"))
        *_, last = await events(gone, request())
        await gone.close()
    assert isinstance(last, Failure)
    assert last.kind is FailureKind.UNREACHABLE


async def test_how_long_to_wait_is_passed_on() -> None:
    async with asked(Refuses(status=429, headers={"retry-after": "7"})) as (agent, _):
        assert (await events(agent, request()))[-1] == Failure(
            kind=FailureKind.RATE_LIMITED,
            detail="status 429: no",
            after=7.0,
        )


async def test_the_key_is_in_no_words_of_ours() -> None:
    async with asked(Refuses(status=401, message=f"Incorrect API key provided: {KEY}")) as (agent, provider):
        happened = await events(agent, request())
        provider.then(Refuses(status=401, message=f"Incorrect API key provided: {KEY}"))
        with pytest.raises(ModelFailed) as caught:
            await agent.title(Excerpt(session="s", messages=(Message(Role.USER, "hi"),)))
    assert KEY not in repr(happened)
    assert KEY not in repr(agent) + repr(agent.options) + repr(agent.clients)
    assert KEY not in repr(caught.value)
    assert caught.value.__cause__ is None


async def test_a_model_that_never_stops_using_tools_is_stopped() -> None:
    script = [Says(calls=(Call("look", id=f"c{number}"),)) for number in range(3)]
    box = Box()
    async with asked(*script, rounds=2) as (agent, provider):
        happened = await events(agent, request(toolbox=box))
    assert kinds(happened) == ["ToolCalled", "ToolReturned", "ToolCalled", "ToolReturned", "Failure"]
    assert len(provider.requests) == 3
    assert len(box.used) == 2


async def test_a_model_that_has_used_tools_may_have_nothing_to_add() -> None:
    async with asked(Says(calls=(Call("look"),)), Says()) as (agent, _):
        assert (await events(agent, request(toolbox=Box())))[-1] == Final(text="")


async def test_cancelled_it_stops_at_once_and_so_do_its_tools() -> None:
    stopped = asyncio.Event()

    async def work(_call: ToolCall) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async with asked(Says(calls=(Call("look"),))) as (agent, _):
        answer = agent.answer(request(toolbox=Box(does=work)))
        while not isinstance(await anext(answer), ToolCalled):
            pass
        using = asyncio.create_task(anext(answer))  # pyright: ignore[reportArgumentType]
        await asyncio.sleep(0.01)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        await asyncio.wait_for(stopped.wait(), 60)
