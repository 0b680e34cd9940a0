"""What matters most in the engine is tried on both databases."""

from tests.stores.ready import store_url

__all__ = ["store_url"]
