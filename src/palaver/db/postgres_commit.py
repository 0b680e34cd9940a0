"""Commit on PostgreSQL, where a commit can wait for a standby, and tell since when none was confirmed."""

import asyncio
from typing import Any

from palaver.db.postgres_statements import LOST
from palaver.model.errors import StoreUnavailable

# asyncpg has no types of its own.
Connection = Any

_COMMIT = "SET LOCAL lock_timeout = 0; SET LOCAL statement_timeout = 0; COMMIT;"
"""A commit can wait for a standby. A timeout there would end the wait, but not undo the commit."""
COMMIT_SECONDS = 60.0
_DRIVER_SECONDS = 1e6
"""The driver's own limit would cancel the commit on the server."""


class Commits:
    """Commits, and remembers which of them have no answer yet."""

    def __init__(self, within: float | None = None) -> None:
        """A commit that gets no answer `within` so many seconds may or may not have happened."""
        self._within = within
        self._waiting: dict[asyncio.Future[object], float] = {}
        """Since when, the first one first."""

    @property
    def silent_since(self) -> float | None:
        """Since when the first one waits, by the clock of the event loop; None if none does.

        The log has an order: what is written after it waits, too. What wrote nothing does not.
        """
        return next(iter(self._waiting.values()), None)

    async def commit(self, connection: Connection) -> None:
        """Commit. Raise StoreUnavailable if there is no answer: it may have happened, so it is never repeated.

        It is never cancelled: the server would no longer wait for its standby, and would show everybody what only this
        server has. Instead the connection breaks, which the server does not notice before the standby has it.
        """
        committing: asyncio.Future[object] = asyncio.ensure_future(connection.execute(_COMMIT, timeout=_DRIVER_SECONDS))
        self._waiting[committing] = asyncio.get_running_loop().time()
        try:
            await asyncio.wait({committing}, timeout=self._within)
        finally:
            del self._waiting[committing]
            if not committing.done():
                connection.terminate()
                await asyncio.gather(committing, return_exceptions=True)
        try:
            committing.result()
        except LOST as error:
            raise StoreUnavailable("PostgreSQL was lost during a commit, which may or may not have happened") from error
