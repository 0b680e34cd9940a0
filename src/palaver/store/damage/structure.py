"""Check sessions, turns, operations and every other row that can be unreadable."""

from collections.abc import Callable
from datetime import datetime

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.process import process_name
from palaver.model.source import source_of_identity
from palaver.store.conversations.undo_log import OPERATION_COLUMNS, operation_of
from palaver.store.damage.mend_structure import mend_operation, mend_route, mend_session, mend_turn
from palaver.store.damage.rows import BadRow, Known, MendRow, Problem, TableCheck
from palaver.store.damage.set_aside import set_aside
from palaver.store.jobs.jobs import COLUMNS as JOB_COLUMNS
from palaver.store.jobs.jobs import job_of
from palaver.store.people.api_tokens import CREDENTIAL_COLUMNS, credential_of
from palaver.store.people.grants import GRANT_COLUMNS, change_of, grant_of
from palaver.store.privacy.footprint import Footprint
from palaver.store.processes import PROCESS_COLUMNS, WITH_SESSION, process_of
from palaver.store.records import (
    SEQS,
    SESSION_COLUMNS,
    SESSION_TITLE,
    TURN_COLUMNS,
    from_json,
    inbound_of,
    session_of,
    source_of,
    turn_of,
)

_STORED_SESSION = SESSION_COLUMNS.replace(SESSION_TITLE, "s.title")
_SESSION_WIDTH = _STORED_SESSION.count(",") + 1


def _session_problem(row: Row, _: Known) -> Problem | None:
    session = session_of(row[:_SESSION_WIDTH])
    profile, platform, finalised_by, next_seq = row[_SESSION_WIDTH:]
    from_json(finalised_by or "[]")
    is_same = (profile, platform) == (session.key.profile, session.origin.platform)
    return None if is_same and 0 < next_seq < SEQS else Problem.CONTRADICTS


def _turn_problem(row: Row, _: Known) -> Problem | None:
    turn_of(row[:-1])
    dict(from_json(row[-1] or "{}"))
    return None


def _operation_problem(row: Row, _: Known) -> Problem | None:
    *columns, key = row
    operation = operation_of(tuple(columns))
    for text in (key, operation.from_key, operation.to_key):
        if text is not None:
            SessionKey.parse(text)
    return None


def _route_problem(row: Row, _: Known) -> Problem | None:
    key, address, settings = row
    SessionKey.parse(key)
    source_of(address)
    dict(from_json(settings))
    return None


SESSIONS = TableCheck(
    table="sessions",
    select=f"SELECT {_STORED_SESSION}, s.profile, s.platform, s.finalised_by, s.next_seq FROM sessions s",
    order="s.no",
    name=lambda row: f"session {row[1]}",
    problem=_session_problem,
    mend=mend_session,
    deed="takes what is lost from its route, turns and messages, and keeps a copy of the row as it was",
)
TURNS = TableCheck(
    table="turns",
    select=f"SELECT {TURN_COLUMNS}, t.approvals FROM turns t LEFT JOIN sessions s ON s.no = t.session_no",
    order="t.no",
    name=lambda row: f"turn:{row[0]}",
    problem=_turn_problem,
    mend=mend_turn,
    deed="takes what is lost from its session, and keeps a copy of the row as it was",
)
OPERATIONS = TableCheck(
    table="operations",
    select=f"SELECT {OPERATION_COLUMNS}, key FROM operations",
    order="no",
    name=lambda row: f"operation {row[0]}",
    problem=_operation_problem,
    mend=mend_operation,
    deed="keeps a copy of the row; /back no longer returns to it",
)
ROUTES = TableCheck(
    table="routes",
    select="SELECT key, address, settings FROM routes",
    order="key",
    name=lambda row: f"route {row[0]}",
    problem=_route_problem,
    mend=mend_route,
    deed="takes its address from its session, and keeps a copy of the row as it was",
    first="",
)


def _aside(table: str, *columns: str) -> MendRow:
    """Set a row aside that these first columns name."""

    @transaction
    def _mend(bad: BadRow, now: datetime) -> Statements[None]:
        where = " AND ".join(f"{column} = ?" for column in columns)
        yield from set_aside(table, where, bad.row[: len(columns)], bad.problem.value, now)

    return _mend


def _small(
    table: str, columns: str, read: Callable[[Row], object], what: str, *, names: int = 1, where: str = ""
) -> TableCheck:
    """Check a table whose unreadable rows are set aside. Its first columns name a row."""
    named = columns.split(", ")[:names]
    first = named[0]

    def problem(row: Row, _: Known) -> Problem | None:
        read(row)
        return None

    return TableCheck(
        table=table,
        select=f"SELECT {columns} FROM {table}{where}",
        order=first,
        name=lambda row: f"{what} {' '.join(map(str, row[:names]))}",
        problem=problem,
        mend=_aside(table, *named),
        deed=f"sets it aside; add the {what} again if it is still needed",
        first=-(1 << 62) if first == "no" else "",
    )


def _addresses(row: Row) -> None:
    for address in row[-2:]:
        if address is not None:
            source_of(address)


def _keys(row: Row) -> None:
    for text in row:
        SessionKey.parse(text)


SMALL_TABLES = (
    _small("grants", f"no, actor, {GRANT_COLUMNS}", grant_of, "grant"),
    _small("access_log", "no, at, actor, kind, identity, details", change_of, "access log row"),
    _small("api_tokens", CREDENTIAL_COLUMNS, credential_of, "token"),
    _small("erasures", "no, subject", lambda row: Footprint.parse(row[1]), "erasure", where=" WHERE ended IS NULL"),
    _small("identities", "identity", lambda row: source_of_identity(row[0]), "identity"),
    _small("home_channels", "profile, platform, address", lambda row: source_of(row[2]), "home channel", names=2),
    _small("link_offers", "identity, address, guest_address", _addresses, "link offer"),
    _small("attached_chats", "place, key", _keys, "attached chat"),
    _small("ready_queue", "key", _keys, "ready conversation"),
    _small("schedules", JOB_COLUMNS, job_of, "job"),
)


def _process_problem(row: Row, _: Known) -> Problem | None:
    process_of(row[:-1])
    inbound_of(row[-1])
    return None


PROCESSES = TableCheck(
    table="processes",
    select=f"SELECT {PROCESS_COLUMNS}, p.origin FROM {WITH_SESSION}",
    order="p.no",
    name=lambda row: f"process {process_name(row[0])}",
    problem=_process_problem,
    mend=_aside("processes", "no"),
    deed="sets it aside; its output stays where it is",
)
TABLES = (SESSIONS, TURNS, OPERATIONS, ROUTES, PROCESSES, *SMALL_TABLES)
