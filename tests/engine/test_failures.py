"""A failing agent answers with a short, safe sentence; what may pass is tried again."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest

from palaver.db.transaction import Transaction
from palaver.engine import retry, texts
from palaver.model.errors import StoreError
from palaver.model.transcript import ToolCall
from palaver.protocols.adapter import Limits
from palaver.protocols.agent import (
    Agent,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
)
from palaver.protocols.hooks import EventKind
from palaver.store.store import Store
from palaver.tools.messages import MessageTools
from tests.engine.agents import Scripted, noted
from tests.engine.gateway import NoPauses, running

WORDS = "the key is sk-12345 and the prompt says hello"


async def _fails(request: Request) -> AsyncGenerator[Event]:  # noqa: ARG001
    yield Failure(kind=FailureKind.FATAL, detail=WORDS)


async def _raises(request: Request) -> AsyncGenerator[Event]:  # noqa: ARG001
    yield TextDelta("half an answer")
    raise ValueError(WORDS)


async def _raises_timeout(request: Request) -> AsyncGenerator[Event]:  # noqa: ARG001
    yield TextDelta("half an answer")
    raise TimeoutError(WORDS)


async def _just_ends(request: Request) -> AsyncGenerator[Event]:  # noqa: ARG001
    yield TextDelta(WORDS[:0])


async def _wants_a_long_pause(request: Request) -> AsyncGenerator[Event]:  # noqa: ARG001
    yield Failure(kind=FailureKind.FATAL, detail=WORDS, after=1e300)


@pytest.mark.parametrize("script", [_fails, _raises, _raises_timeout, _just_ends, _wants_a_long_pause])
async def test_if_anything_goes_wrong_the_chat_gets_one_safe_sentence(
    tmp_path: Path, script: "object", caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent: Agent = Scripted(script)  # pyright: ignore[reportArgumentType]
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears(texts.SORRY)
        await here.settled()
        assert [message.text for message in chat.shown] == [texts.SORRY]
        assert texts.FAILED_NOTE in await here.texts()
        assert EventKind.TURN_FAILED in [happening.kind for happening in here.happened]
        ((state, error),) = await here.rows("SELECT state, error FROM turns")
        assert (state, bool(error)) == ("failed", True)
    assert "sk-12345" not in caplog.text
    assert "turn failed" in caplog.text


async def test_what_went_wrong_is_kept_with_the_turn_for_its_operator(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", agent=Scripted(_fails)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears(texts.SORRY)
        assert [row[0] for row in await here.rows("SELECT error FROM turns")] == [WORDS]


async def test_what_may_pass_is_tried_again_and_then_answered(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!busy 2 hello")
        await chat.hears("You said: hello")
        assert len(chat.shown) == 1


@pytest.mark.parametrize("answers", [["Seen."], [" ", "Seen."], ["", "\n"]], ids=["said", "said at last", "never said"])
async def test_a_person_who_asks_is_never_answered_by_silence(tmp_path: Path, answers: list[str]) -> None:
    async def looks(_: Request) -> AsyncGenerator[Event]:
        asked = len(agent.requests)
        if asked == 1:
            yield ToolCalled(calls=(ToolCall(id="c", name="look"),), text="Let me see.")
            yield ToolReturned(call="c", text="looked")
        yield Final(text=answers[asked - 1])

    agent = Scripted(looks)
    async with running(tmp_path / "p.db", agent=agent) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "what is there?")
        await here.settled()
        told = answers[-1] if answers[-1].strip() else texts.NO_ANSWER
        assert [message.text for message in chat.shown] == [told]
        assert len(agent.requests) == len(answers)
        assert [texts.EMPTY_NOTE in noted(request) for request in agent.requests] == [False, True][: len(answers)]
        states = await here.rows("SELECT state, failure FROM turns")
        assert states == [("done", None) if answers[-1].strip() else ("failed", FailureKind.EMPTY.value)]


async def test_silence_is_right_where_a_tool_has_answered(tmp_path: Path) -> None:
    async def sends(request: Request) -> AsyncGenerator[Event]:
        call = ToolCall(id="c", name="send_here", arguments='{"text": "Here you are."}')
        yield ToolCalled(calls=(call,))
        yield ToolReturned(call="c", text=await request.toolbox.use(call))
        yield Final(text="")

    agent = Scripted(sends)
    async with running(tmp_path / "p.db", agent=agent, toolsets=lambda _: (MessageTools(),)) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "send it")
        await here.settled()
        assert [message.text for message in chat.shown] == ["Here you are."]
        assert len(agent.requests) == 1


async def test_what_does_not_pass_fails_after_some_tries(tmp_path: Path) -> None:
    async with running(tmp_path / "p.db", chance=NoPauses(), agent_tries=2) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "!busy 2 hello")
        await chat.hears(texts.SORRY)


async def _breaks_off_once(request: Request) -> AsyncGenerator[Event]:
    for word in ("one ", "two "):
        yield TextDelta(word)
        await asyncio.sleep(0.02)
    if len(_ASKED) < 2:
        _ASKED.append(request.turn)
        yield Failure(kind=FailureKind.TRANSIENT, detail="cut")
        return
    yield Final(text="one two three")


_ASKED: list[int] = []


async def test_an_answer_that_broke_off_is_shown_once_when_it_is_begun_again(tmp_path: Path) -> None:
    _ASKED.clear()
    limits = Limits(draft_interval=0.0)
    async with running(tmp_path / "p.db", chance=NoPauses(), agent=Scripted(_breaks_off_once), limits=limits) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "count")
        shown = await chat.hears("three")
        await here.settled()
        assert len(chat.shown) == 1
        assert set(shown.earlier) <= {"one ", "one two "}


@pytest.mark.drops_transactions
async def test_a_store_that_refuses_for_a_while_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RESTART_PAUSE_SECONDS", 0.01)
    often = timedelta(seconds=0.03)
    async with running(tmp_path / "p.db", lease=3 * often, poll=often, sweep_every=often, chance=NoPauses()) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "before")
        await chat.hears("You said: before")
        await here.settled()

        async def refuse(_store: Store, _work: Transaction[object]) -> None:
            raise StoreError("the database refused")

        monkeypatch.setattr(Store, "transact", refuse)
        monkeypatch.setattr(Store, "read", refuse)
        await chat.say(alice, "meanwhile")
        await asyncio.sleep(0.3)
        monkeypatch.undo()
        await chat.hears("You said: meanwhile")
        assert not here.serving.done()
