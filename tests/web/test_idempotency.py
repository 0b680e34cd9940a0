"""One request under one key: its answer as often as it is asked for, never a second one, and 409 for anything else."""

import asyncio
import base64
import json
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from palaver.config.model import Config, PlatformConfig
from palaver.db.transaction import Statements, transaction
from palaver.model.session import Principal
from palaver.settings.limits import LimitsConfig
from palaver.settings.quotas import GrantConfig
from tests.platforms.webhook.loopback import SECRET
from tests.web.conftest import Opened
from tests.web.test_api import PEOPLE, program
from tests.web.test_openai import ask, assistant, client, said, user

LONG = "w" * 1000


@pytest.fixture
def config(tmp_path: Path) -> Config:
    account = {"secret": SECRET, "scheme": "token", "text": "{{ text }}", "fences": False, "session": "topic"}
    return Config(
        data_dir=tmp_path,
        store=str(tmp_path / "palaver.db"),
        grants=(*PEOPLE, GrantConfig(platform="webhook")),
        platforms={"webhook": PlatformConfig(accounts={"ci": account})},
        limits=LimitsConfig(message_limit=10),
    )


@pytest.fixture
async def owner(window: Opened) -> AsyncIterator[httpx.AsyncClient]:
    async with program(window) as client:
        yield client


@pytest.fixture
async def ai(window: Opened) -> AsyncIterator[openai.AsyncOpenAI]:
    async with await client(window) as made:
        yield made


async def call(window: Opened, key: str, text: str, topic: str = "plans") -> httpx.Response:
    headers = {"authorization": f"Bearer {SECRET}", "idempotency-key": key}
    async with httpx.AsyncClient(base_url=window.url, headers=headers, timeout=60) as program:
        return await program.post("/in/webhook/ci", json={"text": text, "topic": topic})


async def message_count(window: Opened) -> int:
    return len(await window.store.read(window.store.overview.list_inbound(Principal.operator())))


async def test_an_answer_that_a_summary_covers_is_given_again(
    window: Opened, owner: httpx.AsyncClient, ai: openai.AsyncOpenAI
) -> None:
    async def api(number: int) -> tuple[str, str]:
        headers = {"idempotency-key": f"a{number}"}
        sent = {"text": f"{number} {LONG}", "conversation": "plans", "wait": 20}
        answer = (await owner.post("/messages", json=sent, headers=headers)).json()
        return answer["answer"], answer["session"]

    async def completion(number: int) -> tuple[str, str]:
        return await ask(ai, [user(f"{number} {LONG}")], user="robot", extra_headers={"Idempotency-Key": f"o{number}"})

    async def webhook(number: int) -> tuple[str, str]:
        answer = (await call(window, f"w{number}", f"{number} {LONG}")).json()
        return answer["answer"], (await owner.get(f"/messages/{answer['id']}")).json()["session"]

    for way in (api, completion, webhook):
        first, *_, (_, session) = [await way(number) for number in range(8)]
        assert first[0] not in await said(window, session), way
        assert await way(0) == first == (f"You said: 0 {LONG}", session), way


async def test_a_key_is_for_one_request_even_if_something_else_differs(
    window: Opened, owner: httpx.AsyncClient, ai: openai.AsyncOpenAI
) -> None:
    key = {"Idempotency-Key": "k"}
    sent = {"text": "hello", "conversation": "plans"}
    file = {"name": "x", "content": base64.b64encode(b"x").decode()}
    first = (await owner.post("/messages", json=sent, headers=key)).json()
    again = await owner.post("/messages", json={**sent, "wait": 20}, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])
    others: list[dict[str, Any]] = [
        {"text": "hello", "conversation": "other"},
        {"text": "hello"},
        {"text": "bye", "conversation": "plans"},
        {**sent, "files": [file]},
        {"text": "hello", "session": again.json()["session"]},
    ]
    for other in others:
        assert (await owner.post("/messages", json=other, headers=key)).status_code == 409, other
    for body in ({"user": "robot"}, {}, {"stop": ["x"]}):
        with pytest.raises(openai.ConflictError):
            await ask(ai, [user("hello")], extra_headers=key, **body)
    answer, _ = await ask(ai, [user("one")], extra_headers={"Idempotency-Key": "o"})
    for history in ([user("one"), assistant(answer), user("one")], [user("zero"), assistant("no"), user("one")]):
        with pytest.raises(openai.ConflictError):
            await ask(ai, history, extra_headers={"Idempotency-Key": "o"})
    async with program(window, "api:alice") as alice:
        hers = await alice.post("/messages", json={**sent, "wait": 20}, headers=key)
        assert hers.status_code == 200
        assert hers.json()["id"] != first["id"], "a key is the sender's own"
    assert await message_count(window) == 3


async def test_a_key_from_before_requests_had_digests_is_still_the_same_message(
    window: Opened, owner: httpx.AsyncClient
) -> None:
    sent, key = {"text": "hello", "conversation": "plans", "wait": 20}, {"Idempotency-Key": "old"}
    first = (await owner.post("/messages", json=sent, headers=key)).json()

    @transaction
    def age() -> Statements[None]:
        ((body,),) = yield "SELECT body FROM inbox", ()
        older = {name: value for name, value in json.loads(body).items() if not name.startswith("request_")}
        yield "UPDATE inbox SET request_key = NULL, body = ?", (json.dumps(older).encode(),)

    await window.store.transact(age())
    again = await owner.post("/messages", json=sent, headers=key)
    assert (again.status_code, again.json()["id"]) == (200, first["id"])


async def test_a_delivery_is_one_message_in_any_conversation(window: Opened) -> None:
    first = (await call(window, "d1", "hello")).json()
    again = (await call(window, "d1", "hello", topic="other")).json()
    assert again == {**first, "duplicate": True}
    assert await message_count(window) == 1


async def test_requests_with_one_key_at_once_are_answered_once(
    window: Opened, owner: httpx.AsyncClient, ai: openai.AsyncOpenAI
) -> None:
    for number in range(5):
        answer, _ = await ask(ai, [user(f"{number}")])
        history = [user(f"{number}"), assistant(answer), user("two")]
        key = {"Idempotency-Key": f"k{number}"}
        before = await message_count(window)
        answers = await asyncio.gather(*(ask(ai, history, extra_headers=key) for _ in range(4)))
        assert (len(set(answers)), await message_count(window)) == (1, before + 1)
        assert (await said(window, answers[0][1]))[::2] == [f"{number}", "two"]
    sent = [{"text": "hello", "conversation": f"c{number}"} for number in range(4)]
    answers = await asyncio.gather(
        *(owner.post("/messages", json=body, headers={"Idempotency-Key": "api"}) for body in sent)
    )
    assert Counter(answer.status_code == 409 for answer in answers) == {True: 3, False: 1}
    assert all(answer.status_code in {200, 202, 409} for answer in answers)


async def test_requests_with_one_history_at_once_never_meet(window: Opened, ai: openai.AsyncOpenAI) -> None:
    for number in range(5):
        answer, _ = await ask(ai, [user(f"{number}")])
        history = [user(f"{number}"), assistant(answer)]
        asked = [f"{number} {letter}" for letter in "abcd"]
        answers = await asyncio.gather(*(ask(ai, [*history, user(text)]) for text in asked))
        assert [text for text, _ in answers] == [f"You said: {text}" for text in asked]
        for (text, session), question in zip(answers, asked, strict=True):
            assert await said(window, session) == [f"{number}", answer, question, text]


async def test_requests_after_one_response_at_once_never_meet(window: Opened, ai: openai.AsyncOpenAI) -> None:
    for number in range(3):
        first = await ai.responses.create(model="palaver", input=f"{number}")
        asked = [f"{number} {letter}" for letter in "abcd"]
        answers = await asyncio.gather(
            *(
                ai.responses.with_raw_response.create(model="palaver", input=text, previous_response_id=first.id)
                for text in asked
            )
        )
        for answer, question in zip(answers, asked, strict=True):
            told = [f"{number}", f"You said: {number}", question, f"You said: {question}"]
            assert await said(window, answer.headers["x-palaver-session"]) == told


async def test_a_message_has_no_more_files_than_are_allowed(
    window: Opened, owner: httpx.AsyncClient, ai: openai.AsyncOpenAI
) -> None:
    picture = base64.b64encode(b"x").decode()
    files = [{"name": "x", "content": picture}] * 11
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{picture}"}}] * 11
    items: list[Any] = [{"type": "input_image", "image_url": f"data:image/png;base64,{picture}"}] * 11
    assert (await owner.post("/messages", json={"text": "look", "files": files})).status_code == 413
    with pytest.raises(openai.APIStatusError, match="at most 10 files, not 11"):
        await ask(ai, [{"role": "user", "content": parts}])
    with pytest.raises(openai.APIStatusError, match="at most 10 files, not 11"):
        await ai.responses.create(model="palaver", input=[{"role": "user", "content": items}])
    assert await message_count(window) == 0
