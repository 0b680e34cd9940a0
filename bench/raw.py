"""The other side: the very same statements on the bare driver, recorded from the store's own work."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from palaver.db.transaction import Row, Transaction, Value
from palaver.model.transcript import Entry

__all__ = ["Call", "Raw", "Script", "Transactor", "dicts_of"]

Call = tuple[str, tuple[Value, ...] | list[tuple[Value, ...]]]
"""SQL with the values it is run with, or with the list of values it is run with each."""

Script = list[Call]


class Transactor(Protocol):
    """Takes scripts from many tasks at once, each a durable transaction of its own."""

    async def transact(self, script: Script) -> None: ...

    def between(self) -> None:
        """What has to be done now and then, off the clock."""
        ...

    async def close(self) -> None: ...


class Raw(Transactor, Protocol):
    """One bare connection."""

    async def record(self, work: Transaction[Any]) -> Script:
        """The statements of the work with the values they have on this database, which is left as it was."""
        ...

    async def replay(self, script: Script) -> list[Row]:
        """Gives the rows of the last statement."""
        ...


_FIELDS = Entry._fields


def dicts_of(rows: Sequence[Row]) -> list[dict[str, object]]:
    """What one would do by hand: every row decoded, its fields under their names."""
    return [dict(zip(_FIELDS, json.loads(row[1]), strict=False)) for row in rows]
