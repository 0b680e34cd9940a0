"""Mend sessions, routes, entries, operations and people whose relations lead nowhere."""

from datetime import datetime

from palaver.db.transaction import Statements
from palaver.model.session import next_in_lineage
from palaver.store.conversations.sessions import new_id
from palaver.store.damage.mend_queue import FORGET_CAUSE
from palaver.store.damage.restore_session import restore_session
from palaver.store.damage.rule_mend import by_setting_aside, by_statements, one_by_one
from palaver.store.damage.set_aside import record_loss, set_aside
from palaver.store.records import SEQS, entry_span, instant, micros
from palaver.store.results import OperationKind
from palaver.store.status.invariants import RELATIONS

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


def _number_title(number: int, _: datetime) -> Statements[None]:
    rows = yield "SELECT owner, title FROM sessions WHERE no = ?", (number,)
    owner, title = rows[0]
    taken = yield "SELECT title FROM sessions WHERE owner = ? AND title IS NOT NULL", (owner,)
    free = next_in_lineage(title, [row[0] for row in taken])
    yield "UPDATE sessions SET title = ? WHERE no = ?", (free, number)


def _give_new_id(number: int, _: datetime) -> Statements[None]:
    rows = yield "SELECT started FROM sessions WHERE no = ?", (number,)
    yield "UPDATE sessions SET id = ? WHERE no = ?", (new_id(instant(rows[0][0])), number)


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


def _drop_file(sha256: str, now: datetime) -> Statements[None]:
    holders = "(kind = 'entry' AND NOT EXISTS (SELECT 1 FROM entries e WHERE e.id = attachments.holder))"
    messages = "(kind = 'in' AND NOT EXISTS (SELECT 1 FROM inbox i WHERE i.no = attachments.holder))"
    where = f"sha256 = ? AND ({holders} OR {messages} OR kind NOT IN ('entry', 'in', 'out'))"
    yield from set_aside("attachments", where, (sha256,), "what had this file is missing", now)


def _keep_first(message: int, now: datetime) -> Statements[None]:
    first = yield "SELECT schedule_no, at FROM firings WHERE inbox_no = ? ORDER BY at, schedule_no LIMIT 1", (message,)
    where = "inbox_no = ? AND NOT (schedule_no = ? AND at = ?)"
    yield from set_aside("firings", where, (message, *first[0]), "its message belongs to another firing", now)


RELATION_MENDS = (
    # What comes later has its own way to mend one of these.
    *(
        by_setting_aside(f"every {what} belongs to {whose}", table, name)
        for what, whose, (table, name, _), _ in RELATIONS
    ),
    by_statements(
        "a conversation has at most one open session",
        "ends all but the one that the conversation leads to",
        "UPDATE sessions SET ended = last_active, end_reason = 'switched' WHERE ended IS NULL AND no <> coalesce("
        "(SELECT o.no FROM sessions o JOIN routes r ON r.session_no = o.no AND r.key = o.key"
        " WHERE o.key = sessions.key AND o.ended IS NULL),"
        " (SELECT max(o.no) FROM sessions o WHERE o.key = sessions.key AND o.ended IS NULL))",
    ),
    one_by_one("a title names one session of its owner", "numbers the later one", _number_title),
    one_by_one("an id names one session", "gives the later one a new id", _give_new_id),
    one_by_one(
        "every entry belongs to a session that exists and has a number below its next",
        "makes the session again from its turns and entries, and else sets the entry aside",
        _find_session_of_entry,
    ),
    one_by_one(
        "every participant belongs to a session that exists",
        "makes the session again if something of it is left, and else sets the participant aside",
        _find_session_of_participant,
    ),
    by_statements(
        "every waiting message was sent in its own conversation or in a chat attached to it",
        "returns the message to where it was sent",
        "UPDATE inbox SET key = coalesce((SELECT a.key FROM attached_chats a WHERE a.place = coalesce(inbox.place,"
        " inbox.key)), place, key), place = (SELECT a.place FROM attached_chats a"
        " WHERE a.place = coalesce(inbox.place, inbox.key)) WHERE state = 'waiting'",
    ),
    by_setting_aside(
        "no chat is attached to a conversation that is itself attached elsewhere", "attached_chats", "place"
    ),
    by_statements(
        "every identity belongs to a person that exists",
        "makes the person again",
        "INSERT INTO people (id, name, created) SELECT person, min(name), min(created) FROM identities"
        " WHERE NOT EXISTS (SELECT 1 FROM people p WHERE p.id = identities.person) GROUP BY person",
    ),
    one_by_one(
        "every linked account belongs to an identity that exists", "makes the identity again", _find_linked_identity
    ),
    one_by_one(
        "every other linked account belongs to an identity that exists",
        "makes the identity again",
        _find_linked_identity,
    ),
    by_statements(
        "every firing of a job has a message, or says why it did not run",
        "says that its message was lost",
        "UPDATE firings SET reason = CASE WHEN inbox_no IS NULL THEN 'its message was lost' END"
        " WHERE (inbox_no IS NULL) <> (reason IS NOT NULL)",
    ),
    one_by_one(
        "every message belongs to at most one firing of a job", "keeps the first and sets the others aside", _keep_first
    ),
    one_by_one(
        "every operation belongs to a session that exists",
        "finds its session by what it hides or by its conversation, and else sets it aside",
        _find_session_of_operation,
    ),
    one_by_one("every file belongs to an entry or a message", "sets the reference aside", _drop_file),
    one_by_one(
        "every hidden entry was hidden by an operation on its session",
        "makes an operation that /back can undo",
        _find_operation,
    ),
    by_statements(
        "no visible entry comes before the point where reading its session starts",
        "finds the point again",
        f"UPDATE sessions SET shown_from = {_FIRST_SHOWN} WHERE shown_from > {_FIRST_SHOWN}",
    ),
    one_by_one(
        "every route points to a session that exists",
        "points it to the latest session of its conversation, and else sets it aside",
        _find_session_of_route,
    ),
    one_by_one("the route of a conversation points to its open session", "points it there", _point_route),
    one_by_one(
        "every attached chat was attached by an operation that exists",
        "records the loss: /detach still works, /back does not undo it",
        _replace_attach_operation,
    ),
    one_by_one(
        "every notice about an operation belongs to one that exists",
        "records the loss, and keeps the notice without its cause",
        _forget_cause,
    ),
)
