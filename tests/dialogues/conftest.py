"""Dialogues are played on both databases."""

from tests.stores.conftest import postgres_server, store_url

__all__ = ["postgres_server", "store_url"]
