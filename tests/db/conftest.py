"""Every database test runs on both engines."""

from tests.store.conftest import store, store_url

__all__ = ["store", "store_url"]
