"""What a provider lists: asked at its address alone, with its key, and read in each provider's form."""

import json

import pytest

from palaver.agents.model_list import ModelsNotListed, list_models
from palaver.protocols.agent import FailureKind
from tests.agents.fake_provider import Hangs, Page, Recorded, Refuses, providing

OPENAI = {"object": "list", "data": [{"id": "gpt-5-mini", "owned_by": "system"}, {"id": 7}, "x", {"id": "whisper-1"}]}
ANTHROPIC = {"data": [{"type": "model", "id": "claude-sonnet-4-5"}], "has_more": False}
GOOGLE = {
    "models": [
        {"name": "models/gemini-2.5-flash", "supportedGenerationMethods": ["generateContent"]},
        {"name": "models/embedding-001", "supportedGenerationMethods": ["embedContent"]},
    ]
}


@pytest.mark.parametrize(
    ("provider", "said", "names", "path", "header"),
    [
        ("openai", OPENAI, ["gpt-5-mini", "whisper-1"], "/models", "authorization"),
        ("groq", OPENAI, ["gpt-5-mini", "whisper-1"], "/models", "authorization"),
        ("anthropic", ANTHROPIC, ["claude-sonnet-4-5"], "/v1/models", "x-api-key"),
        ("google", GOOGLE, ["gemini-2.5-flash"], "/v1beta/models", "x-goog-api-key"),
    ],
)
async def test_models_are_listed_in_the_form_of_each_provider(
    provider: str, said: object, names: list[str], path: str, header: str
) -> None:
    async with providing(Recorded(body=json.dumps(said))) as server:
        listed = await list_models(provider, key="k-1", base_url=f"{server.url}/")
        assert [each.name for each in listed] == names
        assert server.heads[0].startswith(f"GET {path} ")
        assert f"\n{header}: " in server.heads[0].lower()
        assert "k-1" in server.heads[0]


async def test_a_server_says_whose_its_models_are_and_needs_no_key() -> None:
    async with providing(Recorded(body=json.dumps({"data": [{"id": "llama3.2", "owned_by": "library"}]}))) as server:
        (found,) = await list_models(base_url=server.openai)
        assert (found.name, found.owner) == ("llama3.2", "library")
        assert "authorization" not in server.heads[0].lower()


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Refuses(status=401), FailureKind.UNAUTHORIZED),
        (Refuses(status=403), FailureKind.UNAUTHORIZED),
        (Refuses(status=400, message="API_KEY_INVALID"), FailureKind.UNAUTHORIZED),
        (Refuses(status=500), FailureKind.FATAL),
        (Page(), FailureKind.FATAL),
        (Recorded(body="[]"), FailureKind.FATAL),
        (Hangs(), FailureKind.UNREACHABLE),
        (Refuses(status=302, headers={"location": "http://127.0.0.1:9/stolen"}), FailureKind.FATAL),
    ],
)
async def test_what_is_no_list_says_why_without_the_key(step: object, kind: FailureKind) -> None:
    async with providing(step) as server:  # pyright: ignore[reportArgumentType]
        with pytest.raises(ModelsNotListed) as caught:
            await list_models(key="sk-secret", base_url=server.openai, within=0.5 if isinstance(step, Hangs) else 10.0)
    assert caught.value.kind is kind
    assert "sk-secret" not in str(caught.value)


async def test_nobody_at_the_address_is_unreachable() -> None:
    with pytest.raises(ModelsNotListed) as caught:
        await list_models(base_url="http://127.0.0.1:9/v1")
    assert caught.value.kind is FailureKind.UNREACHABLE
