"""Search: an index apart from the truth, filled from its journal, found in for a principal."""

from palaver.ports.search import Search
from palaver.ports.store import Database
from palaver.stores.search.finding import IndexSearch
from palaver.stores.search.sqlite_index import SqliteIndex
from palaver.stores.sqlite import SqliteDatabase

__all__ = ["open_search"]


async def open_search(database: Database) -> Search:
    """The index that belongs to this database: a file beside SQLite's, tables of their own in PostgreSQL."""
    if isinstance(database, SqliteDatabase):
        return IndexSearch(database, SqliteIndex(database))
    from palaver.stores.search.postgres_index import PostgresIndex  # noqa: PLC0415 - an extra

    index = PostgresIndex(database)
    await index.open()
    return IndexSearch(database, index)
