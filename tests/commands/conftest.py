"""Commands run on a store of their own in each test."""

from tests.store.ready import store_url

__all__ = ["store_url"]
