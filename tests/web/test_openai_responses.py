"""The Responses API with OpenAI's own client: whole and streamed, bound to sessions, with tools and schemas."""

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import openai
import pytest
from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall

from palaver.config.model import Config
from palaver.settings.agents import EchoAgentConfig
from tests.agents.fake_provider import Says
from tests.web.conftest import Opened
from tests.web.test_api import PEOPLE, program, say
from tests.web.test_openai import client, said
from tests.web.test_openai_models import Trip, modelled

WEATHER: FunctionToolParam = {
    "type": "function",
    "name": "weather",
    "parameters": {"type": "object", "properties": {}},
    "strict": False,
}


@pytest.fixture
def config(tmp_path: Path) -> Config:
    slowly = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=25))
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE, agent=slowly)


@pytest.fixture
async def ai(window: Opened) -> AsyncIterator[openai.AsyncOpenAI]:
    async with await client(window, max_retries=0) as ai:
        yield ai


async def ask(ai: openai.AsyncOpenAI, words: Any, **more: Any) -> tuple[Any, str]:
    """The response, and its session."""
    create = cast("Any", ai.responses.with_raw_response.create)
    raw = await create(model="palaver", input=words, **more)
    return raw.parse(), raw.headers["x-palaver-session"]


async def test_a_response_follows_another(window: Opened, ai: openai.AsyncOpenAI) -> None:
    one, session = await ask(ai, "one", instructions="Be brief.")
    assert (one.output_text, one.status) == ("You said: Be brief.\n\none", "completed")
    assert one.usage.output_tokens > 0
    two, same = await ask(ai, "two", previous_response_id=one.id)
    assert (two.output_text, same, two.previous_response_id) == ("You said: two", session, one.id)
    other, branch = await ask(ai, "two, but otherwise", previous_response_id=one.id)
    assert await said(window, branch) == ["Be brief.\n\none", one.output_text, "two, but otherwise", other.output_text]
    assert (await said(window, session))[-2:] == ["two", "You said: two"], "nothing is lost"
    three, again = await ask(ai, "three", previous_response_id=two.id)
    assert (await said(window, again))[::2] == ["Be brief.\n\none", "two", "three"]
    assert (await ai.responses.retrieve(three.id)).output_text == "You said: three"
    for wrong in ("resp_in_999", "resp_elsewhere"):
        with pytest.raises(openai.NotFoundError):
            await ask(ai, "x", previous_response_id=wrong)
    async with await client(window, "api:alice") as other_person:
        with pytest.raises(openai.NotFoundError):
            await ask(other_person, "x", previous_response_id=one.id)
        with pytest.raises(openai.NotFoundError):
            await other_person.responses.retrieve(one.id)


async def test_an_answer_that_a_summary_covers_is_still_there(window: Opened, ai: openai.AsyncOpenAI) -> None:
    long = "w" * 1000
    one, session = await ask(ai, f"one {long}")
    newest = one
    for text in ("two", "three", "four"):
        newest, _ = await ask(ai, f"{text} {long}", previous_response_id=newest.id)
    async with program(window) as owner:
        told = await say(owner, "/compress", session=session)
        assert one.output_text not in await said(window, session), told
        assert (await ai.responses.retrieve(one.id)).output_text == one.output_text
        number = one.id.split("_")[2]
        assert (await owner.get(f"/messages/in:{number}")).json()["answer"] == one.output_text
    again, branch = await ask(ai, "two, but otherwise", previous_response_id=one.id)
    assert (await said(window, branch))[1:] == [one.output_text, "two, but otherwise", again.output_text]
    assert branch != session
    five, branch = await ask(ai, "five", previous_response_id=newest.id)
    assert (await said(window, branch))[-2:] == ["five", five.output_text]


async def test_a_history_of_items_is_a_conversation(window: Opened, ai: openai.AsyncOpenAI) -> None:
    items: list[Any] = [{"role": "user", "content": "one"}]
    first, session = await ask(ai, items)
    items += [item.to_dict() for item in first.output]
    items += [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "two"}]}]
    second, same = await ask(ai, items)
    assert (second.output_text, same) == ("You said: two", session)
    references = [items[0], {"type": "item_reference", "id": second.output[0].id}, {"role": "user", "content": "three"}]
    assert (await ask(ai, references))[1] == session
    assert (await ask(ai, "four", conversation=session))[1] == session
    assert (await said(window, session))[::2] == ["one", "two", "three", "four"]
    wrong: list[dict[str, Any]] = [
        {"input": [{"type": "computer_call"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "background": True},
        {"input": []},
    ]
    for each in wrong:
        with pytest.raises(openai.BadRequestError):
            await ai.responses.create(model="palaver", **each)


async def test_a_key_makes_a_retry_safe(window: Opened, ai: openai.AsyncOpenAI) -> None:
    first, session = await ask(ai, "one")
    key = {"Idempotency-Key": "k1"}
    for _ in range(2):
        answer, same = await ask(ai, "two", previous_response_id=first.id, extra_headers=key)
        assert (answer.output_text, same) == ("You said: two", session)
    assert (await said(window, session))[::2] == ["one", "two"]


async def test_responses_stream(ai: openai.AsyncOpenAI) -> None:
    async with ai.responses.stream(model="palaver", input="a b c") as stream:
        events = [event async for event in stream]
        whole = await stream.get_final_response()
        assert cast("Any", stream)._response.headers["x-palaver-session"]
    assert whole.output_text == "You said: a b c"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        *("response.created", "response.in_progress"),
        *("response.output_item.added", "response.content_part.added"),
    ]
    assert kinds.count("response.output_text.delta") > 1
    assert kinds[-4:] == [
        *("response.output_text.done", "response.content_part.done"),
        *("response.output_item.done", "response.completed"),
    ]
    with pytest.raises(openai.InternalServerError):
        await ai.responses.create(model="palaver", input="!fail now", stream=True)


@pytest.mark.parametrize("follows", [True, False])
async def test_tools_of_the_client(window: Opened, ai: openai.AsyncOpenAI, *, follows: bool) -> None:
    words: list[Any] = [{"role": "user", "content": '!use weather {"where": "here"}'}]
    async with ai.responses.stream(model="palaver", input=words, tools=[WEATHER]) as stream:
        called = await stream.get_final_response()
    (call,) = called.output
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.name, call.arguments) == ("weather", '{"where": "here"}')
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    more: dict[str, Any] = {"previous_response_id": called.id} if follows else {}
    items = [result] if follows else [*words, call.to_dict(), result]
    answer, session = await ask(ai, items, tools=[WEATHER], **more)
    assert answer.output_text == "weather: rain"
    assert (await said(window, session))[-1] == "weather: rain"


async def test_a_response_follows_the_schema(tmp_path: Path) -> None:
    async with modelled(tmp_path, Says(text='{"where": "Rome", "days": 3}')) as (ai, provider):
        answer = await ai.responses.parse(model="palaver", input="plan", text_format=Trip)
        assert answer.output_parsed == Trip(where="Rome", days=3)
        assert provider.requests[-1]["response_format"]["json_schema"]["name"] == "Trip"


async def test_a_response_that_is_fetched_again_has_the_same_ids(ai: openai.AsyncOpenAI) -> None:
    one, _ = await ask(ai, "one")
    again = cast("Any", await ai.responses.retrieve(one.id))
    assert (again.id, again.output[0].id) == (one.id, one.output[0].id)


async def test_input_items_are_listed_and_responses_deleted(window: Opened, ai: openai.AsyncOpenAI) -> None:
    words = '!use weather {"where": "here"}'
    called, session = await ask(ai, words, tools=[WEATHER])
    call = called.output[0].call_id
    result: Any = {"type": "function_call_output", "call_id": call, "output": "rain"}
    answer, _ = await ask(ai, [result], previous_response_id=called.id, tools=[WEATHER])
    items = [item async for item in await ai.responses.input_items.list(answer.id, order="asc")]
    assert cast("Any", items[0]).content[0].text == words
    assert (cast("Any", items[1]).call_id, cast("Any", items[1]).output) == (call, "rain")
    with pytest.raises(openai.NotFoundError):
        await ai.responses.input_items.list("resp_in_999")
    async with await client(window, "api:alice") as other:
        for refused in (other.responses.delete, other.responses.input_items.list):
            with pytest.raises(openai.NotFoundError):
                await refused(answer.id)
    second, _ = await ask(ai, "two", previous_response_id=answer.id)
    with pytest.raises(openai.ConflictError, match=f"DELETE /api/v1/sessions/{session}"):
        await ai.responses.delete(second.id)
    kept, _ = await ask(ai, "kept")
    with pytest.raises(openai.InternalServerError):
        await ai.with_options(max_retries=0).responses.create(
            model="palaver", input="!fail", previous_response_id=kept.id
        )
    with pytest.raises(openai.ConflictError):  # a message without an answer is there, too
        await ai.responses.delete(kept.id)
    alone, _ = await ask(ai, "alone")
    await ai.responses.delete(alone.id)
    with pytest.raises(openai.NotFoundError):
        await ai.responses.retrieve(alone.id)
