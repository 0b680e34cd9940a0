"""Read the journal of transcript changes in an order that no later commit can change.

SQLite numbers journal rows in commit order. PostgreSQL does not, so there the order is that of transaction ids,
up to the oldest transaction that is still running.
"""

import re

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.errors import BadArgument
from palaver.model.session import Principal
from palaver.model.value import value
from palaver.store.conversations.visibility import visible_to

WINDOW = "window"
"""The topic on which gateways tell each other that a web page may have changed."""


START = "0.0"
"""The position before the first change."""


@value
class Change:
    """Entries of a transcript were changed: `append`, `hide`, `show`, `delete`; or a turn ended: `settle`."""

    position: str
    """The same on every worker, also after a restart."""
    session: str | None
    """None if the session was deleted."""
    kind: str
    first: int
    last: int


@value
class JournalPage:
    changes: tuple[Change, ...]
    position: str
    """Where to continue reading. Changes that the principal may not see are left out."""
    is_complete: bool
    """Nothing was committed after this page when it was read."""


_POSITION = re.compile(r"([0-9]{1,19})\.([0-9]{1,18})", re.ASCII)
_OLDEST_OPEN = "pg_snapshot_xmin(pg_current_snapshot())"
_ORDER = "ORDER BY /*pg j.xid, */ j.pos"


@transaction
def read_changes(position: str, principal: Principal, limit: int) -> Statements[JournalPage]:
    seen, (xid, pos) = visible_to(principal), _parse_position(position)
    rows = yield (
        "SELECT j.pos, /*pg j.xid::text --*/ '0'\n, j.kind, j.first_seq, j.last_seq, s.id,"
        f" CASE WHEN {seen.sql} THEN 1 ELSE 0 END FROM journal j LEFT JOIN sessions s ON s.no = j.session_no"
        f" WHERE /*pg (j.xid, j.pos) > (?::text::xid8, ?) AND j.xid < {_OLDEST_OPEN} --*/ ? IS NOT NULL"
        " AND j.pos > ?\n"
        f" {_ORDER} LIMIT {limit:d}",
        (*seen.values, xid, pos),
    )
    last = _position(rows[-1][1], rows[-1][0]) if rows else position
    is_complete = len(rows) < limit
    if is_complete:
        # Changes that were committed while an older transaction runs follow when it ends.
        late = yield (
            f"SELECT 0 /*pg + count(*) FROM (SELECT 1 FROM journal j WHERE j.xid >= {_OLDEST_OPEN} LIMIT 1) late*/",
            (),
        )
        is_complete = not late[0][0]
    return JournalPage(changes=tuple(_change(row) for row in rows if row[6]), position=last, is_complete=is_complete)


def _change(row: Row) -> Change:
    pos, xid, kind, first, last, session, _ = row
    return Change(position=_position(xid, pos), session=session, kind=kind, first=first, last=last)


@transaction
def latest_position() -> Statements[str]:
    rows = yield (
        f"SELECT j.pos, /*pg j.xid::text --*/ '0'\n FROM journal j /*pg WHERE j.xid < {_OLDEST_OPEN}*/"
        " ORDER BY /*pg j.xid DESC, */ j.pos DESC LIMIT 1",
        (),
    )
    return _position(rows[0][1], rows[0][0]) if rows else START


def _position(xid: str, pos: int) -> str:
    return f"{xid}.{pos}"


def _parse_position(position: str) -> tuple[str, int]:
    found = _POSITION.fullmatch(position)
    if not found:
        raise BadArgument("A position cannot be", found=position, allowed="one that you received before", example=START)
    return found[1], int(found[2])
