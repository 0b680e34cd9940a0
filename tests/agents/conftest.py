"""A store for what agents leave there. Providers are imported here once, before the tests are divided."""

from pydantic_ai.models import anthropic, google, openai

from tests.store.ready import store_url

__all__ = ["anthropic", "google", "openai", "store_url"]
