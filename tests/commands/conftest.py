"""Commands are tried on both databases."""

from tests.stores.ready import store_url

__all__ = ["store_url"]
