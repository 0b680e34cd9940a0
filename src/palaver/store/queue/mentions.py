"""Mentions: the sessions that the answer to a command quotes, and the numbers under which it lists them."""

from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.session import Session
from palaver.model.source import MessageAddress, identity_of, message_address
from palaver.model.turn import Received

_MENTION = "INSERT INTO mentions (inbox_no, session_no) SELECT ?, no FROM sessions WHERE"
MENTION_OPEN = f"{_MENTION} key = ? AND ended IS NULL ON CONFLICT DO NOTHING"


@transaction
def record_mentions(number: int, sessions: Iterable[Session]) -> Statements[None]:
    """Record that the answer to a command quotes these sessions: it is deleted with any of them."""
    for session in sessions:
        yield f"{_MENTION} no = ? ON CONFLICT DO NOTHING", (number, session.number)


@transaction
def record_listing(number: int, listed: Iterable[tuple[int, Session]]) -> Statements[None]:
    """Record the numbers under which the answer to a command lists sessions."""
    rows: list[tuple[Value, ...]] = [(number, session.number, position) for position, session in listed]
    yield (
        "INSERT INTO mentions (inbox_no, session_no, position) VALUES (?, ?, ?)"
        " ON CONFLICT (inbox_no, session_no) DO UPDATE SET position = excluded.position",
        rows,
    )


_SAME_CHAT = " AND ".join(f"{column} = ?" for column in MessageAddress._fields[1:])
_RECENT_MESSAGES = 1000
_RECENTLY_LISTED = 200


@transaction
def find_listed(command: Received, position: int, page_size: int) -> Statements[str | None]:
    """Return the id of the session under this number in the list that this sender was last shown in this chat.

    Its pages are one list: those after the first begin one after a multiple of `page_size`.
    """
    source = command.inbound.source
    rows: list[Row] = yield (
        "SELECT m.inbox_no, m.position, s.id FROM mentions m JOIN sessions s ON s.no = m.session_no"
        " WHERE m.position IS NOT NULL AND m.inbox_no IN"
        f" (SELECT no FROM inbox WHERE identity = ? AND {_SAME_CHAT} ORDER BY no DESC LIMIT {_RECENT_MESSAGES})"
        f" ORDER BY m.inbox_no DESC, m.position LIMIT {_RECENTLY_LISTED}",
        (identity_of(source), *message_address(source)[1:]),
    )
    for _, page in groupby(rows, key=itemgetter(0)):
        listed = {row[1]: row[2] for row in page}
        if position in listed:
            return listed[position]
        first = min(listed)
        if first == 1 or first % page_size != 1:
            return None
    return None
