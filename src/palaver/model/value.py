"""The `@value` decorator: keyword-only dataclasses, compared by content and never changed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform, overload

T = TypeVar("T")
FieldPath = tuple[str | int, ...]
"""The path to a setting in the configuration: `("grants", 0, "role")`."""


@overload
def value(cls: type[T], /) -> type[T]: ...


@overload
def value(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def value(cls: type[T] | None = None, /, *, kw_only: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a keyword-only, hashable dataclass with slots that the type checker treats as frozen.

    Python does not freeze it: `frozen=True` makes construction four times slower, and one message builds sixty values.
    """

    def make(plain: type[T]) -> type[T]:
        plain.__doc__ = plain.__doc__ or plain.__name__  # for a class without one, dataclass derives it, slowly
        return dataclass(kw_only=kw_only, slots=True, unsafe_hash=True)(plain)

    return make if cls is None else make(cls)
