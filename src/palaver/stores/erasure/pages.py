"""Pages: everything of a table, a bounded piece at a time."""

from collections.abc import AsyncIterator
from enum import Enum
from typing import Any, NamedTuple

from palaver.domain.turn import Delivery
from palaver.ports.store import Database
from palaver.ports.work import Row, Steps, work
from palaver.stores.erasure.digests import Digests
from palaver.stores.records import DELIVERY_COLUMNS, INBOX_COLUMNS, delivery_of, entries_of, received_of

__all__ = ["Owed", "Table", "pages_of", "text_columns"]

_PAGE = 1000
_LOWEST = -(1 << 62)
Numbered = tuple[int, Any]


class Owed(NamedTuple):
    """A send, and the name under which it is owed once."""

    delivery: Delivery
    dedup: str | None


class Table(Enum):
    """Tables that hold words."""

    ENTRIES = "entries"
    INBOX = "inbox"
    OUTBOX = "outbox"

    @property
    def kind(self) -> str:
        """What a row of it is called in a receipt."""
        return {"entries": "entry", "inbox": "message", "outbox": "send"}[self.value]

    def digest(self, digests: Digests, found: Any) -> str:  # noqa: ANN401 - what `pages_of` gives for this table
        match self:
            case Table.ENTRIES:
                return digests.entry(found)
            case Table.INBOX:
                return digests.message(found)
            case Table.OUTBOX:
                return digests.send(found.delivery)


async def pages_of(database: Database, table: Table) -> AsyncIterator[list[Numbered]]:
    """Rows as values of the domain under their numbers, in order. A message without words is left out."""
    after = _LOWEST
    while rows := await database.read(_page(table, after)):
        after = rows[-1][0]
        yield [(row[0], value) for row in rows if (value := _value(table, row)) is not None]


@work
def _page(table: Table, after: int) -> Steps[list[Row]]:
    match table:
        case Table.ENTRIES:
            sql = "SELECT id, body FROM entries WHERE id > ? ORDER BY id"
        case Table.INBOX:
            sql = (
                f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no > ?"
                " ORDER BY i.no"
            )
        case Table.OUTBOX:
            sql = f"SELECT {DELIVERY_COLUMNS}, dedup FROM outbox WHERE id > ? ORDER BY id"
    return (yield f"{sql} LIMIT {_PAGE}", (after,))


def _value(table: Table, row: Row) -> object | None:
    match table:
        case Table.ENTRIES:
            return entries_of([row[1]])[0]
        case Table.INBOX:
            return received_of(row) if row[_BODY] else None
        case Table.OUTBOX:
            return Owed(delivery_of(row[:-1]), row[-1])


_BODY = 6  # of INBOX_COLUMNS; what was erased has none


@work
def text_columns() -> Steps[list[tuple[str, str]]]:
    """Every column of every table that holds plain text, whoever made the table."""
    rows = yield (
        "SELECT /*pg table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND data_type = 'text' ORDER BY 1, 2 --*/ m.name, c.name"
        " FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.type = 'TEXT' ORDER BY 1, 2",
        (),
    )
    return [(row[0], row[1]) for row in rows]
