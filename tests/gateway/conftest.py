"""The gateway runs on both engines, like the store itself."""

from tests.stores.conftest import postgres_server, store_url

__all__ = ["postgres_server", "store_url"]
