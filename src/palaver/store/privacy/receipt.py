"""Receipts: what was erased, when and by whom, as counts and digests; and verifying that it is still gone."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import msgspec

from palaver.db.transaction import Database, Row, Statements, transaction
from palaver.model.errors import BadArgument
from palaver.model.value import value
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.text import text_columns
from palaver.store.privacy.digests import CONTENTS, Digests, load_digests, orphaned_files, read_digests
from palaver.store.records import instant
from palaver.store.search.search import Search

FORMAT = "palaver-erasure"
_VERSION = 1
_EXAMPLE = "palaver people verify receipt.json"


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    number: int = msgspec.field(name="erasure")
    asked: datetime
    ended: datetime
    by: str
    keeps_access: bool
    digests: dict[str, tuple[str, ...]]
    """Sorted, by kind."""

    @property
    def counts(self) -> dict[str, int]:
        return {kind: len(digests) for kind, digests in self.digests.items()}

    def text(self, digests: Digests) -> str:
        """Return the file, signed with the key of the store."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        body = {"format": FORMAT, "version": _VERSION, **fields, "counts": self.counts}
        return json.dumps({**body, "seal": digests.seal(_canonical(body))}, indent=1) + "\n"


def _canonical(body: Mapping[str, Any]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


@transaction
def get_receipt(number: int) -> Statements[tuple[Receipt, str] | None]:
    """Return the receipt of a finished erasure and its file; None if there is none, or its digests were deleted."""
    rows = yield "SELECT requested, ended, actor, keeps_access FROM erasures WHERE no = ?", (number,)
    found: list[Row] = yield (
        "SELECT kind, digest FROM erased_digests WHERE erasure = ? ORDER BY kind, digest",
        (number,),
    )
    if not rows or rows[0][1] is None or not found:
        return None
    asked, ended, by, keeps = rows[0]
    receipt = Receipt(
        number=number,
        asked=instant(asked),
        ended=instant(ended),
        by=by,
        keeps_access=bool(keeps),
        digests={kind: tuple(row[1] for row in rows) for kind, rows in groupby(found, key=itemgetter(0))},
    )
    return receipt, receipt.text((yield from load_digests()))


@transaction
def delete_digests(number: int) -> Statements[None]:
    """Delete the digests once the receipt is stored elsewhere: they should not lie beside their key."""
    yield "DELETE FROM erased_digests WHERE erasure = ?", (number,)


def read_receipt(text: str, digests: Digests) -> Receipt:
    """Parse a receipt. Raises BadArgument if it is not of this store or was changed."""
    try:
        body: dict[str, Any] = json.loads(text)
        seal = body.pop("seal")
        is_ours = body["format"] == FORMAT and body["version"] == _VERSION and seal == digests.seal(_canonical(body))
        receipt = msgspec.convert(body, Receipt)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, msgspec.ValidationError):
        raise _invalid_receipt("no receipt") from None
    if not is_ours:
        raise _invalid_receipt("changed, or from another store")
    return receipt


def _invalid_receipt(found: str) -> BadArgument:
    return BadArgument(f"This file is {found}.", found=found, allowed="a receipt of this store", example=_EXAMPLE)


# Verification


@value
class Verification:
    """Where erased data was found again."""

    back: tuple[str, ...] = ()
    """Rows with erased content, and files that nobody else refers to."""
    named: tuple[str, ...] = ()
    """Columns that name the person. They also do when the person has come back."""
    strays: int = 0
    """Entries of the search index that no longer exist."""

    @property
    def holds(self) -> bool:
        return not self.back and not self.strays


async def verify(
    database: Database,
    search: Search,
    receipt: Receipt,
    *,
    blobs: BlobStore | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Check every row, and every stored file of this machine."""
    digests = await database.transact(load_digests())
    back: list[str] = []
    for content in CONTENTS:
        if erased := frozenset(receipt.digests.get(content.kind, ())):
            seen = 0
            async for page in read_digests(database, content, digests):
                back += [f"{content.table} {number}" for number, digest in page if digest in erased]
                seen += len(page)
                progress(seen)
    if blobs is not None:
        files = await orphaned_files(database, blobs, digests, frozenset(receipt.digests.get("file", ())))
        back += [f"file {name[:16]}" for name in files]
    names = frozenset(receipt.digests.get("name", ()))
    named = await database.read(_named(names, digests)) if names else []
    await search.catch_up()
    return Verification(back=tuple(back), named=tuple(named), strays=await search.strays())


@transaction
def _named(names: Iterable[str], digests: Digests) -> Statements[list[str]]:
    wanted, found = frozenset(names), list[str]()
    for table, column in (yield from text_columns()):
        rows = yield f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL", ()
        if any(digests.name(row[0]) in wanted for row in rows):
            found.append(f"{table}.{column}")
    return found
