"""Search indexes: being written."""

from palaver.ports.search import Search
from palaver.ports.store import Database

__all__ = ["open_search"]


async def open_search(database: Database) -> Search:
    raise NotImplementedError(database)
