"""Chat completions: a real client of OpenAI's works unchanged, bound to conversations or not, with tools of its own."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Generator
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel

from palaver.config.model import Config
from palaver.engine import reply_waiter
from palaver.engine.reply_waiter import PendingReply, ReplyWaiter
from palaver.model.access import ChatKind, Effect, Grant
from palaver.model.session import Principal, Session
from palaver.model.turn import QuestionMode
from palaver.protocols.clock import SystemClock
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.quotas import CapsConfig
from palaver.store.people.api_tokens import Right
from palaver.web.openai import conversations
from palaver.web.openai.conversations import conversation_name
from tests.engine.gateway import until
from tests.web.conftest import READERS, Opened, opened
from tests.web.test_api import PEOPLE, program, say, token

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "description": "How it is", "parameters": {"type": "object", "properties": {}}},
}
CLOCK: ChatCompletionToolParam = {"type": "function", "function": {"name": "clock"}}
Messages = list[ChatCompletionMessageParam]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=(*PEOPLE, *READERS))


async def client(
    window: Opened, identity: str | None = None, profile: str | None = None, **more: Any
) -> openai.AsyncOpenAI:
    key = await token(window, identity, profile=profile)
    return openai.AsyncOpenAI(base_url=f"{window.url}/v1", api_key=key, **more)


@pytest.fixture
async def ai(window: Opened) -> AsyncIterator[openai.AsyncOpenAI]:
    async with await client(window) as ai:
        yield ai


def user(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


def assistant(text: str) -> ChatCompletionMessageParam:
    return {"role": "assistant", "content": text}


async def ask(ai: openai.AsyncOpenAI, messages: Messages, **more: Any) -> tuple[str, str]:
    """What was answered, and in which session."""
    create = cast("Any", ai.chat.completions.with_raw_response.create)
    raw = await create(model="palaver", messages=messages, **more)
    return raw.parse().choices[0].message.content or "", raw.headers.get("x-palaver-session", "")


async def said(window: Opened, session: str) -> list[str]:
    entries = await window.store.read(window.store.transcript.load_visible(session, Principal.operator()))
    return [entry.text for entry in entries if entry.role in {"user", "assistant"}]


async def found(window: Opened, session: str) -> Session:
    return await window.store.read(window.store.sessions.get_visible(session, Principal.operator()))


async def test_a_client_that_sends_everything_again_goes_on_with_its_conversation(
    window: Opened, ai: openai.AsyncOpenAI
) -> None:
    messages: Messages = [{"role": "system", "content": "Be brief."}, user("one")]
    answer, session = await ask(ai, messages)
    assert answer == "You said: Be brief.\n\none"
    messages += [assistant(answer), user("two")]
    answer, same = await ask(ai, messages)
    assert (answer, same) == ("You said: two", session)
    messages += [assistant(answer), user("three")]
    assert await ask(ai, messages) == ("You said: three", session)
    assert await said(window, session) == [
        *("Be brief.\n\none", "You said: Be brief.\n\none"),
        *("two", "You said: two"),
        *("three", "You said: three"),
    ]


def missing_fields(value: object) -> list[str]:
    """The required fields that a parsed answer does not have."""
    if isinstance(value, list):
        return [name for each in cast("list[object]", value) for name in missing_fields(each)]
    if not isinstance(value, BaseModel):
        return []
    fields = type(value).model_fields
    found = [f"{type(value).__name__}.{name}" for name, field in fields.items() if field.is_required()]
    here = [name for name in found if name.partition(".")[2] not in value.model_fields_set]
    return here + [name for field in fields for name in missing_fields(getattr(value, field, None))]


async def test_answers_have_every_field_that_the_client_requires(ai: openai.AsyncOpenAI) -> None:
    completion = await ai.chat.completions.create(model="palaver", messages=[user("one")])
    response = await ai.responses.create(model="palaver", input="one")
    items = await ai.responses.input_items.list(response.id)
    assert missing_fields([completion, response, *items.data]) == []
    assert "refusal" in completion.choices[0].message.model_fields_set


async def test_the_history_says_which_conversation_goes_on(window: Opened, ai: openai.AsyncOpenAI) -> None:
    """Without a history a conversation begins; one that matches several goes on with one that ends there."""
    brief: Messages = [{"role": "system", "content": "Be brief."}]
    answer, session = await ask(ai, [*brief, user("one")])
    again, fresh = await ask(ai, [*brief, user("one")])
    assert (again, fresh != session) == (answer, True), "a client without a history starts over"
    followed = [(await ask(ai, [*brief, user("one"), assistant(answer), user(text)]))[1] for text in ("two", "three")]
    assert followed == [fresh, session], "the newest first, then the one in which nothing was said since"
    assert (await said(window, session))[::2] == ["Be brief.\n\none", "three"]
    other: Messages = [{"role": "system", "content": "Be long."}, user("one"), assistant(answer), user("two")]
    assert (await ask(ai, other))[1] not in {session, fresh}


def timed(minute: int) -> ChatCompletionMessageParam:
    """The system text of a client that tells the time."""
    return {"role": "system", "content": f"Be brief. It is 10:{minute:02}. " + "context " * 5000}


async def test_a_client_whose_system_text_changes_keeps_its_session(window: Opened, ai: openai.AsyncOpenAI) -> None:
    messages: Messages = [user("one\n")]
    sessions: set[str] = set()
    for minute in range(8):
        answer, session = await ask(ai, [timed(minute), *messages])
        messages += [assistant(answer.strip() + "\n"), user(f"message {minute}")]
        sessions.add(session)
    assert len(sessions) == 1
    assert (await said(window, sessions.pop()))[2::2] == [f"message {minute}" for minute in range(7)]


async def test_a_client_that_keeps_its_last_messages_continues(window: Opened, ai: openai.AsyncOpenAI) -> None:
    messages: Messages = [user("one")]
    sessions: list[str] = []
    for text in ("two", "three", "four", "five"):
        answer, session = await ask(ai, [timed(len(sessions)), *messages[-3:]])
        messages += [assistant(answer), user(text)]
        sessions.append(session)
    assert set(sessions) == {sessions[0]}
    called: Messages = [timed(8), user('!use weather {"where": "here"}')]
    call, name, arguments = await _called(ai, [*messages[-3:-1], *called], streams=False)
    request = {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
    results: list[Any] = [
        timed(9),
        {"role": "assistant", "tool_calls": [request]},
        {"role": "tool", "tool_call_id": call, "content": "rain"},
    ]
    assert await ask(ai, results, tools=[WEATHER]) == ("weather: rain", sessions[0])
    async with await client(window, "api:alice") as other:
        assert (await ask(other, messages[-3:]))[1] != sessions[0], "it is somebody else's"


async def test_two_conversations_that_end_alike_are_not_continued_by_their_last_messages(
    ai: openai.AsyncOpenAI,
) -> None:
    sessions: set[str] = set()
    for first in ("one", "two"):
        answer, session = await ask(ai, [user(first)])
        _, same = await ask(ai, [user(first), assistant(answer), user("thanks")])
        sessions |= {session, same}
    assert len(sessions) == 2
    _, fresh = await ask(ai, [user("thanks"), assistant("You said: thanks"), user("what did I say?")])
    assert fresh not in sessions


async def test_a_short_exchange_continues_nothing_where_not_all_conversations_are_compared(
    ai: openai.AsyncOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations, "_MAX_CANDIDATES", 1)
    ends = dict[str, str]()
    for first, text in (("one", "thanks"), ("two", "thanks"), ("three", "in words that nobody else uses " * 5)):
        answer, _ = await ask(ai, [user(first)])
        _, ends[first] = await ask(ai, [user(first), assistant(answer), user(text)])
        _, after = await ask(ai, [user(text), assistant(f"You said: {text}"), user("what did I say before?")])
        assert (after == ends[first]) is (first != "two")


async def test_an_edited_history_branches_or_starts_fresh(window: Opened, ai: openai.AsyncOpenAI) -> None:
    first, session = await ask(ai, [user("one")])
    await ask(ai, [user("one"), assistant(first), user("two")])
    changed: Messages = [user("one"), assistant(first), user("two, but otherwise")]
    _, branch = await ask(ai, changed)
    assert await said(window, branch) == ["one", first, "two, but otherwise", "You said: two, but otherwise"]
    assert (await said(window, session))[-2:] == ["two", "You said: two"], "nothing is lost"
    foreign: Messages = [user("one"), assistant("said elsewhere"), user("go on")]
    answer, fresh = await ask(ai, foreign)
    assert fresh not in {session, branch}
    begun = (await said(window, fresh))[0]
    assert begun == "So far:\n\nI said: one\n\nYou said: said elsewhere\n\nNow: go on"
    foreign += [assistant(answer), user("and on")]
    assert await ask(ai, foreign) == ("You said: and on", fresh), "from then on it matches"


async def test_people_who_begin_alike_never_meet(window: Opened, ai: openai.AsyncOpenAI) -> None:
    answer, owners = await ask(ai, [user("same")])
    async with await client(window, "api:alice") as other:
        _, robots = await ask(other, [user("same")])
        assert robots != owners
        _, guessed = await ask(other, [user("same"), assistant(answer), user("go on")])
        assert (guessed, await said(window, owners)) == (robots, ["same", answer])


async def test_neither_history_nor_results_lead_into_a_conversation_of_somebody_else(config: Config) -> None:
    """Not with the owner's token, which reads everything, and not with one of the same person for another profile."""
    grants = [{"platform": each.platform, "user_id": each.user_id} for each in config.grants]
    profiles = {"work": {}, "home": {"serves": [{"platform": "api"}]}}
    both = {"data_dir": config.data_dir, "store": config.store, "grants": grants, "profiles": profiles}
    async with opened(Config.model_validate(both)) as window, AsyncExitStack() as stack:
        callers = {
            "owner": await client(window),
            "alice": await client(window, "api:alice"),
            "alice at work": await client(window, "api:alice", profile="work"),
            "bob": await client(window, "api:bob"),
        }
        for each in callers.values():
            await stack.enter_async_context(each)
        words = "in words that nobody else uses " * 10
        history, told = dict[str, Messages](), dict[str, str]()
        for name, ai in callers.items():
            answer, session = await ask(ai, [user(words)])
            history[name] = [user(words), assistant(answer)]
            answer, again = await ask(ai, [*history[name], user(f"{words} more")])
            history[name] += [user(f"{words} more"), assistant(answer)]
            assert again == session
            told[name] = session
        assert len(set(told.values())) == len(callers)
        calls = {
            name: await _called(ai, [*history[name], user("!use weather {}")], streams=False)
            for name, ai in callers.items()
        }
        for name, ai in callers.items():
            for other in callers.keys() - {name, *(["alice at work"] if name == "alice" else [])}:
                result = _answered(*calls[other], "rain")
                for sent in ([*history[other], *result], result, [user("elsewhere"), *result]):
                    assert (await ask(ai, sent, tools=[WEATHER]))[1] != told[other], (name, other)
                assert (await ask(ai, [*history[other][-3:], user("go on")]))[1] != told[other]
                assert (await ask(ai, [*history[other], user("go on")]))[1] != told[other]
        for name, ai in callers.items():
            result = _answered(*calls[name], "rain")
            assert await ask(ai, [*history[name], *result], tools=[WEATHER]) == ("weather: rain", told[name])


async def test_requests_that_begin_alike_at_once_never_meet(window: Opened, ai: openai.AsyncOpenAI) -> None:
    answers = await asyncio.gather(*(ask(ai, [user("same")]) for _ in range(5)))
    assert {text for text, _ in answers} == {"You said: same"}
    sessions = {session for _, session in answers}
    assert len(sessions) == 5
    for session in sessions:
        assert await said(window, session) == ["same", "You said: same"]


async def test_requests_with_one_history_at_once_never_meet(config: Config) -> None:
    async def is_running() -> bool:
        return bool(await window.store.read(window.store.overview.list_open_turns(Principal.operator(), 1)))

    async def is_waiting() -> bool:
        return await window.store.read(window.store.inbox.count_waiting()) == 1

    limits = config.limits.model_copy(update={"concurrent_turns": 1})
    async with opened(config.model_copy(update={"limits": limits})) as window, await client(window) as ai:
        answer, session = await ask(ai, [user("one")])
        history = [user("one"), assistant(answer)]
        async with asyncio.TaskGroup() as group:
            group.create_task(ask(ai, [user("!slow 2 elsewhere")]))
            await until(is_running)
            first = group.create_task(ask(ai, [*history, user("two")]))
            await until(is_waiting)
            second = group.create_task(ask(ai, [*history, user("three")]))
        assert first.result() == ("You said: two", session)
        assert second.result()[0] == "You said: three"
        assert await said(window, session) == ["one", answer, "two", "You said: two"]
        assert await said(window, second.result()[1]) == ["one", answer, "three", "You said: three"]


async def test_a_conversation_that_began_elsewhere_is_not_continued_there(
    window: Opened, ai: openai.AsyncOpenAI
) -> None:
    async with program(window) as owner:
        begun = await say(owner, "same", conversation="elsewhere")
        await say(owner, f"/resume {begun['session']}", conversation=f"{conversation_name('same')}-ab")
        answer, session = await ask(ai, [user("same"), assistant(begun["answer"]), user("go on")])
        listed = (await owner.get("/sessions")).json()["sessions"]
    assert answer == "You said: So far:\n\nI said: same\n\nYou said: You said: same\n\nNow: go on"
    assert {each["id"] for each in listed} == {begun["session"], session}
    assert await said(window, begun["session"]) == ["same", "You said: same"]


async def test_bound_by_name_or_by_session(window: Opened, ai: openai.AsyncOpenAI) -> None:
    _, session = await ask(ai, [user("one")], user="alice's laptop")
    assert await ask(ai, [user("two")], user="alice's laptop") == ("You said: two", session)
    assert (await ask(ai, [user("three")], extra_headers={"X-Palaver-Session": session}))[1] == session
    assert (await ask(ai, [user("four")], metadata={"session": session}))[1] == session
    assert (await said(window, session))[::2] == ["one", "two", "three", "four"]
    with pytest.raises(openai.NotFoundError, match="no session"):
        await ask(ai, [user("x")], metadata={"session": "no such session"})


async def test_a_long_name_is_a_short_key(window: Opened, ai: openai.AsyncOpenAI) -> None:
    """PostgreSQL takes no key of more than 2,700 bytes."""
    name = "n" * 100_000
    _, session = await ask(ai, [user("one")], user=name)
    assert await ask(ai, [user("two")], user=name) == ("You said: two", session)
    assert (await ask(ai, [user("three")], user=f"{name}!"))[1] != session
    previews = await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9))
    assert max(len(preview.session.key.text) for preview in previews) < 200


async def test_answers_stream_as_they_grow(config: Config) -> None:
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=30))
    async with opened(config.model_copy(update={"agent": slowly})) as window, await client(window) as ai:
        stream = await ai.chat.completions.create(
            model="palaver", messages=[user("a b c d")], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
        assert "".join(pieces) == "You said: a b c d"
        assert len([piece for piece in pieces if piece]) > 2
        assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
        usage = chunks[-1].usage
        assert usage
        assert usage.completion_tokens > 0
        assert [chunk.choices[0].delta.role for chunk in chunks if chunk.choices and chunk.choices[0].delta.role] == [
            "assistant"
        ]


async def test_the_stream_helper_gives_a_message_to_send_again(config: Config) -> None:
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=1))
    async with opened(config.model_copy(update={"agent": slowly})) as window, await client(window) as ai:
        messages: Messages = [user("one")]
        sessions: list[str] = []
        for words in ("two", "three"):
            async with ai.chat.completions.stream(model="palaver", messages=messages) as stream:
                answer = (await stream.get_final_completion()).choices[0].message
                sessions.append(cast("Any", stream)._response.headers["x-palaver-session"])
            assert answer.role == "assistant"
            messages += [cast("ChatCompletionMessageParam", answer.to_dict()), user(words)]
        assert sessions == [sessions[0]] * 2
        assert await said(window, sessions[0]) == ["one", "You said: one", "two", "You said: two"]


async def test_a_client_in_threads_works_too(window: Opened) -> None:
    def talk(key: str) -> list[str]:
        with openai.OpenAI(base_url=f"{window.url}/v1", api_key=key) as ai:
            whole = ai.chat.completions.create(model=ai.models.list().data[0].id, messages=[user("hello")])
            grown = ai.chat.completions.create(model="palaver", messages=[user("again")], stream=True)
            return [
                whole.choices[0].message.content or "",
                "".join(chunk.choices[0].delta.content or "" for chunk in grown),
            ]

    assert await asyncio.to_thread(talk, await token(window)) == ["You said: hello", "You said: again"]


@pytest.mark.parametrize("streams", [False, True])
async def test_the_client_uses_its_own_tools(window: Opened, ai: openai.AsyncOpenAI, *, streams: bool) -> None:
    messages: Messages = [user('!use weather {"where": "here"}')]
    call, name, arguments = await _called(ai, messages, streams=streams)
    assert (name, json.loads(arguments)) == ("weather", {"where": "here"})
    messages.append(
        {
            "role": "assistant",
            "tool_calls": [{"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}],
        }
    )
    messages.append({"role": "tool", "tool_call_id": call, "content": "rain"})
    answer, session = await ask(ai, messages, tools=[WEATHER, CLOCK])
    assert answer == "weather: rain"
    assert await ask(ai, messages, tools=[WEATHER, CLOCK]) == (answer, session), "given again, nothing is done again"
    messages += [assistant(answer), user("thanks")]
    assert await ask(ai, messages) == ("You said: thanks", session)
    assert len(await window.store.read(window.store.trace.find_traces(session, Principal.operator()))) == 2


async def _called(ai: openai.AsyncOpenAI, messages: Messages, *, streams: bool) -> tuple[str, str, str]:
    tools = [WEATHER, CLOCK]
    if not streams:
        whole = await ai.chat.completions.create(model="palaver", messages=messages, tools=tools)
        assert whole.choices[0].finish_reason == "tool_calls"
        call = cast("Any", (whole.choices[0].message.tool_calls or [])[0])
        return call.id, call.function.name, call.function.arguments
    stream = await ai.chat.completions.create(model="palaver", messages=messages, tools=tools, stream=True)
    chunks = [chunk.choices[0] async for chunk in stream]
    assert chunks[-1].finish_reason == "tool_calls"
    (piece,) = [call for chunk in chunks for call in chunk.delta.tool_calls or []]
    assert piece.function
    return piece.id or "", piece.function.name or "", piece.function.arguments or ""


async def test_waiting_for_the_client_is_no_approval(window: Opened, ai: openai.AsyncOpenAI) -> None:
    messages: Messages = [user("!use weather {}")]
    for _ in range(2):
        await _called(ai, messages, streams=False)
        async with program(window) as owner, window.visit() as browser:
            assert (await owner.get("/approvals")).json() == {"turns": []}
            (turn,) = (await owner.get("/turns")).json()["turns"]
            assert (turn["state"], turn["asks"], turn["question"]) == ("parked", None, None)
            for page in ("/turns", f"/sessions/{turn['session']}"):
                shown = (await browser.get(page)).text
                assert "waiting for a tool that the client runs" in shown
                assert ">Approve<" not in shown
            for command, answer in (("approve", "nothing to approve"), ("status", "waiting for a tool")):
                done = await owner.post(f"/sessions/{turn['session']}/commands", json={"command": f"/{command}"})
                assert answer in done.json()["answer"]
            assert (await owner.post(f"/turns/{turn['id']}/stop")).json() == {"done": True}
            assert (await owner.get("/turns")).json() == {"turns": []}


async def test_a_tool_that_is_named_is_offered_alone(ai: openai.AsyncOpenAI) -> None:
    def choice(name: str) -> Any:
        return {"type": "function", "function": {"name": name}}

    told = await ai.chat.completions.create(
        model="palaver", messages=[user("!use clock {}")], tools=[WEATHER, CLOCK], tool_choice=choice("clock")
    )
    assert told.choices[0].finish_reason == "tool_calls"
    for chosen, words in ((choice("clock"), "!use weather {}"), ("required", "hello")):
        with pytest.raises(openai.InternalServerError, match="called no tool"):
            await ask(ai, [user(words)], tools=[WEATHER, CLOCK], tool_choice=chosen)
    refused: list[Any] = [choice("trumpet"), {"type": "function"}, {"type": "allowed_tools"}, [], 7]
    for wrong in refused:
        with pytest.raises(openai.BadRequestError):
            await ask(ai, [user("hello")], tools=[WEATHER], tool_choice=wrong)


async def test_calls_that_are_left_alone_keep_nobody_waiting(window: Opened, ai: openai.AsyncOpenAI) -> None:
    messages: Messages = [user("!use weather {}")]
    await _called(ai, messages, streams=False)
    other = [*messages, assistant(""), user("never mind")]
    answer, session = await ask(ai, other)
    assert answer == "You said: never mind"
    assert (await said(window, session))[0] == "!use weather {}"
    forged: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": "forged", "content": "x"}
    answer, fresh = await ask(ai, [*messages, assistant(""), forged])
    assert answer == "You said: So far:\n\nI said: !use weather {}\n\nNow: A tool returned: x"
    assert fresh != session, "a call that nobody made here changes nothing there"
    with pytest.raises(openai.BadRequestError, match="Nothing is waiting"):
        await ask(ai, [forged], metadata={"session": session})


def _answered(call: str, name: str, arguments: str, result: str) -> Messages:
    request: Any = {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "tool_calls": [request]},
        {"role": "tool", "tool_call_id": call, "content": result},
    ]


async def test_a_message_can_follow_the_results_of_tools(window: Opened, ai: openai.AsyncOpenAI) -> None:
    messages: Messages = [user('!use weather {"where": "here"}')]
    messages += _answered(*await _called(ai, messages, streams=False), "rain")
    messages.append(user("and tomorrow?"))
    answer, session = await ask(ai, messages, tools=[WEATHER])
    assert answer == "You said: and tomorrow?"
    entries = await window.store.read(window.store.transcript.load_visible(session, Principal.operator()))
    assert [(entry.role.value, entry.text) for entry in entries if entry.role != "note"] == [
        *(("user", '!use weather {"where": "here"}'), ("assistant", ""), ("tool", "rain")),
        *(("user", "and tomorrow?"), ("assistant", answer)),
    ]
    messages += [assistant(answer), user("thanks")]
    assert await ask(ai, messages) == ("You said: thanks", session)


async def test_a_history_with_tools_that_is_not_ours_is_taken_as_given(ai: openai.AsyncOpenAI) -> None:
    called = _answered("c1", "weather", '{"where": "Rome"}', "rain")
    told = 'weather({"where": "Rome"}) returned: rain'
    for more, text in (([], f"Now: {told}"), ([user("well?")], f"{told}\n\nNow: well?")):
        messages = [user(f"how is it? {len(more)}"), *called, *more]
        answer, session = await ask(ai, messages, tools=[WEATHER])
        assert answer == f"You said: So far:\n\nI said: how is it? {len(more)}\n\n{text}"
        messages += [assistant(answer), user("thanks")]
        assert await ask(ai, messages) == ("You said: thanks", session), "from then on it matches"


async def test_a_retry_is_answered_once(window: Opened, ai: openai.AsyncOpenAI) -> None:
    first, _ = await ask(ai, [user("one")])
    key = {"Idempotency-Key": "k1"}
    history: Messages = [user("one"), assistant(first), user("two")]
    found = [await ask(ai, history, extra_headers=key) for _ in range(3)]
    assert len(set(found)) == 1
    assert (await said(window, found[0][1]))[::2] == ["one", "two"]
    begun = await asyncio.gather(*(ask(ai, [user("x")], extra_headers={"Idempotency-Key": "k2"}) for _ in range(2)))
    assert begun[0] == begun[1]


async def test_who_goes_away_finds_the_answer_later(window: Opened) -> None:
    async with await client(window, timeout=0.3, max_retries=0) as hasty:
        with pytest.raises(openai.APITimeoutError):
            await ask(hasty, [user("!slow 1 hello")], extra_headers={"Idempotency-Key": "k"})
    async with await client(window) as ai:
        answer, session = await ask(ai, [user("!slow 1 hello")], extra_headers={"Idempotency-Key": "k"})
        assert answer == "You said: hello"
        assert len(await said(window, session)) == 2


async def test_nobody_streams_to_who_has_gone(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the first word, and in the middle."""
    settled: list[bool] = []
    begun = asyncio.Event()
    waiting = ReplyWaiter.waiting

    @contextmanager
    def watched(waiter: ReplyWaiter, number: int) -> Generator[PendingReply]:
        with waiting(waiter, number) as pending:
            begun.set()
            try:
                yield pending
            finally:
                settled.append(pending.is_settled)

    monkeypatch.setattr(ReplyWaiter, "waiting", watched)
    async with opened(config) as window, await client(window) as hasty:
        asking = hasty.chat.completions.create(model="palaver", messages=[user("!slow 5 hello")], stream=True)
        leaving = asyncio.create_task(asking)
        await begun.wait()
        leaving.cancel()
        await until(lambda: settled == [False])
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=200))
    async with opened(config.model_copy(update={"agent": slowly})) as window, await client(window) as ai:
        words = "a b c d e f g h i j k l m n o p"
        stream = await ai.chat.completions.create(model="palaver", messages=[user(words)], stream=True)
        await anext(aiter(stream))
        await stream.close()
        await until(lambda: settled == [False, False])


async def test_a_message_that_is_refused_late_is_reported_at_once(
    window: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_waiter, "POLL_SECONDS", 3600.0)
    block = Grant(platform="api", user_id="alice", effect=Effect.BLOCK, kind=ChatKind.DM)  # her key goes on

    async def runs() -> bool:
        return bool(await window.store.read(window.store.overview.list_open_turns(Principal.operator(), 1)))

    async def both_wait() -> bool:
        return await window.store.read(window.store.inbox.count_waiting()) == 2

    async with await client(window, "api:alice", max_retries=0) as ai, asyncio.TaskGroup() as group:
        group.create_task(_refused(ai, "!slow 2 one", "can no longer read", user="me"))
        await until(runs)
        more: list[dict[str, Any]] = [{}, {"stream": True}]
        for each in more:
            group.create_task(_refused(ai, user="me", **each))
        await until(both_wait)
        await window.store.transact(window.store.grants.add(block, SystemClock().now(), by="owner", force=True))
    async with await client(window) as owner:
        for number in (2, 3):
            name = window.store.epochs.message(number).removeprefix("in:")
            stored = await owner.responses.retrieve(f"resp_in_{name}")
            assert stored.status == "failed"
            assert "a grant blocks this sender" in cast("Any", stored.error).message


async def _refused(
    ai: openai.AsyncOpenAI, text: str = "two", reason: str = "a grant blocks this sender", **more: Any
) -> None:
    with pytest.raises(openai.PermissionDeniedError, match=reason) as refused:
        await ask(ai, [user(text)], **more)
    assert refused.value.response.headers["x-should-retry"] == "false"


async def test_words_are_no_commands_and_questions_are_reported(window: Opened, ai: openai.AsyncOpenAI) -> None:
    """What such a client sends may be anybody's: a person gives leave elsewhere."""
    assert (await ask(ai, [user("/whoami")]))[0] == "You said: /whoami"
    answer, _ = await ask(ai, [user("!approve this")], user="me")
    assert "May I use the echo tool for: this" in answer
    assert (await ask(ai, [user("/approve")], user="me"))[0] == "You said: /approve", "it withdraws the question"
    window.gateway.reload(window.config.model_copy(update={"questions": QuestionMode.WAIT}))
    await ask(ai, [user("!approve that")], user="me")
    for words in ("meanwhile", "/approve"):
        with pytest.raises(openai.ConflictError, match="/approve"):
            await ask(ai, [user(words)], user="me")
    assert await window.store.read(window.store.inbox.count_waiting()) == 2


async def test_files_come_inside_messages(window: Opened, ai: openai.AsyncOpenAI) -> None:
    picture = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
    parts: Any = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": picture}}]
    _, session = await ask(ai, [{"role": "user", "content": parts}])
    entries = await window.store.read(window.store.transcript.load_visible(session, Principal.operator()))
    assert [file.media_type for entry in entries for file in entry.files] == ["image/png"]
    parts[1]["image_url"]["url"] = "http://127.0.0.1/secret"
    with pytest.raises(openai.BadRequestError, match="data:"):
        await ask(ai, [{"role": "user", "content": parts}])


async def test_what_goes_wrong_is_reported_as_openai_does(window: Opened, ai: openai.AsyncOpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as failed:
        await ask(ai, [user("!fail now")])
    assert "asked to fail" not in failed.value.message
    with pytest.raises(openai.InternalServerError):
        await ai.chat.completions.create(model="palaver", messages=[user("!fail now")], stream=True)
    with pytest.raises(openai.NotFoundError):
        await ai.chat.completions.create(model="gpt-4o", messages=[user("hello")])
    with pytest.raises(openai.NotFoundError):
        await ai.models.retrieve("gpt-4o")
    wrong: list[dict[str, Any]] = [
        {"n": 2},
        {"tool_choice": "required"},
        {"tool_choice": "None"},
        {"functions": [{"name": "weather"}]},
        {"function_call": "auto"},
        {"stop": list("abcde")},
        {"stop": ""},
        {"response_format": {"type": "json_schema"}},
        {"response_format": {"type": "xml"}},
    ]
    for more in wrong:
        with pytest.raises(openai.BadRequestError):
            await ask(ai, [user("hello")], **more)
    for messages, found in (
        ([], "from 'nobody'"),
        ([assistant("hello")], "from 'assistant'"),
        ([user(" ")], "text or files"),
    ):
        with pytest.raises(openai.BadRequestError, match=found):
            await ask(ai, messages)
    with pytest.raises(openai.AuthenticationError, match="token"):
        await ask(ai.with_options(api_key="pal_wrong"), [user("hello")])
    async with await client(window, "telegram:7") as mute:
        with pytest.raises(openai.PermissionDeniedError, match="--as api:NAME"):
            await ask(mute, [user("hello")])
    assert (await window.store.read(window.store.inbox.count_waiting())) == 0


async def test_caps_say_when_there_is_room_again(config: Config) -> None:
    caps = CapsConfig.model_validate({"person_day": {"tokens": 1}})
    async with opened(config.model_copy(update={"caps": caps})) as window, await client(window) as ai:
        await ask(ai, [user("hello there")])
        for more in ({}, {"stream": True}):
            with pytest.raises(openai.RateLimitError, match="You have reached") as capped:
                await ai.chat.completions.create(model="palaver", messages=[user("more")], **cast("Any", more))
            assert 0 < int(capped.value.response.headers["retry-after"]) <= 86_400


async def test_words_have_an_end(window: Opened) -> None:
    """Files may be large; anything that is hashed, compared, split and kept as words may not."""
    long, half = "w" * 200_001, "w" * 100_001
    tool = {"type": "function", "function": {"name": "weather", "description": long}}
    called = {"role": "assistant", "tool_calls": [{"id": "c", "type": "function"}]}
    results = [user("x"), called, {"role": "tool", "tool_call_id": "c", "content": long}]
    wrong: list[tuple[list[Any], dict[str, Any]]] = [
        ([user(long)], {}),
        ([{"role": "system", "content": long}, user("x")], {}),
        ([{"role": "system", "content": half}, user(half)], {"user": "me"}),
        ([user(half), assistant(half), user("x")], {}),
        ([user("x")], {"tools": [tool]}),
        (results, {}),
        ([*[user("w" * 50), assistant("w" * 50)] * 30_000, user("x")], {}),
    ]
    headers = {"authorization": f"Bearer {await token(window, None, Right.CHAT)}"}
    async with httpx.AsyncClient(base_url=window.url, headers=headers, timeout=60) as web:
        for messages, more in wrong:
            answer = await web.post("/v1/chat/completions", json={"model": "palaver", "messages": messages, **more})
            assert (answer.status_code, answer.json()["error"]["type"]) == (413, "invalid_request_error"), answer.text
            assert "not " in answer.json()["error"]["message"]
    assert await window.store.read(window.store.session_list.recent_sessions(Principal.operator(), 9)) == []


async def test_a_request_that_is_none_is_refused(window: Opened) -> None:
    headers = {"authorization": f"Bearer {await token(window)}"}
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers=headers) as web:
        for body in (b"", b"{", b'{"model": 7}', b"\xff", b'{"model":"palaver","messages":[{"role":"\\ud800"}]}'):
            answer = await web.post("/v1/chat/completions", content=body)
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
        assert (await web.get("/v1/nowhere")).json()["error"]["type"] == "not_found_error"
