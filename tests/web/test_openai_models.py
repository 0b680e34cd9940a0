"""Chat completions before a real model: what a client asks of the answer reaches the provider, and errors come back."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from palaver.config.agents import ModelAgentConfig
from palaver.config.limits import LimitsConfig
from palaver.config.model import Config
from tests.agents.fake_provider import Provider, Refuses, Says, Step, providing
from tests.agents.model_helpers import KEY, MODEL
from tests.web.conftest import opened
from tests.web.test_api import token

HELLO: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hello"}]


@asynccontextmanager
async def modelled(folder: Path, *script: Step) -> AsyncGenerator[tuple[openai.AsyncOpenAI, Provider]]:
    async with providing(*script) as provider:
        agent = ModelAgentConfig(model=MODEL, key=SecretStr(KEY), base_url=provider.openai)
        limits = LimitsConfig(agent_tries=1)
        config = Config(data_dir=folder, store=str(folder / "palaver.db"), agent=agent, limits=limits, titles=False)
        async with opened(config) as window:
            url = f"{window.url}/v1"
            async with openai.AsyncOpenAI(base_url=url, api_key=await token(window), max_retries=0) as ai:
                yield ai, provider


async def test_what_the_provider_refuses_is_told_as_openai_does(tmp_path: Path) -> None:
    refusals: list[tuple[Refuses, type[openai.APIStatusError], str]] = [
        (Refuses(status=429, message="slow down"), openai.RateLimitError, "rate_limit_exceeded"),
        (Refuses(status=400, message="bad picture"), openai.BadRequestError, "invalid_prompt"),
        (
            Refuses(status=400, message="too long", code="context_length_exceeded"),
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        (Refuses(status=503), openai.InternalServerError, "provider_unavailable"),
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
