"""Work: one atomic step as a generator of statements, that any database can drive.

A piece of work yields statements and is given their rows. It knows neither threads nor event loops, so the same code
runs on the writer thread of SQLite and over a connection to PostgreSQL, and pieces are joined with `yield from`.

    @work
    def rename(session: int, title: str) -> Steps[None]:
        yield "UPDATE sessions SET title = ? WHERE no = ?", (title, session)
"""

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from palaver.domain.value import value

__all__ = ["Lock", "Notify", "Row", "Statement", "Steps", "Value", "Work", "work"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Value = str | int | bytes | None
Row = tuple[Any, ...]


@value(kw_only=False)
class Lock:
    """From here to the end of the work, nobody else works under this name."""

    name: str


@value(kw_only=False)
class Notify:
    """Once the work is committed, wake whoever waits for this."""

    topic: str


Statement = tuple[str, tuple[Value, ...]] | tuple[str, list[tuple[Value, ...]]] | Lock | Notify
"""SQL with its values; SQL with a list of values to run it with each; a lock; a wake-up."""

Steps = Generator[Statement, list[Row], T]


class Work(partial[Steps[T_co]]):  # pyright: ignore[reportInvalidTypeArguments] - nobody writes into one
    """Work that can be started, and started again when a transaction had to be given up."""

    __slots__ = ()

    def __iter__(self) -> Steps[T_co]:
        return self()


def work(function: Callable[P, Steps[T]]) -> Callable[P, Work[T]]:
    """Turn a generator function into one that returns `Work`."""

    @wraps(function)
    def describe(*args: P.args, **kwargs: P.kwargs) -> Work[T]:
        return Work(function, *args, **kwargs)

    return describe
