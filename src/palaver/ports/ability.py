"""Abilities: what an adapter or an agent can do beyond the least, shown by having the methods for it."""

from functools import lru_cache
from typing import TypeVar

from typing_extensions import TypeIs

__all__ = ["able"]

T = TypeVar("T")


def able(thing: object, ability: type[T]) -> TypeIs[T]:
    """Whether it has the methods of a capability. A class that has them once has them always, so it is asked once."""
    return _has(type(thing), ability)


@lru_cache(512)
def _has(kind: type, ability: type) -> bool:
    return issubclass(kind, ability)
