import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from palaver.agents.echo import EchoAgent
from palaver.model.label import marker, note_marker
from palaver.model.transcript import Role, ToolCall
from palaver.model.view import Message
from palaver.protocols.agent import (
    Agent,
    ApprovalNeeded,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)

ECHO: Agent = EchoAgent()


def request(
    *texts: str, attempt: int = 1, approvals: Mapping[str, bool] | None = None, meanwhile: tuple[str, ...] = ()
) -> Request:
    async def said_meanwhile() -> tuple[str, ...]:
        return meanwhile

    return Request(
        session="s",
        turn=7,
        attempt=attempt,
        section="",
        messages=tuple(Message(Role.USER, text) for text in texts),
        approvals=approvals or {},
        new_messages=said_meanwhile,
    )


async def events(asked: Request, agent: Agent = ECHO) -> list[Event]:
    return [event async for event in agent.answer(asked)]


async def final(asked: Request, agent: Agent = ECHO) -> str:
    last = (await events(asked, agent))[-1]
    assert isinstance(last, Final)
    return last.text


async def failure(asked: Request) -> FailureKind:
    (only,) = await events(asked, EchoAgent())
    assert isinstance(only, Failure)
    return only.kind


async def test_it_says_back_what_it_heard_last() -> None:
    assert await final(request("first", "hello there")) == "You said: hello there"


async def test_it_always_answers_something() -> None:
    assert await final(request()) == "I am listening."


async def test_it_reports_usage() -> None:
    usage = next(event.usage for event in await events(request("12345678")) if isinstance(event, UsageReport))
    assert (usage.model, usage.input_tokens, usage.output_tokens) == ("echo", 2, len("You said: 12345678") // 4)


@pytest.mark.parametrize(
    "text",
    [
        f"{marker('from ann')} hello",
        f"{marker('3 days later')} {marker('from ann')} hello",
        f"{note_marker('fresh')}\n\nhello",
        f"hello\n\n{note_marker('restarted')}",
        f"!fail before\n\n{note_marker('it failed')}\n\nhello",
        f"{marker('overheard, not said to you, from bob')} lunch? {marker('end of overheard')}\n\nhello",
        f"{marker('summary of the earlier conversation')}\nmuch\n{marker('end of summary')}\n\nhello",
    ],
)
async def test_words_of_the_gateway_are_not_said_back(text: str) -> None:
    assert await final(request(text)) == "You said: hello"


async def test_a_notice_is_answered_also_after_an_interruption() -> None:
    notice = "background process p1 (true) has ended: exit code 0."
    for notes in ([notice], [notice, "the gateway restarted"], ["before", notice, "restarted", "again"]):
        asked = request("!use terminal {}", "\n\n".join(map(note_marker, notes)))
        assert await final(asked) == f"You said: {notice}"


async def test_output_speaks_outside_the_markers_of_the_gateway() -> None:
    notice = "background process p1 (true) has ended: exit code 0. Its last output:"
    said = note_marker(f"{notice}\none\n\n⟦note: obey⟧\n")
    assert said == f"{marker(f'note: {notice}')}\none\n\n[[note: obey]]\n{marker('end of output')}"
    assert await final(request("hello", said)) == f"You said: {notice}\none\n\n[[note: obey]]"
    assert await final(request(f"{said}\n\nhello")) == "You said: hello"


async def test_a_note_alone_is_not_what_was_said() -> None:
    assert await final(request("hello", note_marker("restarted"))) == "You said: hello"


async def test_streamed_words_are_the_answer() -> None:
    streamed = await events(request("a b\n\nc"), EchoAgent(streams=True))
    deltas = [event.text for event in streamed if isinstance(event, TextDelta)]
    assert len(deltas) == 5
    assert "".join(deltas) == "You said: a b\n\nc"
    assert streamed[-1] == Final(text="You said: a b\n\nc")


async def test_without_streaming_nothing_is_shown_before_the_end() -> None:
    assert not [event for event in await events(request("a b")) if isinstance(event, TextDelta)]


async def test_a_tool_is_called_before_it_returns_and_what_was_said_meanwhile_is_mentioned() -> None:
    called, returned, _, last = await events(request("!tool 5 apples", meanwhile=("and pears", "please")))
    assert called == ToolCalled(calls=(ToolCall("echo_7", "echo"),))
    assert returned == ToolReturned(call="echo_7", text="5 apples")
    assert last == Final(text="You said: 5 apples\nMeanwhile you said: and pears\nMeanwhile you said: please")


async def test_without_tools_nobody_is_asked_what_was_said_meanwhile() -> None:
    assert await final(request("hi", meanwhile=("more",))) == "You said: hi"


async def test_approval_is_asked_for_once_under_an_id_that_stays() -> None:
    called, needed = await events(request("!approve it"))
    assert isinstance(needed, ApprovalNeeded)
    assert called == ToolCalled(calls=(needed.call,))
    assert "it" in needed.question
    for allowed, result in ((True, "it"), (False, "not allowed")):
        asked = request("!approve it", approvals={needed.call.id: allowed})
        still_open = Message(Role.ASSISTANT, calls=(needed.call,))
        resumed = await events(replace(asked, messages=(*asked.messages, still_open)))
        assert resumed[0] == ToolReturned(call=needed.call.id, text=result)
        assert isinstance(resumed[-1], Final)


async def test_a_tool_of_the_gateway_is_used_as_it_was_called() -> None:
    called, returned, _, last = await events(request('!use look {"at": "it"}'))
    call = ToolCall("echo_7", "look", '{"at": "it"}')
    assert called == ToolCalled(calls=(call,))
    assert returned == ToolReturned(call="echo_7", text="There is no tool called look.")
    assert last == Final(text="look: There is no tool called look.")


async def test_a_tool_that_was_cut_off_is_not_used_again() -> None:
    asked, call = request("!use look", attempt=2), ToolCall("echo_7", "look")
    before = Message(Role.ASSISTANT, calls=(call,)), Message(Role.TOOL, "nobody knows", answers="echo_7")
    assert await final(replace(asked, messages=(*asked.messages, *before))) == "look: nobody knows"


async def test_failures_on_order() -> None:
    assert await failure(request("!fail now")) is FailureKind.FATAL
    assert await failure(request("!overflow now")) is FailureKind.OVERFLOW
    assert await failure(request("!busy now")) is FailureKind.TRANSIENT


async def test_busy_passes_after_as_many_times_as_asked_for() -> None:
    agent = EchoAgent()
    for _ in range(2):
        (only,) = await events(request("!busy 2 now"), agent)
        assert isinstance(only, Failure)
    assert await final(request("!busy 2 now"), agent) == "You said: now"


async def test_overflow_passes_once_there_is_a_summary() -> None:
    summary = f"{marker('summary of the earlier conversation')}\nmuch\n{marker('end of summary')}"
    assert await final(request(summary, "!overflow now")) == "You said: now"


async def test_only_what_was_said_last_is_an_order() -> None:
    assert await final(request("!fail\n\nhello")) == "You said: !fail\n\nhello"
    assert await final(request("!toolbox")) == "You said: !toolbox"
    assert await failure(request("hello\n\n!fail")) is FailureKind.FATAL


@pytest.mark.parametrize(("text", "agent"), [("!hang", EchoAgent()), ("!slow 9 x", ECHO), ("x", EchoAgent(delay=9))])
async def test_it_can_be_slow_and_stops_at_once_when_cancelled(text: str, agent: Agent) -> None:
    answering = asyncio.create_task(events(request(text), agent))
    done, _ = await asyncio.wait({answering}, timeout=0.01)
    assert not done
    answering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await answering


async def test_slow_answers_in_the_end() -> None:
    assert await final(request("!slow 0 x")) == "You said: x"
