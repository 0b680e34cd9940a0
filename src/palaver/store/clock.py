"""The store's time: the database server's, which all its gateways share, or else this machine's."""

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from palaver.db.transaction import Database, Statements, transaction
from palaver.store.records import instant

if TYPE_CHECKING:
    from palaver.protocols.clock import Clock

MAX_SKEW = timedelta(seconds=30)
"""How far a gateway's clock may be from the database's."""
CLOCK_TOLERANCE = timedelta(minutes=5)
"""How far a stored time may be in the future."""


@transaction
def read_time() -> Statements[datetime | None]:
    """Return the time of the database server; None for SQLite, which has this machine's."""
    rows = yield "SELECT 0 /*pg + CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)*/", ()
    return instant(rows[0][0]) if rows[0][0] else None


async def store_time(database: Database, own: datetime) -> datetime:
    """Return the database server's time, or this machine's `own` if there is no server."""
    return await database.read(read_time()) or own


def describe_skew(ahead: timedelta) -> str:
    """Say how far this machine's clock is ahead of the database's; nothing if that is within the limit.

    After a failover the database's can be the wrong one.
    """
    if abs(ahead) <= MAX_SKEW:
        return ""
    side = "ahead of" if ahead > timedelta() else "behind"
    seconds = f"{abs(ahead).total_seconds():.0f} seconds"
    return f"this machine's clock is {seconds} {side} the database server's: compare both, and set the wrong one"


class StoreClock:
    """Keeps the database server's time by counting on from when it was read, no matter what happens to our own clock.

    With SQLite it is this machine's clock. Leases are compared between gateways, so all of them need one time.
    """

    def __init__(self, database: Database, own: "Clock") -> None:
        self._database = database
        self._own = own
        self._read: tuple[datetime, float] | None = None
        """The database's time, and that of the event loop then."""

    def now(self) -> datetime:
        if self._read is None:
            return self._own.now()
        found, at = self._read
        return found + timedelta(seconds=asyncio.get_running_loop().time() - at)

    async def compare(self) -> str:
        """Read the database's time again, and say how wrong our own clock is, if it is."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        found = await self._database.read(read_time())
        if found is None:
            return ""
        # It was read at some time in between, so what we count can only be corrected outside of that.
        doubt = timedelta(seconds=(loop.time() - asked) / 2)
        if self._read is None or abs(self.now() - doubt - found) > doubt:
            self._read = found + doubt, loop.time()
        return describe_skew(self._own.now() - self.now())
