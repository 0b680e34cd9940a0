"""Batches on SQLite: all that waits runs in one database transaction, different conversations in step."""

import sqlite3
from collections.abc import Iterable
from itertools import repeat
from typing import Any

from palaver.db.in_step import LOCK, Batch, Members, Text
from palaver.db.transaction import Row, storable


def run_in_step(db: sqlite3.Connection, members: Members, positions: dict[Text, int]) -> set[str]:
    """Run all members to their end; return the topics to notify. After an error all of them must be rolled back."""
    batch = Batch(members, positions)
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
    if sql.startswith("SELECT"):  # the same question has one answer: nothing is written between
        answers = {each: cursor.execute(sql, storable(each)).fetchall() for each in dict.fromkeys(values)}
        return [answers[each] for each in values]
    first = cursor.execute(sql, storable(values[0])).fetchall()
    if cursor.description:
        return [first, *(cursor.execute(sql, storable(each)).fetchall() for each in values[1:])]
    cursor.executemany(sql, map(storable, values[1:]))
    return _NO_ROWS
