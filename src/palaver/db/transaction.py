"""Transaction: one atomic step, written as a generator of statements that any database can run.

A transaction yields statements and receives their rows. It knows neither threads nor event loops, so the same code
runs on SQLite's writer thread and over a connection to PostgreSQL.

    @transaction
    def rename(session: int, title: str) -> Statements[None]:
        yield "UPDATE sessions SET title = ? WHERE no = ?", (title, session)

Calling `rename(…)` only describes the step. Run it with `await store.transact(rename(…))`, or make it part of another
transaction with `yield from rename(…)`. Every function that a module exports is a `@transaction`; a private generator
is a part of the function that calls it.

A statement that fails raises its error at the `yield`, so the traceback names the function that knows the statement.
Catch `ConstraintViolated` there to raise an error of your own. Do not go on after it: the database has already given
up the transaction.
"""

from collections.abc import Callable, Generator
from functools import partial, wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

from palaver.model.errors import StoreError
from palaver.model.value import value

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Value = str | int | bytes | None
Row = tuple[Any, ...]


class ConstraintViolated(StoreError):
    """The schema refused a statement: a unique index, a check or a foreign key."""


@value(kw_only=False)
class Lock:
    """Until the transaction ends, no other transaction can hold this name."""

    name: str


@value(kw_only=False)
class Notify:
    """Wake everyone who listens to this topic once the transaction is committed."""

    topic: str


Statement = tuple[str, tuple[Value, ...]] | tuple[str, list[tuple[Value, ...]]] | Lock | Notify
"""SQL with its values; SQL with a list of values to run it with each; a lock; a wake-up."""

Statements = Generator[Statement, list[Row], T]


class Transaction(partial[Statements[T_co]]):  # pyright: ignore[reportInvalidTypeArguments] - the type is only read
    """A step that can be started, and started again if the database had to give it up."""

    __slots__ = ()

    def __iter__(self) -> Statements[T_co]:
        return self()


def transaction(function: Callable[P, Statements[T]]) -> Callable[P, Transaction[T]]:
    """Make a generator function return a `Transaction`."""

    @wraps(function)
    def describe(*args: P.args, **kwargs: P.kwargs) -> Transaction[T]:
        return Transaction(function, *args, **kwargs)

    return describe


def fail_statement(steps: Statements[T], error: Exception) -> NoReturn:
    """Raise the error of a failed statement where the transaction yielded it."""
    try:
        steps.throw(error)
    except StopIteration:
        pass
    else:
        steps.close()
    raise StoreError("a transaction went on after one of its statements had failed") from error


_UNKNOWN = "\N{REPLACEMENT CHARACTER}"


def storable(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """Replace NUL and lone surrogates, which not every text column can hold."""
    for each in values:
        # Neither is printable, and that check is fast.
        if type(each) is str and not each.isprintable():
            return tuple(_cleaned(text) if isinstance(text, str) else text for text in values)
    return values


def _cleaned(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").replace("\0", _UNKNOWN)
