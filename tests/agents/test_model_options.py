"""What can be wanted of a model agent."""

from contextlib import suppress

import pytest
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import known_model_names
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.usage import RequestUsage

from palaver.agents.model.agent import ModelAgent
from palaver.agents.model.costs import Costs
from palaver.agents.model.options import ModelOptions
from palaver.agents.model.providers import ModelClients
from palaver.model.errors import InvalidInput
from palaver.model.providers import PROVIDERS
from palaver.model.turn import Usage
from palaver.protocols.agent import UsageReport
from tests.agents.fake_provider import Says
from tests.agents.model_helpers import KEY, MODEL, asked, events, request


async def test_prices_are_those_of_the_owner_then_those_that_are_built_in() -> None:
    own = b'"openai:scripted": {input: 2, output: 10}'
    async with asked(Says(text="x", input_tokens=1_000, output_tokens=100), prices=own) as (agent, _):
        happened = await events(agent, request())
    spent = Usage(model=MODEL, input_tokens=1_000, output_tokens=100, cost_micros=3_000, prompt_tokens=1_100)
    assert happened[-2] == UsageReport(spent)


def test_what_is_built_in_says_nothing_about_a_server_of_ones_own() -> None:
    used = RequestUsage(input_tokens=1_000, output_tokens=100, cache_read_tokens=300)
    known, unknown = "openai:gpt-5-mini", "openai:nobody-knows"
    assert Costs.of(None, is_custom_server=False).usage(known, used).cost_micros > 0
    assert Costs.of(None, is_custom_server=False).usage(known, used).cached_tokens == 300
    for is_own, name in ((False, unknown), (True, known)):
        costs = Costs.of(None, is_custom_server=is_own)
        spent = costs.usage(name, used)
        assert (spent.cost_micros, spent.unpriced_tokens) == (0, 1_100)
        assert not costs.knows(name)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (ModelOptions(model="openai:gpt-5"), "key: ${OPENAI_API_KEY}"),
        (ModelOptions(model="nobody:x", key=KEY), "Unknown model"),
        (ModelOptions(model="cohere:x", key=KEY), "pip install"),
        (ModelOptions(model="openai:x", models=("anthropic:y",), key=KEY), "one key"),
        (ModelOptions(model="deepseek:x", base_url="http://x", key=KEY), "fixed address"),
        (ModelOptions(model=MODEL, base_url="http://x", prices=b"[1"), "price file"),
        (ModelOptions(model=MODEL, base_url="http://x", prices=b"a: {input: -1, output: 1}"), "price file"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_had_says_what_to_do(wanted: ModelOptions, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        ModelAgent.of(wanted)
    assert said in str(caught.value)
    assert KEY not in str(caught.value)


def test_every_provider_of_the_responses_api_is_asked_to_store_nothing() -> None:
    providers = {"openai-responses", "openai-chat", *(name.split(":")[0] for name in known_model_names())}
    stored = dict[str, bool]()
    for name in sorted(providers):
        with suppress(InvalidInput, UserError):  # another package, or more than a key
            client = ModelAgent.of(ModelOptions(model=f"{name}:x", key=KEY)).clients.default
            stored[name] = isinstance(client.model, OpenAIResponsesModel)
            assert (client.settings.get("openai_store") is False) == stored[name], name
    assert {"anthropic", "deepseek", "google", "openai-chat"} <= {name for name in stored if not stored[name]}
    assert {"meta", "openai", "openai-responses"} <= {name for name in stored if stored[name]}


async def test_no_key_of_the_environment_goes_to_another_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-somebody-else")
    async with asked(key=None) as (agent, provider):
        await events(agent, request())
    assert provider.keys == ["Bearer none"]


async def test_what_it_learns_about_itself_stands_before_where_it_is() -> None:
    async with asked(instructions="You are a gardener.", temperature=0.3, max_tokens=99) as (agent, provider):
        await events(agent, request())
    (sent,) = provider.requests
    assert sent["messages"][0] == {"role": "system", "content": "You are a gardener.\n\nYou are here."}
    assert sent["temperature"] == 0.3
    assert 99 in {sent.get("max_tokens"), sent.get("max_completion_tokens")}


@pytest.mark.parametrize("provider", list(PROVIDERS))
def test_every_provider_of_the_table_works_with_what_is_installed(provider: str) -> None:
    """Some of their own client libraries are not; then OpenAI's API, which they have too, is enough."""
    clients = ModelClients.of(ModelOptions(model=f"{provider}:{PROVIDERS[provider].default_model}", key=KEY))
    assert clients.default.model.model_name == PROVIDERS[provider].default_model
