"""The engine runs on a store of its own in each test."""

from tests.store.ready import store_url

__all__ = ["store_url"]
