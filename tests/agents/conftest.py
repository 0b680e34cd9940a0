"""A store for what agents leave there. Providers are imported here once, before the tests are divided."""

import warnings

from tests.store.ready import store_url

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # a library's own, the first time that it is compiled
    from pydantic_ai.models import anthropic, google, openai

__all__ = ["anthropic", "google", "openai", "store_url"]
