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

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Generic, NoReturn, ParamSpec, Protocol, Self, TypeVar

from palaver.model.epochs import NO_EPOCHS, Epochs
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.value import value

if TYPE_CHECKING:
    from palaver.db.high_water import Loss, Seen

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
P = ParamSpec("P")

Value = str | int | bytes | None
Row = tuple[Any, ...]


class ConstraintViolated(StoreError):
    """The schema refused a statement: a unique index, a check or a foreign key."""


def violation(error: Exception) -> ConstraintViolated:
    violated = ConstraintViolated(f"the database refused: {error}")
    violated.__cause__ = error
    return violated


@value(kw_only=False)
class Lock:
    """Until the transaction ends, no other transaction can hold this name."""

    name: str


@value(kw_only=False)
class TryLock(Lock):
    """Do not wait for the name: return a row with False if another database transaction holds it."""


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
    if TYPE_CHECKING:

        def __iter__(self) -> Statements[T_co]: ...

    else:  # without a function of Python between: every joined transaction is started so
        __iter__ = partial.__call__


class KeyedTransaction(Transaction[T_co]):
    """A transaction of one conversation: it can run in step with those that have other keys.

    It reads and writes only what belongs to its key, what it holds a `Lock` for, and rows that no keyed transaction
    changes. It can see the writes of others before these have ended, but is committed together with them.

    A SELECT with the same values is asked once for all members of a batch: it must be deterministic, and the rows that
    it returns must not be changed. A transaction without a key can run before one that was given earlier.
    """

    __slots__ = ("key",)
    key: str


def keyed(key: str, work: Transaction[T]) -> KeyedTransaction[T]:
    """Return the same transaction, to be run in step. As a part of another one it is like any other."""
    made: KeyedTransaction[T] = KeyedTransaction(work)
    made.key = key
    return made


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
    raise StoreError("a transaction continued after one of its statements had failed") from error


class RunAlone(Exception):
    """A transaction left its batch: run it in a database transaction of its own."""


class Member(Generic[T]):
    """A transaction on its way: alone or in a batch, for a caller who waits for the future."""

    __slots__ = ("error", "future", "has_written", "key", "names", "position", "result", "statement", "steps", "work")

    def __init__(self, work: Transaction[T], future: "asyncio.Future[T]", key: str = "") -> None:
        self.work = work
        self.future = future
        self.key = key
        """Nothing if it runs alone."""
        self.restart()

    def restart(self) -> None:
        self.steps: Statements[Any] | None = None
        self.statement: Statement | None = None
        """What it waits for; None before the first one and after the last."""
        self.position = 0
        """How many statements it has run."""
        self.names: list[str] = []
        """What nobody else in the batch can have until it ends: its key and its locks."""
        self.has_written = False
        self.result: T | None = None
        self.error: BaseException | None = None

    def step(self, rows: list[Row]) -> None:
        """Go on to the next statement or to the end."""
        self.position += 1
        try:
            if self.steps is None:
                self.steps = iter(self.work)
                self.statement = next(self.steps)
            else:
                self.statement = self.steps.send(rows)
        except StopIteration as finished:
            self.statement, self.result = None, finished.value
        except Exception:  # noqa: BLE001 - its caller gets what it raises alone
            self.statement, self.error = None, RunAlone()

    def settle(self) -> None:
        """Give the outcome to the caller, on the thread of the event loop."""
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.result)  # pyright: ignore[reportArgumentType]


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


# Topics to listen to.
ACCOUNTS = "accounts"
COMMITS_MISSING = "commits missing"
"""This process has noticed it."""
INBOX = "inbox"
JOBS = "jobs"
JOURNAL = "journal"
OUTBOX = "outbox"
PEOPLE = "people"
PROCESSES = "processes"
TURNS = "turns"


def key_topic(key: SessionKey) -> str:
    """Return the topic on which the turn of this conversation learns of messages and stops."""
    return f"key {hashlib.sha256(key.text.encode()).hexdigest()[:32]}"


class Database(Protocol):
    """Runs transactions. If `transact` returns, the result is durable; if it raises, nothing was written."""

    def transact(self, work: Transaction[T]) -> Awaitable[T]:
        """Run all of it or nothing. A cancellation before the commit rolls it back; a later one has no effect."""
        ...

    async def read(self, work: Transaction[T]) -> T:
        """Run a transaction that only reads, on one consistent state, without waiting for writers."""
        ...

    async def browse(self, work: Transaction[T]) -> T:
        """Read what can be a moment old, for a person who looks around: from a replica, if there is one."""
        ...

    async def scrub(self) -> None:
        """Remove traces of deleted rows from the log and from free space."""
        ...

    @property
    def damage(self) -> str:
        """Why a gateway writes no more; nothing if its database is intact as far as it has read."""
        ...

    @property
    def is_away(self) -> bool:
        """Return whether an outage is known: no transaction can succeed before it ends."""
        ...

    @property
    def is_stalled(self) -> bool:
        """Return whether commits wait, and none has been confirmed for a while."""
        ...

    @property
    def epochs(self) -> Epochs:
        """The epochs of the store, for the ids of messages and sends."""
        ...

    def saw(self, seen: "Seen") -> None:
        """Remember what was committed, as long as the database can lose it."""
        ...

    def take_loss(self) -> "Loss | None":
        """Return what is missing that this process has seen, once."""
        ...

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        """Return an event that is set after a transaction that notifies `topic`. Listen, read, then wait."""
        ...

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        """Call a function on the event loop instead of setting an event."""
        ...

    async def close(self) -> None: ...


@dataclass
class Waiting:
    """How long a request has waited for the database."""

    task: "asyncio.Task[Any] | None"
    seconds: float = 0.0


_request: ContextVar[Waiting | None] = ContextVar("request", default=None)


@contextmanager
def answering_request() -> Generator[None]:
    """Somebody waits for what this task asks the database here: do not wait long for one that does not answer."""
    token = _request.set(Waiting(asyncio.current_task()))
    try:
        yield
    finally:
        _request.reset(token)


def waiting_of_request() -> Waiting | None:
    """Return None if nobody waits for this task. The tasks that a request starts are not the request."""
    found = _request.get()
    return found if found and found.task is asyncio.current_task() else None


class Notifier:
    """Listen first, then read, then wait: a notification between reading and waiting is not lost."""

    damage = ""
    """Why a gateway writes no more; nothing if its database is intact as far as it has read."""
    epochs = NO_EPOCHS

    @property
    def is_away(self) -> bool:
        return False

    @property
    def is_stalled(self) -> bool:
        return False

    def saw(self, seen: "Seen") -> None:
        """Forget it: the file keeps what was committed."""

    def take_loss(self) -> "Loss | None":
        return None

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, topic: str) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        with self.hear(topic, event.set):
            yield event

    @contextmanager
    def hear(self, topic: str, call: Callable[[], None]) -> Generator[None]:
        self._listeners.setdefault(topic, []).append(call)
        try:
            yield
        finally:
            self._listeners[topic].remove(call)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def wake(self, topic: str) -> None:
        for call in tuple(self._listeners.get(topic, ())):
            call()

    def wake_all(self) -> None:
        """Wake everyone, because a notification may have been missed."""
        for topic in tuple(self._listeners):
            self.wake(topic)


OUTAGE_SECONDS = 15.0
"""Longer than the longest pause between two attempts during an outage."""


class DatabaseClient:
    """Runs transactions on a database until it is closed, and records since when it has refused writes."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._refused_at = self._refused_first = -OUTAGE_SECONDS

    async def transact(self, work: Transaction[T]) -> T:
        try:
            done = await self.database.transact(work)
        except StoreError as error:
            # Others are the answers of transactions.
            if isinstance(error, StoreUnavailable) or type(error) is StoreError:
                now = time.monotonic()
                if not self.refuses_writes:
                    self._refused_first = now
                self._refused_at = now
            raise
        self._refused_at = -OUTAGE_SECONDS
        return done

    @property
    def refuses_writes(self) -> bool:
        """Return whether the last write failed, and not long ago."""
        return time.monotonic() - self._refused_at < OUTAGE_SECONDS

    @property
    def is_away(self) -> bool:
        return self.database.is_away

    @property
    def is_stalled(self) -> bool:
        return self.database.is_stalled

    @property
    def epochs(self) -> Epochs:
        return self.database.epochs

    def saw(self, seen: "Seen") -> None:
        self.database.saw(seen)

    def take_loss(self) -> "Loss | None":
        return self.database.take_loss()

    @property
    def damage(self) -> str:
        return self.database.damage

    def refused_for(self, since: float) -> float:
        """Return for how many seconds writes have failed, counted from `since` on the monotonic clock."""
        return self._refused_at - max(self._refused_first, since)

    async def read(self, work: Transaction[T]) -> T:
        return await self.database.read(work)

    async def browse(self, work: Transaction[T]) -> T:
        return await self.database.browse(work)

    async def scrub(self) -> None:
        await self.database.scrub()

    def listen(self, topic: str) -> AbstractContextManager[asyncio.Event]:
        return self.database.listen(topic)

    def hear(self, topic: str, call: Callable[[], None]) -> AbstractContextManager[None]:
        return self.database.hear(topic, call)

    async def close(self) -> None:
        await self.database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
