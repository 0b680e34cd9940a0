"""Chat completions before a real model: what a client asks of the answer reaches the provider, and errors come back."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from pydantic import BaseModel, SecretStr

from palaver.config.model import Config
from palaver.engine import texts
from palaver.engine.turns import runner
from palaver.settings.agents import ModelAgentConfig
from palaver.settings.limits import LimitsConfig
from palaver.settings.quotas import GrantConfig
from tests.agents.fake_provider import Call, Provider, Refuses, Says, Step, providing
from tests.agents.model_helpers import KEY, MODEL
from tests.web.conftest import opened
from tests.web.test_api import token

WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


class Trip(BaseModel):
    where: str
    days: int


@asynccontextmanager
async def modelled(folder: Path, *script: Step, tries: int = 1) -> AsyncGenerator[tuple[openai.AsyncOpenAI, Provider]]:
    async with providing(*script) as provider:
        agent = ModelAgentConfig(model=MODEL, key=SecretStr(KEY), base_url=provider.openai)
        limits = LimitsConfig(agent_tries=tries)
        config = Config(data_dir=folder, store=str(folder / "palaver.db"), agent=agent, limits=limits, titles=False)
        async with opened(config) as window:
            url = f"{window.url}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key=await token(window), max_retries=0) as ai:
                yield ai, provider


async def test_changed_instructions_reach_the_model_and_stay_out_of_the_history(tmp_path: Path) -> None:
    async with modelled(tmp_path, *[Says(text="Yes.")] * 4) as (ai, provider):
        messages: list[Any] = [*HELLO]
        for system in ("It is noon.", "It is noon.", "It is one.", "It is two."):
            told: Any = {"role": "system", "content": system}
            await ai.chat.completions.create(model="palaver", messages=[told, *messages])
            messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "and now?"}]
        requests = [str(request["messages"]) for request in provider.requests]
        assert [text.count("It is noon.") for text in requests] == [1] * 4, "the conversation began with it"
        assert [text.count("It is one.") for text in requests] == [0, 0, 1, 0]
        assert [text.count("It is two.") for text in requests] == [0, 0, 0, 1]


async def test_a_web_user_reads_what_to_do_and_only_the_owner_why(tmp_path: Path) -> None:
    """When the provider limits requests, and when nobody answers at its address."""
    limit = Refuses(status=429, message="slow down", code="rate_limit_exceeded")
    async with providing(limit, limit) as provider:
        for name, url, seen, why in (
            ("limited", provider.openai, texts.RATE_LIMITED, "scripted gets too many requests."),
            ("gone", "http://127.0.0.1:9/v1", texts.UNAVAILABLE, "scripted cannot be reached."),
        ):
            agent = ModelAgentConfig(model=MODEL, key=SecretStr(KEY), base_url=url)
            folder = tmp_path / name
            folder.mkdir()
            config = Config(data_dir=folder, store=str(folder / "palaver.db"), agent=agent, titles=False)
            grants = (GrantConfig(platform="web", user_id="alice"),)
            config = config.model_copy(update={"grants": grants, "limits": LimitsConfig(agent_tries=1)})
            async with opened(config) as window, window.visit() as owner, window.visit("web:alice") as alice:
                for person, words, others in ((alice, seen, why), (owner, why, seen)):
                    await person.post("/chat/main", data={"text": "hello", "id": "1"})
                    page = await _until_shown(person, words)
                    assert others not in page
                    assert "Try again" in page


async def _until_shown(client: httpx.AsyncClient, words: str) -> str:
    async with asyncio.timeout(60):
        while words not in (page := (await client.get("/chat/main")).text):  # noqa: ASYNC110 - as a person would
            await asyncio.sleep(0.02)
    return page


async def test_what_the_provider_refuses_is_reported_as_openai_does(tmp_path: Path) -> None:
    refusals: list[tuple[Refuses, type[openai.APIStatusError], str]] = [
        (Refuses(status=429, message="slow down"), openai.RateLimitError, "rate_limit_exceeded"),
        (Refuses(status=400, message="bad picture"), openai.BadRequestError, "invalid_prompt"),
        (
            Refuses(status=400, message="too long", code="context_length_exceeded"),
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        (Refuses(status=503, message="out of order"), openai.InternalServerError, "provider_unavailable"),
        (Refuses(status=401, message="bad key"), openai.InternalServerError, "agent_failed"),
    ]
    async with modelled(tmp_path) as (ai, provider):
        for refusal, kind, code in refusals:
            for more in ({}, {"stream": True}):
                provider.then(refusal)
                with pytest.raises(kind) as told:
                    await ai.chat.completions.create(model="palaver", messages=HELLO, **dict[str, Any](more))
                assert told.value.code == code
                assert refusal.message not in told.value.message
                assert told.value.response.headers["x-should-retry"] == "false"
        provider.then(Says(text="Hello yourself."))
        answer = await ai.chat.completions.create(model="palaver", messages=HELLO)
        assert answer.choices[0].message.content == "Hello yourself."


async def test_the_provider_s_wait_and_cached_tokens_are_passed_on(tmp_path: Path) -> None:
    async with modelled(tmp_path) as (ai, provider):
        for status, kind in ((429, openai.RateLimitError), (503, openai.InternalServerError)):
            for more in ({}, {"stream": True}):
                provider.then(Refuses(status=status, headers={"retry-after": "120"}))
                with pytest.raises(kind) as told:
                    await ai.chat.completions.create(model="palaver", messages=HELLO, **dict[str, Any](more))
                assert 0 < int(told.value.response.headers["retry-after"]) <= 120
        provider.then(Refuses(status=429))
        with pytest.raises(openai.RateLimitError) as told:
            await ai.responses.create(model="palaver", input="hello")
        assert "retry-after" not in told.value.response.headers
        provider.then(Says(text="Hi.", input_tokens=10, cached_tokens=7))
        answer = await ai.chat.completions.create(model="palaver", messages=HELLO)
        assert answer.usage and answer.usage.prompt_tokens_details  # noqa: PT018
        assert answer.usage.prompt_tokens_details.cached_tokens == 7
        provider.then(Says(text="Hi.", input_tokens=10, cached_tokens=6))
        response = await ai.responses.create(model="palaver", input="hello again")
        assert response.usage
        assert response.usage.input_tokens_details.cached_tokens == 6


async def test_an_answer_follows_the_schema(tmp_path: Path) -> None:
    async with modelled(tmp_path, Says(text='{"where": "Rome", "days": 3}')) as (ai, provider):
        answer = await ai.chat.completions.parse(model="palaver", messages=HELLO, response_format=Trip)
        assert answer.choices[0].message.parsed == Trip(where="Rome", days=3)
        asked = provider.requests[-1]["response_format"]["json_schema"]
        assert (asked["name"], asked["strict"]) == ("Trip", True)
        assert asked["schema"]["required"] == ["where", "days"]
        provider.then(Says(text="{}"))
        loose = await ai.chat.completions.create(
            model="palaver", messages=HELLO, response_format={"type": "json_object"}
        )
        assert loose.choices[0].message.content == "{}"
        for streams in (False, True):
            provider.then(Says(text="I would rather talk."))
            with pytest.raises(openai.APIError, match="did not answer in the JSON"):
                await _json(ai, stream=streams)


async def _json(ai: openai.AsyncOpenAI, *, stream: bool) -> None:
    told = await ai.chat.completions.create(
        model="palaver", messages=HELLO, response_format={"type": "json_object"}, stream=stream
    )
    if isinstance(told, openai.AsyncStream):
        _ = [chunk async for chunk in told]


async def test_a_tool_that_is_demanded_is_called_first(tmp_path: Path) -> None:
    async with modelled(tmp_path, Says(calls=(Call("weather"),)), Says(text="Sunny.")) as (ai, provider):
        messages: list[Any] = list(HELLO)
        create = cast("Any", ai.chat.completions.create)
        asked: dict[str, Any] = {"model": "palaver", "tools": [WEATHER], "tool_choice": "required"}
        called = (await create(messages=messages, **asked)).choices[0].message
        assert called.tool_calls
        assert provider.requests[-1]["tool_choice"]["function"] == {"name": "weather"}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": called.tool_calls[0].id, "type": "function"}]},
            {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "sun"},
        ]
        answer = await create(messages=messages, **asked)
        assert answer.choices[0].message.content == "Sunny."
        assert provider.requests[-1]["tool_choice"] == "auto"


async def test_an_answer_ends_at_a_stop(tmp_path: Path) -> None:
    """Also if the model goes on; what is stored is what the client has, so its next message goes on from there."""
    async with modelled(tmp_path) as (ai, provider):
        for streams in (False, True):
            provider.then(Says(text="one two END three"), Says(text="more"))
            messages: list[Any] = list(HELLO)
            told = await ai.chat.completions.create(
                model="palaver", messages=messages, stop=["ENDE", "END"], stream=streams
            )
            if isinstance(told, openai.AsyncStream):
                text = "".join([chunk.choices[0].delta.content or "" async for chunk in told])
            else:
                text = told.choices[0].message.content or ""
            assert text == "one two "
            assert provider.requests[-1]["stop"] == ["ENDE", "END"]
            messages += [{"role": "assistant", "content": text}, {"role": "user", "content": "go on"}]
            await ai.chat.completions.create(model="palaver", messages=messages)
            *_, first, second, third = [message["content"] for message in provider.requests[-1]["messages"]]
            assert ("hello" in first, second, "go on" in third) == (True, text, True)


async def test_what_is_streamed_is_the_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a tool before the JSON that the client demands, and when the model breaks off and is asked again.

    A stream whose text turns out not to be the answer ends with an error.
    """

    def at_once(_attempt: int, *, first: float, longest: float) -> float:
        return 0.0 * (first + longest)

    monkeypatch.setattr(runner, "backoff", at_once)
    checks = Says(text="Let me check.", calls=(Call("search", '{"query": "Rome"}'),))
    breaks_off, json = Says(text="Hello there.", cut_after=2), '{"where": "Rome", "days": 3}'
    async with modelled(tmp_path, tries=2) as (ai, provider):
        for stream in (_stream_chat, _stream_response):
            heard = asyncio.Event()
            for script, as_json, answer in (
                ([checks, Says(text=json)], True, json),
                ([checks, Says(text="Three days.", waits_for=heard)], False, "Let me check.\n\nThree days."),
                ([breaks_off, Says(text="Hello there.", waits_for=heard)], False, "Hello there."),
                ([Says(text="four\ud83d\ude00 done")], False, "four\N{GRINNING FACE} done"),
            ):
                heard.clear()
                provider.then(*script)
                assert await stream(ai, heard, as_json=as_json) == answer
            heard.clear()
            provider.then(breaks_off, Says(text="Good day.", waits_for=heard))
            assert "started its answer over" in await stream(ai, heard, as_json=False)
            assert not provider.script


async def test_an_answer_that_the_model_could_not_finish_says_so(tmp_path: Path) -> None:
    begun = Says(text='{"where": "Ro', stop="length")
    async with modelled(tmp_path, *[begun] * 4) as (ai, _):
        create = cast("Any", ai.chat.completions.create)
        (choice,) = (await create(model="palaver", messages=HELLO, response_format={"type": "json_object"})).choices
        assert (choice.message.content, choice.finish_reason) == (begun.text, "length")
        chunks = await create(model="palaver", messages=HELLO, stream=True)
        assert [end async for chunk in chunks if (end := chunk.choices[0].finish_reason)] == ["length"]

        answer = await ai.responses.create(model="palaver", input="hello")
        assert answer.output_text == begun.text
        stored = await ai.responses.retrieve(answer.id)
        async with ai.responses.stream(model="palaver", input="hello") as stream:
            *_, last = [event async for event in stream]
        assert last.type == "response.incomplete"
        for each in (answer, stored, last.response):
            assert each.status == "incomplete"
            assert each.incomplete_details is not None
            assert each.incomplete_details.reason == "max_output_tokens"
            assert cast("Any", each.output[0]).status == "incomplete"


async def _stream_chat(ai: openai.AsyncOpenAI, heard: asyncio.Event, *, as_json: bool) -> str:
    more: dict[str, Any] = {"response_format": {"type": "json_object"}} if as_json else {}
    chunks = await cast("Any", ai.chat.completions.create)(model="palaver", messages=HELLO, stream=True, **more)
    grown = ""
    try:
        async for chunk in chunks:
            grown += chunk.choices[0].delta.content or ""
            heard.set()
    except openai.APIError as error:
        return error.message
    return grown


async def _stream_response(ai: openai.AsyncOpenAI, heard: asyncio.Event, *, as_json: bool) -> str:
    more: dict[str, Any] = {"text": {"format": {"type": "json_object"}}} if as_json else {}
    events = await cast("Any", ai.responses.create)(model="palaver", input="hello", stream=True, **more)
    grown = ""
    async for event in events:
        if event.type == "response.output_text.delta":
            grown += event.delta
            heard.set()
        if event.type == "error":
            return event.message
        assert event.type != "response.completed" or event.response.output[0].content[0].text == grown
    return grown


async def test_results_go_to_the_conversation_that_called_however_calls_are_named(tmp_path: Path) -> None:
    """The model names each of its calls `call_0`, in conversations that begin alike."""
    call = Says(calls=(Call("weather", id="call_0"),))
    async with modelled(tmp_path) as (ai, provider):
        create = cast("Any", ai.chat.completions.create)
        begun: list[Any] = [*HELLO, {"role": "assistant", "content": "Hi."}]
        chats: list[list[Any]] = []
        provider.then(Says(text="Hi."))
        await create(model="palaver", messages=HELLO)
        for question in ("A?", "B?"):
            chats.append([*begun, {"role": "user", "content": question}])
            provider.then(call)
            told = (await create(model="palaver", messages=chats[-1], tools=[WEATHER])).choices[0].message
            called = {"id": told.tool_calls[0].id, "type": "function"}
            chats[-1] += [
                {"role": "assistant", "tool_calls": [called]},
                {"role": "tool", "tool_call_id": called["id"], "content": f"sun {question}"},
            ]
        for question, messages in zip(("A?", "B?"), chats, strict=True):
            provider.then(Says(text=f"Sunny {question}"))
            for _ in range(2):  # given again, nothing is done again
                answer = await create(model="palaver", messages=messages, tools=[WEATHER])
                assert answer.choices[0].message.content == f"Sunny {question}"
            seen = [message["content"] for message in provider.requests[-1]["messages"]]
            assert seen[-1] == f"sun {question}"
            assert question in str(seen[-3])


async def test_results_under_one_key_are_given_once_and_other_results_get_409(tmp_path: Path) -> None:
    async with modelled(tmp_path) as (ai, provider):
        create = cast("Any", ai.chat.completions.create)
        provider.then(Says(calls=(Call("weather", id="call_0"),)))
        told = (await create(model="palaver", messages=HELLO, tools=[WEATHER])).choices[0].message
        called = {"id": told.tool_calls[0].id, "type": "function"}

        async def give(key: str, result: str) -> str:
            result_message = {"role": "tool", "tool_call_id": called["id"], "content": result}
            messages = [*HELLO, {"role": "assistant", "tool_calls": [called]}, result_message]
            answer = await create(
                model="palaver", messages=messages, tools=[WEATHER], extra_headers={"Idempotency-Key": key}
            )
            return answer.choices[0].message.content

        provider.then(Says(text="Sunny."))
        assert await asyncio.gather(*(give("r1", "sun") for _ in range(3))) == ["Sunny."] * 3
        with pytest.raises(openai.ConflictError):
            await give("r1", "rain")
        with pytest.raises(openai.ConflictError):
            await create(model="palaver", messages=HELLO, extra_headers={"Idempotency-Key": "r1"})
        assert await give("r2", "sun") == "Sunny.", "given again under another key"
        with pytest.raises(openai.ConflictError):
            await give("r2", "rain")
        # What was said since changes nothing about the request.
        provider.then(Says(text="Bye."))
        await create(model="palaver", messages=[*HELLO, {"role": "assistant", "content": "Sunny."}, *HELLO])
        assert await give("r1", "sun") == "Sunny."
        assert len(provider.requests) == 3
