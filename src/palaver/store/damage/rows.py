"""Read every row by itself, and compare it with its checksum and its own columns."""

from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import partial
from typing import NamedTuple

from palaver.db.transaction import Database, Row, Statements, Transaction, Value, transaction
from palaver.model.errors import StoreError
from palaver.model.key import SessionKey
from palaver.model.source import Source, account_text
from palaver.model.text import counted
from palaver.model.value import value
from palaver.store.conversations.chat_migration import moved
from palaver.store.damage.health_check import FIX_THE_CAUSE, HealthCheck, in_transaction, listed, repair_step
from palaver.store.people.aliases import load_all as load_all_aliases
from palaver.store.records import UNREADABLE

_PAGE_ROWS = 1000


class Problem(Enum):
    UNREADABLE = "cannot be read"
    CHANGED = "was changed: it does not match its checksum"
    CONTRADICTS = "contradicts its own columns"


class BadRow(NamedTuple):
    row: Row
    name: str
    problem: Problem


@value
class Known:
    """What explains that columns differ from what was written first."""

    moves: Mapping[tuple[str, str | None], Mapping[str, str]]
    """Per account, the old ids of chats and the ids they have now."""
    aliases: Mapping[str, Mapping[str, str]]
    """Per platform, ids that belong to one person."""


MendRow = Callable[[BadRow, datetime], Transaction[None]]


@value
class TableCheck:
    """How to read the rows of a table."""

    table: str
    select: str
    """Its rows, each with its order column first."""
    order: str
    name: Callable[[Row], str]
    problem: Callable[[Row, Known], Problem | None]
    """May raise one of `UNREADABLE`."""
    mend: MendRow
    deed: str
    """What a repair does."""
    first: Value = -(1 << 62)
    """Before the first value of the order column."""

    @property
    def last(self) -> Value:
        """After the last value of the order column."""
        return chr(0x10FFFF) if self.first == "" else 1 << 62


async def check_table(database: Database, check: TableCheck) -> HealthCheck:
    known = await database.read(load_known())
    bad: dict[Value, BadRow] = {}
    count = 0
    gap = ""
    # Where a part of the file cannot be read, the rows on both sides of it still can.
    for backwards in (False, True):
        try:
            async for page in _pages(database, check, backwards=backwards):
                count += len(page)
                bad |= {row[0]: BadRow(row, check.name(row), it) for row in page if (it := _problem(check, row, known))}
            break
        except StoreError as error:
            gap = f"{counted(count, 'row')} can be read, and the others cannot: {error}"
    named = listed(f"{each.name} {each.problem.value}" for each in bad.values())
    damaged = [f"{counted(len(bad), 'row is', 'rows are')} damaged: {named}"] if bad else []
    return HealthCheck(
        name=f"{check.table}: every row can be read and is as it was written",
        ok=not bad and not gap,
        found="; ".join([*damaged, *([gap] if gap else [])]) or f"{counted(count, 'row')}, all intact",
        public=f"{counted(count, 'row')} read, {len(bad)} damaged{', others unreadable' if gap else ''}",
        fix=repair_step(check.deed) if bad else FIX_THE_CAUSE,
        is_refused=bool(gap),
        mends=tuple(in_transaction(partial(check.mend, each)) for each in bad.values()),
    )


def _problem(check: TableCheck, row: Row, known: Known) -> Problem | None:
    try:
        return check.problem(row, known)
    except UNREADABLE:
        return Problem.UNREADABLE


async def _pages(database: Database, check: TableCheck, *, backwards: bool) -> AsyncIterator[list[Row]]:
    """Yield the rows from the first or from the last, up to one that cannot be read."""
    after = check.last if backwards else check.first
    limit = _PAGE_ROWS
    while True:
        try:
            page = await database.read(_page(check, after, limit, backwards=backwards))
        except StoreError:
            if limit == 1:
                raise
            limit //= 10
            continue
        if not page or page[-1][0] == after:
            return  # text that is not UTF-8 comes after every text that it can be read as
        after = page[-1][0]
        yield page


@transaction
def _page(check: TableCheck, after: Value, limit: int, *, backwards: bool) -> Statements[list[Row]]:
    joined = "AND" if " WHERE " in check.select else "WHERE"
    beyond, order = ("<", "DESC") if backwards else (">", "ASC")
    sql = f"{check.select} {joined} {check.order} {beyond} ? ORDER BY {check.order} {order} LIMIT {limit}"
    return (yield sql, (after,))


@transaction
def load_known() -> Statements[Known]:
    return Known(moves=(yield from moved()), aliases=(yield from load_all_aliases()))


def is_plausible(place: SessionKey, source: Source, known: Known) -> bool:
    """Return whether a message can have been sent in this place."""
    if not place.platform or source.platform in known.aliases:
        return True
    chat = source.chat_id or ""
    moves = known.moves.get((account_text(source.platform, source.account), source.scope_id), {})
    chats = {chat, moves.get(chat, chat)}
    return (place.platform, place.account) == (source.platform, source.account or "") and place.chat in chats
