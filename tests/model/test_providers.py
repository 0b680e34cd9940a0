"""The table of providers, and the one spelling of a model."""

import pytest

from palaver.model.providers import KEYED_PROVIDERS, PROVIDERS, chat_models, parse_model, pick_model, spell_model
from palaver.model.redact import redact


@pytest.mark.parametrize(
    ("said", "spelled"),
    [
        ("openai:gpt-5-mini", "openai:gpt-5-mini"),
        ("openai/gpt-5-mini", "openai:gpt-5-mini"),
        ("openai-chat:gpt-5-mini", "openai:gpt-5-mini"),
        ("openai-chat/gpt-5-mini", "openai:gpt-5-mini"),
        ("openai-responses:gpt-5-mini", "openai:gpt-5-mini"),
        (" gpt-5-mini ", "openai:gpt-5-mini"),
        ("claude-sonnet-4-5", "anthropic:claude-sonnet-4-5"),
        ("gemini-2.5-flash", "google:gemini-2.5-flash"),
        ("grok-4", "xai:grok-4"),
        ("openrouter:openai/gpt-5-mini", "openrouter:openai/gpt-5-mini"),
        ("openrouter/openai/gpt-5-mini", "openrouter:openai/gpt-5-mini"),
        ("meta-llama/llama-3", "meta-llama/llama-3"),
        ("llama3.2", "llama3.2"),
        ("openai:qwen3:4b", "openai:qwen3:4b"),
    ],
)
def test_a_model_has_one_spelling(said: str, spelled: str) -> None:
    assert spell_model(parse_model(said)) == spelled
    assert spell_model(spelled) == spelled


def test_the_name_of_an_interface_stays_for_the_provider() -> None:
    assert parse_model("openai-chat:gpt-5-mini") == "openai-chat:gpt-5-mini"


@pytest.mark.parametrize(
    ("listed", "wanted", "picked"),
    [
        (["whisper-1", "gpt-4o", "gpt-5-mini"], "gpt-5-mini", "gpt-5-mini"),
        (["text-embedding-3-small", "gpt-4o", "gpt-5-2025-08-07", "gpt-5"], "gpt-5-mini", "gpt-5"),
        (["nomic-embed-text", "llama3.2:3b"], "", "llama3.2:3b"),
        (["nomic-embed-text"], "", "nomic-embed-text"),
        ([], "gpt-5-mini", ""),
    ],
)
def test_a_model_is_picked_from_what_is_listed(listed: list[str], wanted: str, picked: str) -> None:
    assert pick_model(listed, wanted) == picked


def test_every_default_model_answers_in_a_chat_and_is_spelled_without_its_provider() -> None:
    for each in PROVIDERS.values():
        assert chat_models([each.default_model, "whisper-1"]) == [each.default_model]
        assert spell_model(f"{each.name}/{each.default_model}") == f"{each.name}:{each.default_model}"
        assert not each.model_prefixes or parse_model(each.default_model) == f"{each.name}:{each.default_model}"


def test_every_key_form_is_redacted_under_the_name_of_its_provider() -> None:
    bodies = {"deepseek": "0a" * 16, "xai": "a1" * 40}
    for each in KEYED_PROVIDERS:
        key = each.key_prefix + bodies.get(each.name, "Ab1" * 16)
        assert redact(f"here: {key}") == f"here: [redacted: {each.name} key]"
