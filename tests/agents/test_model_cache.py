"""Prompt caches: what was sent once is sent again in the same bytes, and what the cache saved is counted."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from palaver.store.conversations.blob_store import BlobStore
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import File
from tests.agents.fake_provider import Call, Refuses, Says
from tests.agents.model_helpers import Box, asked, events, request
from tests.agents.test_model_conversation import Equipped
from tests.agents.test_model_files import MODELS, provided
from tests.agents.test_model_memory import PNG
from tests.engine.gateway import running

CONVERSATION = {"openai": "messages", "anthropic": "messages", "google": "contents"}
MARKS = re.compile(rb',?"cache_control":\{[^{}]*\}')
"""Where a cache ends. It moves, and is no part of what the cache compares."""


@pytest.mark.parametrize("model", MODELS)
async def test_a_long_conversation_only_grows_and_its_cache_is_counted(tmp_path: Path, model: str) -> None:
    world, name = FakePlatform(), CONVERSATION[model.partition(":")[0]]
    chat = world.dm(alice := world.person("alice"))
    steps = [
        step
        for turn in range(12)
        for step in (
            *([Says(calls=(Call("look", '{"at": "ü"}', f"c{turn}"),))] if turn % 3 == 0 else []),
            Says(text=f"answer number {turn} ✓", input_tokens=1_000, cached_tokens=900),
        )
    ]
    async with provided(model, *steps) as (agent, provider):
        shelf = BlobStore(tmp_path / "files")
        async with running(tmp_path / "p.db", world, agent=Equipped(agent, Box()), shelf=shelf, titles=False) as here:
            for turn in range(12):
                picture = (File(name="a.png", media_type="image/png", content=PNG),) if turn == 2 else ()
                await chat.say(alice, f"question {turn}", files=picture)
                await chat.hears(f"answer number {turn} ✓")
                await here.settled()
            (cached,) = await here.rows("SELECT sum(cached_tokens) FROM turns")
    assert cached == (12 * 900,)
    assert len(provider.bodies) == len(steps)
    has_marks = [b"cache_control" in body for body in provider.bodies]
    assert all(has_marks) if model.startswith("anthropic") else not any(has_marks)
    sent = [json.loads(MARKS.sub(b"", body)) for body in provider.bodies]
    told = [json.dumps(each.pop(name)).removesuffix("]") for each in sent]
    assert len({json.dumps(each) for each in sent}) == 1  # instructions, tools and settings
    for before, after in pairwise(told):
        assert after.startswith(before)


async def test_openai_gets_a_key_for_each_conversation_and_a_compatible_server_none() -> None:
    refused = Refuses(status=400, message="stop here")
    async with asked(refused, refused, refused, model="openai-responses:scripted") as (agent, provider):
        for session in ("s", "s", "t"):
            await events(agent, request(session=session))
    assert [body["prompt_cache_key"] for body in provider.requests] == ["s", "s", "t"]
    async with asked() as (agent, provider):
        await events(agent, request())
    assert "prompt_cache_key" not in provider.requests[0]
