"""The content of files that were erased: what of it is still there, though nobody has it."""

from collections.abc import Collection

from palaver.ports.files import Shelf
from palaver.ports.store import Database
from palaver.stores.erasure.digests import Digests
from palaver.stores.filed import held_among

__all__ = ["loose_files"]


async def loose_files(database: Database, shelf: Shelf, digests: Digests, erased: Collection[str]) -> list[str]:
    """By the digests of what was erased. A file that somebody else has, too, is theirs."""
    found = await shelf.find(lambda name: digests.file(name) in erased) if erased else []
    held = await database.read(held_among(found))
    return [name for name in found if name not in held]
