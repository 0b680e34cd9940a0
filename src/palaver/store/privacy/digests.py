"""Digests: what tells a row again without telling what was in it. Only whoever holds the store's key can make them."""

import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Collection, Iterable
from enum import Enum
from typing import Any, NamedTuple

from palaver.db.database import Database
from palaver.db.transaction import Row, Statements, transaction
from palaver.model.session import identity_of
from palaver.model.transcript import Entry
from palaver.model.turn import Delivery, Received
from palaver.model.value import value
from palaver.store.conversations.attachment_refs import referenced_among
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.queue.cause import CAUSE_COLUMNS, SendCause, cause_of
from palaver.store.records import DELIVERY_COLUMNS, INBOX_COLUMNS, delivery_of, entries_of, micros, received_of

__all__ = [
    "Digests",
    "Owed",
    "Table",
    "digests_of_store",
    "loose_files",
    "pages_of",
    "text_columns",
]


@value(kw_only=False)
class Digests:
    key: bytes

    def entry(self, entry: Entry) -> str:
        """The same wherever the entry is brought back to."""
        sender = entry.sender.id if entry.sender else None
        return self._digest("entry", entry.role.value, str(micros(entry.at)), sender or "", entry.text)

    def message(self, received: Received) -> str:
        inbound = received.inbound
        return self._digest("message", identity_of(inbound.source) or "", str(micros(inbound.at)), inbound.text)

    def send(self, delivery: Delivery) -> str:
        outbound = delivery.outbound
        return self._digest("send", outbound.platform, outbound.chat_id, str(micros(delivery.created)), outbound.text)

    def file(self, sha256: str) -> str:
        """Of what it is kept under."""
        return self._digest("file", sha256)

    def name(self, name: str) -> str:
        """Of what stands for somebody: an identity, a person, a conversation."""
        return self._digest("name", name)

    def seal(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def _digest(self, *parts: str) -> str:
        return hmac.new(self.key, _joined(parts), hashlib.sha256).hexdigest()[:_LENGTH]


async def loose_files(database: Database, shelf: BlobStore, digests: Digests, erased: Collection[str]) -> list[str]:
    """By the digests of what was erased. A file that somebody else has, too, is theirs."""
    found = await shelf.find(lambda name: digests.file(name) in erased) if erased else []
    held = await database.read(referenced_among(found))
    return [name for name in found if name not in held]


_LENGTH = 16
"""Hex digits: among ten million rows and a hundred thousand digests, two meet by chance once in twenty million."""


def _joined(parts: Iterable[str]) -> bytes:
    encoded = (part.encode(errors="surrogatepass") for part in parts)
    return b"".join(len(part).to_bytes(8) + part for part in encoded)


@transaction
def digests_of_store() -> Statements[Digests]:
    """With the key of this store, made at its first use. It never leaves the store."""
    rows = yield "SELECT value FROM meta WHERE name = 'erasure key'", ()
    if not rows:
        yield (
            "INSERT INTO meta (name, value) VALUES ('erasure key', ?) ON CONFLICT (name) DO NOTHING",
            (secrets.token_hex(32),),
        )
        rows = yield "SELECT value FROM meta WHERE name = 'erasure key'", ()
    return Digests(bytes.fromhex(rows[0][0]))


_PAGE = 1000
_LOWEST = -(1 << 62)
Numbered = tuple[int, Any]


class Owed(NamedTuple):
    """A send, and why it is sent if it is no reply of a turn."""

    delivery: Delivery
    cause: SendCause | None


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


@transaction
def _page(table: Table, after: int) -> Statements[list[Row]]:
    match table:
        case Table.ENTRIES:
            sql = "SELECT id, body FROM entries WHERE id > ? ORDER BY id"
        case Table.INBOX:
            sql = (
                f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no WHERE i.no > ?"
                " ORDER BY i.no"
            )
        case Table.OUTBOX:
            sql = f"SELECT {DELIVERY_COLUMNS}, {CAUSE_COLUMNS} FROM outbox WHERE id > ? ORDER BY id"
    return (yield f"{sql} LIMIT {_PAGE}", (after,))


def _value(table: Table, row: Row) -> object | None:
    match table:
        case Table.ENTRIES:
            return entries_of([row[1]])[0]
        case Table.INBOX:
            return received_of(row) if row[_BODY] else None
        case Table.OUTBOX:
            return Owed(delivery_of(row[:-4]), cause_of(*row[-4:]))


_BODY = 6  # of INBOX_COLUMNS; what was erased has none


@transaction
def text_columns() -> Statements[list[tuple[str, str]]]:
    """Every column of every table that holds plain text, whoever made the table."""
    rows = yield (
        "SELECT /*pg table_name::text, column_name::text FROM information_schema.columns"
        " WHERE table_schema = current_schema() AND data_type = 'text' ORDER BY 1, 2 --*/ m.name, c.name"
        " FROM sqlite_master m JOIN pragma_table_info(m.name) c"
        " WHERE m.type = 'table' AND c.type = 'TEXT' ORDER BY 1, 2",
        (),
    )
    return [(row[0], row[1]) for row in rows]
