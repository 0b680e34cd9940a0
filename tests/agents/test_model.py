"""The model agent, over a real client library, against a provider that follows a script."""

import asyncio
import json

import pytest

from palaver.agents.model.agent import ModelAgent, ModelFailed
from palaver.agents.model.options import ModelOptions
from palaver.model.session import ModelOverride
from palaver.model.tools import NOT_APPROVED
from palaver.model.transcript import Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.view import Message
from palaver.protocols.agent import (
    ApprovalNeeded,
    Choosing,
    Excerpt,
    Final,
    Summarising,
    TextDelta,
    Titling,
    ToolCalled,
    ToolReturned,
    UsageReport,
)
from tests.agents.fake_provider import Call, Refuses, Says
from tests.agents.model_helpers import KEY, MODEL, Box, asked, events, kinds, request


async def test_it_can_do_all_that_an_agent_can() -> None:
    async with asked() as (agent, _):
        for capability in (Choosing, Summarising, Titling):
            assert isinstance(agent, capability)


async def test_an_answer_grows_and_is_then_final() -> None:
    async with asked(Says(text="Good morning, world.", input_tokens=12, output_tokens=7)) as (agent, provider):
        happened = await events(agent, request("hello"))
    grown = [event.text for event in happened if isinstance(event, TextDelta)]
    assert len(grown) > 2
    assert "".join(grown) == "Good morning, world."
    assert happened[-2:] == [
        UsageReport(Usage(model=MODEL, input_tokens=12, output_tokens=7, unpriced_tokens=19, prompt_tokens=19)),
        Final(text="Good morning, world."),
    ]
    (sent,) = provider.requests
    assert sent["messages"] == [
        {"role": "system", "content": "You are here."},
        {"role": "user", "content": "hello"},
    ]
    assert provider.keys == [f"Bearer {KEY}"]


async def test_tools_are_listed_before_they_are_used_and_their_results_go_back() -> None:
    calls = (Call("look", '{"at": "the sky"}', "a"), Call("look", '{"at": "the sea"}', "b"))
    box = Box()
    async with asked(Says(text="Let me see.", calls=calls), Says(text="Blue.")) as (agent, provider):
        happened = await events(agent, request(toolbox=box))
    assert kinds(happened) == ["ToolCalled", "ToolReturned", "ToolReturned", "Final"]
    called = next(event for event in happened if isinstance(event, ToolCalled))
    assert called.calls == tuple(ToolCall(call.id, call.name, call.arguments) for call in calls)
    assert called.text == "Let me see."
    assert box.used == list(called.calls)
    said = provider.requests[1]["messages"][2:]
    assert [each["role"] for each in said] == ["assistant", "tool", "tool"]
    assert [each.get("tool_call_id") for each in said[1:]] == ["a", "b"]
    assert said[1]["content"] == 'look {"at": "the sky"}'
    assert [tool["function"]["name"] for tool in provider.requests[0]["tools"]] == ["look", "send"]


async def test_calls_of_one_answer_run_together_and_come_back_in_order() -> None:
    both = asyncio.Barrier(2)

    async def meet(call: ToolCall) -> str:
        await both.wait()
        return call.id

    calls = (Call("look", id="a"), Call("look", id="b"))
    async with asked(Says(calls=calls), Says(text="done")) as (agent, _):
        happened = await events(agent, request(toolbox=Box(does=meet)))
    assert [event.call for event in happened if isinstance(event, ToolReturned)] == ["a", "b"]


async def test_what_was_said_meanwhile_is_heard_after_the_tools() -> None:
    async def meanwhile() -> tuple[str, ...]:
        return ("and", "quickly")

    async with asked(Says(calls=(Call("look"),)), Says(text="done")) as (agent, provider):
        await events(agent, request(toolbox=Box(), new_messages=meanwhile))
    assert provider.requests[1]["messages"][-1] == {"role": "user", "content": "and\n\nquickly"}


async def test_arguments_that_are_no_json_are_an_error_for_the_model_and_nothing_is_used() -> None:
    box = Box()
    async with asked(Says(calls=(Call("send", '{"to": '),)), Says(text="sorry")) as (agent, provider):
        happened = await events(agent, request(toolbox=box))
    assert kinds(happened) == ["ToolCalled", "ToolReturned", "Final"]
    assert not box.used
    assert "not a JSON object" in provider.requests[1]["messages"][-1]["content"]
    sent = provider.requests[1]["messages"][-2]["tool_calls"][0]["function"]["arguments"]
    assert json.loads(sent) == {"malformed_arguments": '{"to": '}


async def test_ids_that_a_server_uses_again_stay_apart() -> None:
    earlier = (
        Message(Role.USER, "look"),
        Message(Role.ASSISTANT, "", (ToolCall("call_1", "look"),)),
        Message(Role.TOOL, "seen", (), "call_1"),
        Message(Role.ASSISTANT, "seen"),
    )
    async with asked(Says(calls=(Call("look"),)), Says(text="done")) as (agent, provider):
        happened = await events(agent, request("again", *earlier, toolbox=Box()))
    called = next(event for event in happened if isinstance(event, ToolCalled))
    assert called.calls[0].id != "call_1"
    assert provider.requests[1]["messages"][-1]["tool_call_id"] == called.calls[0].id


# Approvals


async def test_a_tool_that_needs_leave_waits_for_it_and_the_others_do_not() -> None:
    calls = (Call("send", id="a"), Call("look", id="b"), Call("send", id="c"))
    box = Box()
    async with asked(Says(calls=calls)) as (agent, _):
        happened = await events(agent, request(toolbox=box))
    assert kinds(happened) == ["ToolCalled", "ToolReturned", "ApprovalNeeded"]
    assert happened[-1] == ApprovalNeeded(call=ToolCall("a", "send"), question="May I use send?")
    assert [call.id for call in box.used] == ["b"]


def parked(*answered: str) -> tuple[Message, ...]:
    calls = tuple(ToolCall(name, "look" if name == "b" else "send") for name in "abc")
    results = [Message(Role.TOOL, "seen", (), name) for name in answered]
    return (Message(Role.USER, "do it"), Message(Role.ASSISTANT, "", calls), *results)


@pytest.mark.parametrize(("allowed", "result"), [(True, "send {}"), (False, NOT_APPROVED)])
async def test_the_turn_goes_on_with_what_a_person_said_and_asks_the_next_question(allowed: bool, result: str) -> None:
    box = Box()
    async with asked() as (agent, provider):
        happened = await events(agent, request(messages=parked("b"), approvals={"a": allowed}, toolbox=box))
        assert happened == [
            ToolReturned(call="a", text=result),
            ApprovalNeeded(call=ToolCall("c", "send"), question="May I use send?"),
        ]
        assert not provider.requests
        happened = await events(agent, request(messages=parked("b", "a"), approvals={"c": True}, toolbox=box))
    assert kinds(happened) == ["ToolReturned", "Final"]
    # In the order of the calls, however they were used: the next turn shows them so.
    assert [each["tool_call_id"] for each in provider.requests[0]["messages"][-3:]] == ["a", "b", "c"]


# Choosing, summaries, titles


async def test_a_conversation_can_ask_for_another_model() -> None:
    async with asked(models=("openai:larger",)) as (agent, provider):
        assert agent.models() == [
            ModelOverride(model="scripted", provider="openai"),
            ModelOverride(model="larger", provider="openai"),
        ]
        for override in (agent.models()[1], None, ModelOverride(model="gone", provider="openai")):
            await events(agent, request(override=override))
    assert [sent["model"] for sent in provider.requests] == ["larger", "scripted", "scripted"]


async def test_how_much_a_model_takes_is_known_or_said() -> None:
    agent = ModelAgent.of(ModelOptions(model="openai:gpt-5-mini", key=KEY))
    assert agent.context_window(None) == 400_000
    assert (
        ModelAgent.of(ModelOptions(model=MODEL, base_url="http://127.0.0.1:9", context_window=9_000)).context_window(
            None
        )
        == 9_000
    )
    assert ModelAgent.of(ModelOptions(model=MODEL, base_url="http://127.0.0.1:9")).context_window(None) is None


async def test_a_summary_says_what_matters_and_counts_what_it_took() -> None:
    async with asked(Says(text=" They talked about bees. ")) as (agent, provider):
        messages = (
            Message(Role.USER, "bees?"),
            Message(Role.ASSISTANT, "", (ToolCall("a", "look", '{"x":1}'),)),
            Message(Role.TOOL, "buzz", (), "a"),
        )
        gist = await agent.summarise(Excerpt(session="s", messages=messages, focus="honey"))
    assert gist.text == "They talked about bees."
    assert gist.usage == Usage(model=MODEL, input_tokens=10, output_tokens=5, unpriced_tokens=15, prompt_tokens=15)
    told = provider.requests[0]["messages"][-1]["content"]
    for words in ("People: bees?", 'used look with {"x":1}', "Tool: buzz", "What matters most: honey"):
        assert words in told
    assert "tools" not in provider.requests[0]


async def test_a_passage_that_is_too_long_is_read_piece_by_piece() -> None:
    script = [Says(text=f"summary {number}") for number in range(1, 5)]
    messages = [Message(Role.USER, f"{number} " + "x" * 900) for number in range(4)]
    async with asked(*script, context_window=1_000) as (agent, provider):
        gist = await agent.summarise(Excerpt(session="s", messages=tuple(messages)))
    assert gist.text == "summary 4"
    assert gist.usage.input_tokens == 40
    for number, sent in enumerate(provider.requests):
        told = sent["messages"][-1]["content"]
        assert len(told) < 1_200
        assert f"{number} xxx" in told
        assert (f"summary {number}" in told) is (number > 0)


@pytest.mark.parametrize(
    ("said", "title"), [('"Bees and honey."', "Bees and honey"), ("hm\n\n**Bees**\n", "Bees"), ("…", "…")]
)
async def test_a_title_is_a_few_words(said: str, title: str) -> None:
    async with asked(Says(text=said)) as (agent, _):
        assert (await agent.title(Excerpt(session="s", messages=(Message(Role.USER, "bees?"),)))).text == title


async def test_a_summary_that_fails_raises_and_quotes_nothing() -> None:
    async with asked(Refuses(status=500), Says(text="x" * 30, cut_after=3)) as (agent, _):
        for _ in range(2):
            with pytest.raises(ModelFailed):
                await agent.summarise(Excerpt(session="s", messages=(Message(Role.USER, "hi"),)))
