"""Keyed digests that recognise an erased row without revealing it. Only the holder of the store's key can make them."""

import hashlib
import hmac
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Any, NamedTuple

from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.source import identity_of
from palaver.model.transcript import Entry
from palaver.model.turn import Delivery, Received
from palaver.model.value import value
from palaver.store.conversations.attachment_refs import referenced_among
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.meta import load_secret
from palaver.store.records import (
    DELIVERY_COLUMNS,
    SELECT_RECEIVED,
    delivery_of,
    entry_of,
    micros,
    readable,
    received_of,
)


@value(kw_only=False)
class Digests:
    key: bytes

    def entry(self, entry: Entry) -> str:
        """The same wherever the entry is imported again."""
        sender = entry.sender.id if entry.sender else None
        return self._digest("entry", entry.role.value, str(micros(entry.at)), sender or "", entry.text)

    def message(self, received: Received) -> str:
        inbound = received.inbound
        return self._digest("message", identity_of(inbound.source) or "", str(micros(inbound.at)), inbound.text)

    def send(self, delivery: Delivery) -> str:
        outbound = delivery.outbound
        return self._digest("send", outbound.platform, outbound.chat_id, str(micros(delivery.created)), outbound.text)

    def file(self, sha256: str) -> str:
        return self._digest("file", sha256)

    def name(self, name: str) -> str:
        """Of an identity, a person id or a conversation key."""
        return self._digest("name", name)

    def seal(self, text: str) -> str:
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()

    def _digest(self, *parts: str) -> str:
        encoded = (part.encode(errors="surrogatepass") for part in parts)
        message = b"".join(len(part).to_bytes(8) + part for part in encoded)
        return hmac.new(self.key, message, hashlib.sha256).hexdigest()[:_DIGEST_DIGITS]


async def orphaned_files(database: Database, blobs: BlobStore, digests: Digests, erased: Collection[str]) -> list[str]:
    """Return stored files with an erased digest that nobody else refers to."""
    found = await blobs.find(lambda name: digests.file(name) in erased) if erased else []
    held = await database.read(referenced_among(found))
    return [name for name in found if name not in held]


_DIGEST_DIGITS = 16
"""Hex digits. Ten million rows and 100,000 digests collide with a chance of one in twenty million."""


@transaction
def load_digests() -> Statements[Digests]:
    """Return digests with the key of this store, which is made at first use and never leaves it."""
    return Digests(bytes.fromhex((yield from load_secret("erasure key", 32))))


_PAGE_ROWS = 1000
LOWEST_NUMBER = -(1 << 62)


class Content(NamedTuple):
    """A table with content: how to read its rows, and how to recognise one that was erased."""

    table: str
    kind: str
    """The name of its rows in a receipt."""
    sql: str
    decode: Callable[[Row], Any]
    digest: Callable[[Digests, Any], str]


CONTENTS = (
    Content("entries", "entry", "SELECT id, body FROM entries WHERE id > ? ORDER BY id", entry_of, Digests.entry),
    Content(
        "inbox",
        "message",
        f"{SELECT_RECEIVED} WHERE i.no > ? AND length(i.body) > 0 ORDER BY i.no",
        received_of,
        Digests.message,
    ),
    Content(
        "outbox", "send", f"SELECT {DELIVERY_COLUMNS} FROM outbox WHERE id > ? ORDER BY id", delivery_of, Digests.send
    ),
)


async def read_digests(
    database: Database, content: Content, digests: Digests
) -> AsyncIterator[Sequence[tuple[int, str]]]:
    """Yield pages of numbers and digests of all rows."""
    after = LOWEST_NUMBER
    while rows := await database.read(_page(content, after)):
        after = rows[-1][0]
        yield [(row[0], content.digest(digests, found)) for row in rows for found in readable(content.decode, [row])]


@transaction
def _page(content: Content, after: int) -> Statements[list[Row]]:
    return (yield f"{content.sql} LIMIT {_PAGE_ROWS}", (after,))
