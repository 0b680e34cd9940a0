"""Dialogues are played on both databases, whose tables are there already."""

from tests.stores.ready import store_url

__all__ = ["store_url"]
