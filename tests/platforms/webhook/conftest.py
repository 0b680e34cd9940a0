"""Two workers share a store on PostgreSQL."""

from tests.stores.conftest import postgres_server

__all__ = ["postgres_server"]
