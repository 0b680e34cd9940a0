"""Transaction: one atomic step as a generator of statements, that any database can drive.

A piece of work yields statements and is given their rows. It knows neither threads nor event loops, so the same code
runs on the writer thread of SQLite and over a connection to PostgreSQL, and pieces are joined with `yield from`.

    @transaction
    def rename(session: int, title: str) -> Statements[None]:
        yield "UPDATE sessions SET title = ? WHERE no = ?", (title, session)
"""

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

from palaver.model.value import value

__all__ = [
    "Lock",
    "Notify",
    "Row",
    "Statement",
    "Statements",
    "Transaction",
    "Value",
    "storable",
    "transaction",
]

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

Statements = Generator[Statement, list[Row], T]


class Transaction(partial[Statements[T_co]]):  # pyright: ignore[reportInvalidTypeArguments] - nobody writes into one
    """Transaction that can be started, and started again when a transaction had to be given up."""

    __slots__ = ()

    def __iter__(self) -> Statements[T_co]:
        return self()


def transaction(function: Callable[P, Statements[T]]) -> Callable[P, Transaction[T]]:
    """Turn a generator function into one that returns `Transaction`."""

    @wraps(function)
    def describe(*args: P.args, **kwargs: P.kwargs) -> Transaction[T]:
        return Transaction(function, *args, **kwargs)

    return describe


_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def storable(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """NUL and half surrogates, which not every text column holds, become the replacement character."""
    for each in values:
        # Neither is printable, and that is asked quickly.
        if type(each) is str and not each.isprintable():
            return tuple(_cleaned(text) if isinstance(text, str) else text for text in values)
    return values


def _cleaned(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _UNKNOWN)
