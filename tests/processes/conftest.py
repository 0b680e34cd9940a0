"""Processes are tried on both databases where the store matters."""

from tests.store.ready import store_url_on_each

__all__ = ["store_url_on_each"]
