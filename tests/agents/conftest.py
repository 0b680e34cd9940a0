"""What agents leave in a store is tried on both databases."""

from tests.store.ready import store_url

__all__ = ["store_url"]
