"""Values: what is compared by what it holds, and never changed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform, overload

__all__ = [
    "value",
]

T = TypeVar("T")


@overload
def value(cls: type[T], /) -> type[T]: ...


@overload
def value(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T] | None = None, /, *, kw_only: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """A dataclass of named fields that nobody changes.

    The type checker sees to that. Python would, too, but then making one takes four times as long, and a message on
    its way makes sixty.
    """
    make = dataclass(kw_only=kw_only, slots=True, unsafe_hash=True)
    return make if cls is None else make(cls)
