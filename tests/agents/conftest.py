"""What agents leave in a store is tried on both databases."""

from tests.stores.conftest import postgres_server, store_url

__all__ = ["postgres_server", "store_url"]
