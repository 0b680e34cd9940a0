"""Batches on SQLite: all that waits runs in one database transaction, different conversations in step."""

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, TypeVar

from palaver.db.file_lock import is_transient
from palaver.db.in_step import LOCK, Batch, BatchUndone, Member, Text
from palaver.db.transaction import Notify, Row, Statements, Transaction, fail_statement, storable, violation
from palaver.model.errors import StoreError, StoreUnavailable

T = TypeVar("T")
Members = Sequence[Member[Any]]


def run_statements(db: sqlite3.Connection, steps: Statements[T], notified: set[str]) -> T:
    """Run every statement of a transaction on this connection. Locks need no statement: there is one writer."""
    cursor = db.cursor()
    try:
        statement = next(steps)
        while True:
            rows: list[Row] = []
            try:
                if isinstance(statement, tuple):
                    sql, values = statement
                    if isinstance(values, tuple):
                        rows = cursor.execute(sql, storable(values)).fetchall()
                    else:
                        cursor.executemany(sql, map(storable, values))
                elif isinstance(statement, Notify):
                    notified.add(statement.topic)
            except sqlite3.Error as error:
                fail_statement(steps, violation(error) if isinstance(error, sqlite3.IntegrityError) else error)
            statement = steps.send(rows)
    except StopIteration as finished:
        return finished.value
    finally:
        cursor.close()  # A statement that failed halfway would keep its connection at the snapshot it reads.


def run_batch(db: sqlite3.Connection, members: Members, positions: dict[Text, int], notified: set[str]) -> bool:
    """Run all members; return False if one failed or was cancelled, so that all must be rolled back.

    Those without a key run first, each alone.
    """
    in_step = [member for member in members if member.key]
    if len(in_step) < _MIN_IN_STEP:
        return all(run_member(db, member, notified) for member in members)
    if not all(run_member(db, member, notified) for member in members if not member.key):
        return False
    try:
        notified |= _run_in_step(db, in_step, positions)
    except (sqlite3.Error, BatchUndone, ArithmeticError, TypeError, ValueError) as error:  # a value that has no column
        accept_any_text(db, error)  # for the retry, in which each gets its own error
        return False
    return not any(member.error or member.future.cancelled() for member in in_step)


_MIN_IN_STEP = 2


def run_member(db: sqlite3.Connection, member: Member[Any], notified: set[str]) -> bool:
    """Run a member alone; return False if it failed or was cancelled, so that it must be rolled back."""
    if member.future.cancelled():
        return True
    member.restart()
    try:
        member.result = run_statements(db, iter(member.work), notified)
    except sqlite3.Error as error:
        accept_any_text(db, error)  # for the retry
        member.error = store_error("the database refused", error)
    except BaseException as error:  # noqa: BLE001 - the caller handles it
        member.error = error
    return member.error is None and not member.future.cancelled()


def _run_in_step(db: sqlite3.Connection, members: Members, positions: dict[Text, int]) -> set[str]:
    batch = Batch((member for member in members if not member.future.cancelled()), positions)
    cursor = db.cursor()
    try:
        while group := batch.next_group():
            text, waiting = group
            batch.go_on(waiting, _GRANTED if text is LOCK else _run_group(cursor, text, waiting))
    finally:
        cursor.close()
    return batch.topics


_GRANTED: Iterable[list[Row]] = repeat([(True,)])
"""There is one writer, so every lock is free."""
_NO_ROWS: Iterable[list[Row]] = repeat([])


def _run_group(cursor: sqlite3.Cursor, text: Text, members: Members) -> Iterable[list[Row]]:
    """Run the statement of each member; return the rows of each."""
    sql, is_list = text
    values: list[Any] = [member.statement[1] for member in members]  # pyright: ignore[reportOptionalSubscript, reportIndexIssue]
    if is_list:
        cursor.executemany(sql, [storable(row) for rows in values for row in rows])
        return _NO_ROWS
    first = cursor.execute(sql, storable(values[0])).fetchall()
    if cursor.description:
        return [first, *(cursor.execute(sql, storable(each)).fetchall() for each in values[1:])]
    cursor.executemany(sql, map(storable, values[1:]))
    return _NO_ROWS


def run_read(db: sqlite3.Connection, work: Transaction[T]) -> T:
    db.execute("BEGIN")
    try:
        return run_statements(db, iter(work), set())
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def accept_any_text(db: sqlite3.Connection, error: Exception) -> bool:
    """Read text that is not UTF-8 as well as possible from now on, if that was the error; it is slower."""
    if not str(error).startswith("Could not decode to UTF-8") or db.text_factory is not str:
        return False
    db.text_factory = _decode
    return True


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


_FIXES = {
    "no such ": ". Run palaver doctor",
    "attempt to write a readonly ": ". Make its file and its folder writable, or use another data directory",
}


def store_error(problem: str, error: sqlite3.Error) -> StoreError:
    fix = next((advice for said, advice in _FIXES.items() if str(error).startswith(said)), "")
    failed = (StoreUnavailable if is_transient(error) else StoreError)(f"{problem}: {error}{fix}")
    failed.__cause__ = error  # raised on another thread
    return failed
