"""Which tables are checked row by row, and what a row of each has to be."""

from collections.abc import Callable

from palaver.db.transaction import Row
from palaver.model.key import SessionKey
from palaver.model.process import process_name
from palaver.model.source import identity_of, message_address, source_of_identity
from palaver.model.turn import OutboxState
from palaver.store.conversations.undo_log import OPERATION_COLUMNS, operation_of
from palaver.store.damage.rows import Known, Problem, TableCheck, is_plausible
from palaver.store.jobs.jobs import COLUMNS as JOB_COLUMNS
from palaver.store.jobs.jobs import job_of
from palaver.store.people.api_tokens import CREDENTIAL_COLUMNS, credential_of
from palaver.store.people.grants import GRANT_COLUMNS, change_of, grant_of
from palaver.store.privacy.footprint import Footprint
from palaver.store.processes import PROCESS_COLUMNS, WITH_SESSION, process_of
from palaver.store.queue.inbox import ADDRESS_COLUMNS
from palaver.store.queue.outbox import NOBODY
from palaver.store.records import (
    DELIVERY_COLUMNS,
    INBOX_COLUMNS,
    SEQS,
    SESSION_COLUMNS,
    SESSION_TITLE,
    TURN_COLUMNS,
    addressee_column,
    body_values,
    chat_columns,
    delivery_of,
    entry_checksum,
    entry_of,
    from_json,
    inbound_of,
    outbound_of,
    received_of,
    session_of,
    source_of,
    turn_of,
)

# Entries


def _entry_problem(row: Row, _: Known) -> Problem | None:
    id_, body, role, turn, observed, checksum = row[:6]
    entry = entry_of(row)
    if checksum is not None and checksum != entry_checksum(id_, body):
        return Problem.CHANGED
    columns = (id_ % SEQS, role, None if turn is None else str(turn), bool(observed))
    is_new = checksum is not None
    written = (entry.seq, entry.role.value, entry.turn, entry.observed)
    return Problem.CONTRADICTS if (written != columns if is_new else written[0] != columns[0]) else None


def _entry_name(row: Row) -> str:
    return f"entry {row[0] % SEQS} of session {row[6] or row[0] // SEQS}"


ENTRIES = TableCheck(
    table="entries",
    select="SELECT e.id, e.body, e.role, e.turn_no, e.observed, e.checksum, s.id FROM entries e"
    f" LEFT JOIN sessions s ON s.no = e.id / {SEQS}",
    order="e.id",
    name=_entry_name,
    problem=_entry_problem,
    key=("id",),
)

# Received messages

_RECEIVED_WIDTH = INBOX_COLUMNS.count(",") + 1
_BODY = INBOX_COLUMNS.split(", ").index("i.body")


def _message_problem(row: Row, known: Known) -> Problem | None:
    columns, (checksum, identity, *address) = row[:_RECEIVED_WIDTH], row[_RECEIVED_WIDTH:]
    if not row[_BODY]:
        return Problem.UNREADABLE if checksum is not None else None
    received = received_of(columns)
    if checksum is not None and checksum != body_values(row[_BODY])[1]:
        return Problem.CHANGED
    source = received.inbound.source
    is_waiting = columns[2] == "waiting"
    if is_waiting and not is_plausible(received.place or received.key, source, known):
        return Problem.CONTRADICTS
    # Ids of people who have several forms were brought to one form.
    if source.platform in known.aliases or checksum is None:
        return None
    written = message_address(source)
    is_same = identity == identity_of(source) and (address[0] is None or tuple(address) == written)
    return None if is_same else Problem.CONTRADICTS


INBOX = TableCheck(
    table="inbox",
    select=f"SELECT {INBOX_COLUMNS}, i.checksum, i.identity,"
    f" {', '.join(f'i.{name}' for name in ADDRESS_COLUMNS.split(', '))}"
    " FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no",
    order="i.no",
    name=lambda row: f"in:{row[0]}",
    problem=_message_problem,
)

# Sends

_DELIVERY_WIDTH = DELIVERY_COLUMNS.count(",") + 1


def _send_problem(row: Row, known: Known) -> Problem | None:
    columns, (account, server, checksum, *_) = row[:_DELIVERY_WIDTH], row[_DELIVERY_WIDTH:]
    is_sent = delivery_of(columns).state is OutboxState.DELIVERED
    body, chat = columns[1], columns[-1]
    if checksum is not None and checksum != body_values(body)[1]:
        return Problem.CHANGED
    if checksum is None or account == NOBODY:
        return None
    outbound = outbound_of(body)
    written = chat_columns(outbound)
    now_at = known.moves.get((account, outbound.scope_id), {}).get(outbound.chat_id)
    chats = {written[2], *([] if now_at is None else [addressee_column(outbound.addressee, now_at)])}
    # Where a message was delivered to can have moved on since.
    is_there = is_sent or chat in chats
    return None if (account, server) == written[:2] and is_there else Problem.CONTRADICTS


OUTBOX = TableCheck(
    table="outbox",
    select=f"SELECT {DELIVERY_COLUMNS}, account, server, checksum FROM outbox",
    order="id",
    name=lambda row: f"out:{row[0]}",
    problem=_send_problem,
    key=("id",),
)

# Sessions, turns and the rest


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
)
TURNS = TableCheck(
    table="turns",
    select=f"SELECT {TURN_COLUMNS}, t.approvals FROM turns t LEFT JOIN sessions s ON s.no = t.session_no",
    order="t.no",
    name=lambda row: f"turn:{row[0]}",
    problem=_turn_problem,
)
OPERATIONS = TableCheck(
    table="operations",
    select=f"SELECT {OPERATION_COLUMNS}, key FROM operations",
    order="no",
    name=lambda row: f"operation {row[0]}",
    problem=_operation_problem,
)
ROUTES = TableCheck(
    table="routes",
    select="SELECT key, address, settings FROM routes",
    order="key",
    name=lambda row: f"route {row[0]}",
    problem=_route_problem,
    key=("key",),
)


def _small(
    table: str, columns: str, read: Callable[[Row], object], what: str, *, names: int = 1, where: str = ""
) -> TableCheck:
    """Check a table whose first columns name a row."""
    named = columns.split(", ")[:names]

    def problem(row: Row, _: Known) -> Problem | None:
        read(row)
        return None

    return TableCheck(
        table=table,
        select=f"SELECT {columns} FROM {table}",
        order=named[0],
        name=lambda row: f"{what} {' '.join(map(str, row[:names]))}",
        problem=problem,
        key=tuple(named),
        where=where,
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
    _small("erasures", "no, subject", lambda row: Footprint.parse(row[1]), "erasure", where="ended IS NULL"),
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
)
CHECKED_TABLES = (ENTRIES, INBOX, OUTBOX, SESSIONS, TURNS, OPERATIONS, ROUTES, PROCESSES, *SMALL_TABLES)
