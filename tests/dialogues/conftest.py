"""Dialogues are played on both databases, whose tables are there already."""

from tests.store.ready import store_url_on_each

__all__ = ["store_url_on_each"]
