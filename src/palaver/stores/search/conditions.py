"""Conditions in SQL, put together."""

from collections.abc import Iterable

from palaver.stores.visibility import Filter

__all__ = ["all_of"]


def all_of(parts: Iterable[Filter]) -> Filter:
    found = list(parts)
    sql = " AND ".join(part.sql for part in found) or "1 = 1"
    return Filter(sql, tuple(value for part in found for value in part.values))
