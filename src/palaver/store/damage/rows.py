"""Read every row by itself, and compare it with its checksum and its own columns."""

from collections.abc import AsyncIterator, Callable, Mapping
from enum import Enum
from typing import NamedTuple

from palaver.db.transaction import Database, Row, Statements, Value, transaction
from palaver.model.errors import StoreError
from palaver.model.key import SessionKey
from palaver.model.source import Source, account_text
from palaver.model.text import counted
from palaver.model.value import value
from palaver.store.conversations.chat_migration import moved
from palaver.store.damage.health_check import RESTORE_OR_SALVAGE, HealthCheck, listed
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
    key: tuple[str, ...] = ("no",)
    """The columns that name a row: the first ones that are selected."""
    where: str = ""
    """Which rows are read."""


class TableReport(NamedTuple):
    """What was found in a table."""

    bad: list[BadRow]
    read: int
    """How many rows were read."""
    gap: str
    """Why others could not be."""


async def read_table(database: Database, check: TableCheck) -> TableReport:
    """Read every row by itself."""
    known = await database.read(load_known())
    bad: dict[Row, BadRow] = {}
    count = 0
    gap = ""
    # Where a part of the file cannot be read, the rows on both sides of it still can.
    for backwards in (False, True):
        try:
            async for page in _pages(database, check, backwards=backwards):
                count += len(page)
                for row in page:
                    if problem := _problem(check, row, known):
                        bad[row[: len(check.key)]] = BadRow(row, check.name(row), problem)
            break
        except StoreError as error:
            gap = f"{counted(count, 'row')} can be read, and the others cannot: {error}"
    return TableReport(list(bad.values()), count, gap)


async def check_table(database: Database, check: TableCheck) -> HealthCheck:
    bad, count, gap = await read_table(database, check)
    named = listed(f"{each.name} {each.problem.value}" for each in bad)
    damaged = [f"{counted(len(bad), 'row is', 'rows are')} damaged: {named}"] if bad else []
    return HealthCheck(
        name=f"{check.table}: every row can be read and is as it was written",
        ok=not bad and not gap,
        found="; ".join([*damaged, *([gap] if gap else [])]) or f"{counted(count, 'row')}, all intact",
        public=f"{counted(count, 'row')} read, {len(bad)} damaged{', others unreadable' if gap else ''}",
        fix=RESTORE_OR_SALVAGE,
        is_refused=bool(gap),
    )


def _problem(check: TableCheck, row: Row, known: Known) -> Problem | None:
    try:
        return check.problem(row, known)
    except UNREADABLE:
        return Problem.UNREADABLE


async def _pages(database: Database, check: TableCheck, *, backwards: bool) -> AsyncIterator[list[Row]]:
    """Yield the rows from the first or from the last, up to one that cannot be read."""
    after: Value = None
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
    beyond, order = ("<", "DESC") if backwards else (">", "ASC")
    conditions = [check.where] if check.where else []
    if after is not None:
        conditions.append(f"{check.order} {beyond} ?")
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    return (
        yield (
            f"{check.select}{where} ORDER BY {check.order} {order} LIMIT {limit}",
            () if after is None else (after,),
        )
    )


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
