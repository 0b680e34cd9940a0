"""What matters most in the engine is tried on both databases."""

from tests.store.ready import store_url

__all__ = ["store_url"]
