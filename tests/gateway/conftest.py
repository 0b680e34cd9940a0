"""The gateway runs on both engines, like the store itself."""

from tests.store.ready import store_url_on_each

__all__ = ["store_url_on_each"]
