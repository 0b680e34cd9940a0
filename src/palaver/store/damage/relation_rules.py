"""Nobody sees another's conversation and nothing is irreversible: what rows refer to, and how to mend it."""

from datetime import datetime

from palaver.db.transaction import Statements
from palaver.store.damage.restore_session import restore_session
from palaver.store.damage.rules import by_setting_aside, by_statements, keeping, one_by_one
from palaver.store.damage.set_aside import record_loss, set_aside
from palaver.store.damage.work_rules import FORGET_CAUSE, move_turn_to_its_entries
from palaver.store.queue.cause import OF_OPERATION, kinds_in
from palaver.store.records import SEQS, entry_span, micros
from palaver.store.results import OperationKind

_FIRST_SHOWN = (
    f"(SELECT min(e.id) FROM entries e WHERE e.id >= sessions.no * {SEQS} AND e.id < (sessions.no + 1) * {SEQS}"
    f" AND e.hidden_by IS NULL) - sessions.no * {SEQS}"
)
_LAST_SEQ = (
    f"(SELECT max(e.id) FROM entries e WHERE e.id >= sessions.no * {SEQS} AND e.id < (sessions.no + 1) * {SEQS})"
    f" - sessions.no * {SEQS}"
)
_OPEN = "(SELECT s.no FROM sessions s WHERE s.key = {0}.key AND s.ended IS NULL)"
_LATEST = "(SELECT s.no FROM sessions s WHERE s.key = {0}.key ORDER BY s.last_active DESC, s.no DESC LIMIT 1)"


# Sessions


_WITHOUT_SESSION = (
    "SELECT t.key FROM turns t LEFT JOIN sessions s ON s.no = t.session_no WHERE t.no = ? AND s.no IS NULL"
)


def _find_session_of_turn(number: int, now: datetime) -> Statements[None]:
    yield from move_turn_to_its_entries(number, now)
    for (key,) in (yield _WITHOUT_SESSION, (number,)):
        latest = yield "SELECT no FROM sessions WHERE key = ? ORDER BY last_active DESC, no DESC LIMIT 1", (key,)
        if latest:
            yield "UPDATE turns SET session_no = ? WHERE no = ?", (latest[0][0], number)
        else:
            yield from set_aside("turns", "no = ?", (number,), "it belongs to no session", now)


def _find_session_of_entry(id_: int, now: datetime) -> Statements[None]:
    number = id_ // SEQS
    if (yield "SELECT 1 FROM sessions WHERE no = ?", (number,)):
        yield f"UPDATE sessions SET next_seq = {_LAST_SEQ} + 1 WHERE no = ? AND next_seq <= {_LAST_SEQ}", (number,)
    elif not (yield from restore_session(number, now)):
        yield from set_aside("entries", "id = ?", (id_,), "it belongs to no session", now)


def _find_session_of_participant(number: int, now: datetime) -> Statements[None]:
    exists = yield "SELECT 1 FROM sessions WHERE no = ?", (number,)
    if not exists and not (yield from restore_session(number, now)):
        yield from set_aside("participants", "session_no = ?", (number,), "it belongs to no session", now)


def _find_session_of_route(key: str, now: datetime) -> Statements[None]:
    rows = yield (
        f"SELECT coalesce({_OPEN.format('routes')}, {_LATEST.format('routes')}) FROM routes WHERE key = ?",
        (key,),
    )
    if rows[0][0] is None:
        yield from set_aside("routes", "key = ?", (key,), "it leads to no session", now)
    else:
        yield "UPDATE routes SET session_no = ? WHERE key = ?", (rows[0][0], key)


def _point_route(key: str, now: datetime) -> Statements[None]:
    found = yield f"UPDATE routes SET session_no = {_OPEN.format('routes')} WHERE key = ? RETURNING session_no", (key,)
    if found:
        return
    rows = yield (
        "INSERT INTO routes (key, session_no, address) SELECT key, no, origin FROM sessions"
        " WHERE key = ? AND ended IS NULL RETURNING session_no",
        (key,),
    )
    lost = "its row was lost: made again from its open session; the settings of the conversation are not known"
    yield from record_loss("routes", key, lost, now, session=rows[0][0])


# Operations


def _replace_attach_operation(place: str, now: datetime) -> Statements[None]:
    """Put an operation that is over in the place of the one that attached a chat."""
    rows = yield (
        f"SELECT operation, since, actor, {_LATEST.format('attached_chats')} FROM attached_chats WHERE place = ?",
        (place,),
    )
    number, since, actor, session = rows[0]
    if session is None:
        yield from set_aside("attached_chats", "place = ?", (place,), "its conversation has no session", now)
        return
    columns = "no, key, session_no, kind, at, actor, undone_at"
    values = (number, place, session, OperationKind.ATTACH.value, since, actor, micros(now))
    yield f"INSERT INTO operations ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", values
    yield from record_loss("operations", str(number), f"{_LOST_OPERATION} /back does not undo it", now, session=session)


def _forget_cause(id_: int, now: datetime) -> Statements[None]:
    rows = yield "SELECT cause_id FROM outbox WHERE id = ?", (id_,)
    yield from record_loss("operations", rows[0][0], f"{_LOST_OPERATION} its notice is out:{id_}", now)
    yield FORGET_CAUSE, (id_,)


_LOST_OPERATION = "its row was lost, and what it did is not known:"


def _find_operation(entry: int, now: datetime) -> Statements[None]:
    """Let an entry be hidden by an operation on its session, so that /back can show it again."""
    session = entry // SEQS
    rows = yield (
        "SELECT e.hidden_by, o.session_no, s.key, s.started FROM entries e JOIN sessions s ON s.no = ?"
        " LEFT JOIN operations o ON o.no = e.hidden_by WHERE e.id = ?",
        (session, entry),
    )
    for number, found_in, key, started in rows:
        if found_in == session:
            continue
        columns = "key, session_no, kind, at, actor"
        values = (key, session, OperationKind.UNDO.value, started, "repair")
        if found_in is None:
            yield f"INSERT INTO operations (no, {columns}) VALUES (?, ?, ?, ?, ?, ?)", (number, *values)
            yield from record_loss(
                "operations", str(number), f"{_LOST_OPERATION} /back undoes it", now, session=session
            )
            continue
        shared = yield (
            "SELECT 1 FROM entries WHERE hidden_by = ? AND id >= ? AND id < ?",
            (number, *entry_span(found_in)),
        )
        if not shared:
            yield "UPDATE operations SET session_no = ? WHERE no = ?", (session, number)
            continue
        made = yield f"INSERT INTO operations ({columns}) VALUES (?, ?, ?, ?, ?) RETURNING no", values
        yield (
            "UPDATE entries SET hidden_by = ? WHERE hidden_by = ? AND id >= ? AND id < ?",
            (made[0][0], number, *entry_span(session)),
        )


def _find_session_of_operation(number: int, now: datetime) -> Statements[None]:
    rows = yield (
        f"UPDATE operations SET session_no = coalesce((SELECT min(e.id) / {SEQS} FROM entries e"
        f" WHERE e.hidden_by = operations.no), {_LATEST.format('operations')}, session_no) WHERE no = ?"
        " RETURNING (SELECT 1 FROM sessions s WHERE s.no = session_no)",
        (number,),
    )
    if rows and rows[0][0] is None:
        yield from set_aside("operations", "no = ?", (number,), "it belongs to no session", now)


# People


def _find_linked_identity(number: int, now: datetime) -> Statements[None]:
    """Make a linked identity again: it is the person that the other one is."""
    for mine, other in (("one", "other"), ("other", "one")):
        yield (
            "INSERT INTO identities (identity, person, original_person, created)"
            f" SELECT l.{mine}, i.person, i.person, l.since FROM links l JOIN identities i ON i.identity = l.{other}"
            f" WHERE l.no = ? AND NOT EXISTS (SELECT 1 FROM identities x WHERE x.identity = l.{mine})",
            (number,),
        )
    rows = yield (
        "SELECT 1 FROM links l JOIN identities a ON a.identity = l.one JOIN identities b ON b.identity = l.other"
        " WHERE l.no = ?",
        (number,),
    )
    if not rows:
        yield from set_aside("links", "no = ?", (number,), "both of its accounts are missing", now)


_LOST_HOLDER = (
    "((kind = 'entry' AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.id = attachments.holder))"
    " OR (kind = 'in' AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = attachments.holder))"
    " OR kind NOT IN ('entry', 'in', 'out'))"
)


def _drop_file(sha256: str, now: datetime) -> Statements[None]:
    reason = "what had this file is missing"
    yield from set_aside("attachments", f"sha256 = ? AND {_LOST_HOLDER}", (sha256,), reason, now)


# Rules


def _dangling(table: str, name: str, column: str, target: str, key: str) -> str:
    """Return SQL for the name of each row whose column leads to no row of another table."""
    return (
        f"SELECT {name} FROM {table} r WHERE {column} IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM {target} x WHERE x.{key} = r.{column})"
    )


_SENT_FROM = "attached_chats a WHERE a.place = coalesce(inbox.place, inbox.key)"
NOBODY_SEES_ANOTHERS = keeping(
    "P3",
    one_by_one(
        "every turn belongs to a session that exists",
        "SELECT no FROM turns WHERE session_no NOT IN (SELECT no FROM sessions)",
        "finds its session by its entries or its conversation, and else sets it aside",
        _find_session_of_turn,
    ),
    one_by_one(
        "every entry belongs to a session that exists and has a number below its next",
        f"SELECT e.id FROM entries e LEFT JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE s.no IS NULL OR e.id % {SEQS} >= s.next_seq",
        "makes the session again from its turns and entries, and else sets the entry aside",
        _find_session_of_entry,
    ),
    one_by_one(
        "every participant belongs to a session that exists",
        "SELECT session_no FROM participants WHERE session_no NOT IN (SELECT no FROM sessions)",
        "makes the session again if something of it is left, and else sets the participant aside",
        _find_session_of_participant,
    ),
    by_statements(
        "every waiting message was sent in its own conversation or in a chat attached to it",
        "SELECT i.no FROM inbox i LEFT JOIN attached_chats a ON a.place = coalesce(i.place, i.key)"
        " WHERE i.state = 'waiting' AND i.key <> coalesce(a.key, i.place, i.key)",
        "returns the message to where it was sent",
        f"UPDATE inbox SET key = coalesce((SELECT a.key FROM {_SENT_FROM}), place, key),"
        f" place = (SELECT a.place FROM {_SENT_FROM}) WHERE state = 'waiting'",
    ),
    by_statements(
        "every identity belongs to a person that exists",
        _dangling("identities", "identity", "person", "people", "id"),
        "makes the person again",
        "INSERT INTO people (id, name, created) SELECT person, min(name), min(created) FROM identities"
        " WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = identities.person) GROUP BY person",
    ),
    one_by_one(
        "every linked account belongs to an identity that exists",
        _dangling("links", "no", "one", "identities", "identity"),
        "makes the identity again",
        _find_linked_identity,
    ),
    one_by_one(
        "every other linked account belongs to an identity that exists",
        _dangling("links", "no", "other", "identities", "identity"),
        "makes the identity again",
        _find_linked_identity,
    ),
    one_by_one(
        "every operation belongs to a session that exists",
        _dangling("operations", "no", "session_no", "sessions", "no"),
        "finds its session by what it hides or by its conversation, and else sets it aside",
        _find_session_of_operation,
    ),
    *(
        by_setting_aside(f"every {what} belongs to {whose} that exists", _dangling(table, name, *refers), table, name)
        for what, whose, table, name, *refers in (
            ("mention", "a message", "mentions", "inbox_no", "inbox_no", "inbox", "no"),
            ("mentioned session", "a session", "mentions", "session_no", "session_no", "sessions", "no"),
            ("request with results", "a message", "result_requests", "inbox_no", "inbox_no", "inbox", "no"),
            ("request for access", "a message", "pairings", "identity", "inbox_no", "inbox", "no"),
            ("mark", "a session", "session_marks", "session_no", "session_no", "sessions", "no"),
            ("process", "a session", "processes", "no", "session_no", "sessions", "no"),
            ("digest of an erasure", "an erasure", "erased_digests", "erasure", "erasure", "erasures", "no"),
            ("firing", "a job", "firings", "schedule_no", "schedule_no", "schedules", "no"),
            ("replaced note", "a note", "memory_notes", "no", "replaced_by", "memory_notes", "no"),
        )
    ),
    one_by_one(
        "every file belongs to an entry or a message",
        f"SELECT DISTINCT sha256 FROM attachments WHERE {_LOST_HOLDER}",
        "sets the reference aside",
        _drop_file,
    ),
    by_setting_aside(
        "no chat is attached to a conversation that is itself attached elsewhere",
        "SELECT a.place FROM attached_chats a JOIN attached_chats b ON b.place = a.key",
        "attached_chats",
        "place",
    ),
)
NOTHING_IRREVERSIBLE = keeping(
    "P4",
    one_by_one(
        "every hidden entry was hidden by an operation on its session",
        "SELECT e.id FROM entries e LEFT JOIN operations o ON o.no = e.hidden_by"
        f" WHERE e.hidden_by IS NOT NULL AND (o.no IS NULL OR o.session_no <> e.id / {SEQS})",
        "makes an operation that /back can undo",
        _find_operation,
    ),
    # A session that was deleted took its operations along, and the journal tells no more than that.
    one_by_one(
        "every attached chat was attached by an operation that exists",
        "SELECT place FROM attached_chats a WHERE NOT EXISTS (SELECT 1 FROM operations o WHERE o.no = a.operation)"
        " AND NOT EXISTS (SELECT 1 FROM journal d LEFT JOIN sessions s ON s.no = d.session_no"
        " WHERE d.kind = 'delete' AND s.no IS NULL)",
        "records the loss: /detach still works, /back does not undo it",
        _replace_attach_operation,
    ),
    one_by_one(
        "every notice about an operation belongs to one that exists",
        f"SELECT id FROM outbox c WHERE cause_kind IN ({kinds_in(OF_OPERATION)})"
        " AND NOT EXISTS (SELECT 1 FROM operations o WHERE CAST(o.no AS TEXT) = c.cause_id)",
        "records the loss, and keeps the notice without its cause",
        _forget_cause,
    ),
    by_statements(
        "no visible entry comes before the point where reading its session starts",
        f"SELECT e.id FROM entries e JOIN sessions s ON s.no = e.id / {SEQS}"
        f" WHERE e.hidden_by IS NULL AND e.id % {SEQS} < s.shown_from",
        "finds the point again",
        f"UPDATE sessions SET shown_from = {_FIRST_SHOWN} WHERE shown_from > {_FIRST_SHOWN}",
    ),
    one_by_one(
        "every route points to a session that exists",
        "SELECT key FROM routes WHERE session_no NOT IN (SELECT no FROM sessions)",
        "points it to the latest session of its conversation, and else sets it aside",
        _find_session_of_route,
    ),
    one_by_one(
        "the route of a conversation points to its open session",
        "SELECT s.key FROM sessions s LEFT JOIN routes r ON r.key = s.key WHERE s.ended IS NULL"
        " AND (r.session_no IS NULL OR r.session_no <> s.no)",
        "points it there",
        _point_route,
    ),
)
