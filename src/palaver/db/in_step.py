"""Run transactions of different conversations in step, in one database transaction.

A transaction is a generator that waits for the rows of its statement. Statements with the same text run together, so
many transactions need hardly more calls or round trips than one, and a single commit. A `Batch` decides who runs with
whom; the database runs the statements (`sqlite_batch`, `postgres_batch`).

It is as safe as a database transaction for each (docs/decisions/0022-in-step.md): those that run in step have different
keys, so none reads what another writes; a name that several lock belongs to one of them until that one has ended; and
one that fails, or would wait for another connection, is run again outside of the batch.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from palaver.db.transaction import Member, Notify, Row, RunAlone

_MAX_TEXTS = 2048

Members = Sequence[Member[Any]]
Text = tuple[str, bool]
"""SQL, and whether it comes with a list of values to run it with each."""
LOCK: Text = ("", False)
"""Stands for a `Lock` that the database transaction does not have yet."""


class BatchUndone(Exception):
    """A batch has to be rolled back, and run again without these members, which run alone."""

    def __init__(self, leaving: Iterable[Member[Any]]) -> None:
        super().__init__()
        self.leaving = frozenset(leaving)


class Batch:
    """One run of several members in a database transaction that somebody else begins and ends.

    Take groups with `next_group`, run their statement, and give the rows to `go_on`, until no group is left.
    """

    def __init__(self, members: Iterable[Member[Any]], positions: dict[Text, int]) -> None:
        self.topics: set[str] = set()
        """Whom to wake after the commit."""
        self.locked: set[str] = set()
        """Locks that the database transaction has. It keeps them until the commit."""
        self._positions = positions
        """The last place at which each text was seen in a transaction. Who is behind goes first, so all meet again."""
        self._waiting: dict[Text, list[Member[Any]]] = {}
        """Members by the statement that they wait for."""
        self._holders: dict[str, Member[Any]] = {}
        self._blocked: dict[str, deque[Member[Any]]] = {}
        """Members by the name that they wait for until its holder ends."""
        self._freed: deque[str] = deque()
        """Names whose holders have ended."""
        for member in members:
            self._enter(member)

    def next_group(self) -> tuple[Text, list[Member[Any]]] | None:
        """Return a statement and all who wait for it; None at the end. Raise BatchUndone if none can go on."""
        if self._blocked:
            self._wake_blocked()
        if not self._waiting:
            if self._blocked:
                raise BatchUndone(next(iter(self._blocked.values())))
            return None
        text = min(self._waiting, key=self._position) if len(self._waiting) > 1 else next(iter(self._waiting))
        return text, self._waiting.pop(text)

    def go_on(self, members: Members, found: Iterable[list[Row]]) -> None:
        """Give each member its rows, and let it wait for what it needs next."""
        for member, rows in zip(members, found, strict=False):
            member.step(rows)
            self._place(member)

    def _place(self, member: Member[Any]) -> None:
        """Let a member wait for the database or for a name, or end it."""
        while (statement := member.statement) is not None:
            if isinstance(statement, tuple):
                self._wait((statement[0], type(statement[1]) is list), member)
                return
            if isinstance(statement, Notify):
                self.topics.add(statement.topic)
            elif not self._take(statement.name, member):
                return
            elif statement.name not in self.locked:
                self._wait(LOCK, member)
                return
            member.step([(True,)])
        self._end(member)

    def leave(self, member: Member[Any]) -> None:
        """End a member that has written nothing, and that runs alone afterwards."""
        member.statement, member.error = None, RunAlone()
        self._end(member)

    def _enter(self, member: Member[Any]) -> None:
        if self._take(member.key, member):
            member.step([])
            self._place(member)

    def _take(self, name: str, member: Member[Any]) -> bool:
        """Take a name, or let the member wait until its holder ends."""
        holder = self._holders.setdefault(name, member)
        if holder is not member:
            self._blocked.setdefault(name, deque()).append(member)
        elif name not in member.names:
            member.names.append(name)
        return holder is member

    def _wait(self, text: Text, member: Member[Any]) -> None:
        if member.position > self._position(text):
            if len(self._positions) > _MAX_TEXTS:
                self._positions.clear()
            self._positions[text] = member.position
        self._waiting.setdefault(text, []).append(member)

    def _position(self, text: Text) -> int:
        return self._positions.get(text, 0)  # another batch can have cleared them

    def _end(self, member: Member[Any]) -> None:
        """Free the names of a member."""
        for name in member.names:
            del self._holders[name]
        self._freed.extend(member.names)

    def _wake_blocked(self) -> None:
        """Let the first that waits for a free name go on."""
        while self._freed:
            name = self._freed.popleft()
            waiting = self._blocked.get(name)
            if not waiting or name in self._holders:
                continue
            member = waiting.popleft()
            if not waiting:
                del self._blocked[name]
            if member.steps is None:
                self._enter(member)
            else:
                self._place(member)
