"""The steps of an erasure: each is one bounded transaction that can be repeated."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Generic, TypeVar

from palaver.db.transaction import PROCESSES, Lock, Notify, Row, Statements, Value, transaction
from palaver.model.errors import SessionBusy
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, Principal, Session
from palaver.model.source import DM, MAIN, Source, with_participant
from palaver.model.transcript import Entry, Role, UnreadableEntry
from palaver.model.turn import Delivery, Received
from palaver.model.value import value
from palaver.store.conversations import deletion
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.conversations.sessions import check_not_busy
from palaver.store.conversations.transcript import load_all, show, write_journal
from palaver.store.conversations.visibility import Filter, get_visible, hold, lock_session
from palaver.store.people import memory
from palaver.store.privacy.digests import Digests
from palaver.store.privacy.footprint import Footprint, sole_participant_filter
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind
from palaver.store.queue.inbox import withdraw
from palaver.store.records import (
    OPEN_TURN,
    SEQS,
    SET_BODY,
    body_values,
    details_of,
    entry_of,
    from_json,
    json_text,
    micros,
    placeholders,
    prepare,
    readable,
)

T = TypeVar("T")
FORGOTTEN = "forgotten"
"""Replaces a name."""
_OPERATOR = Principal.operator()
BLANK_OPERATION = (
    "details = '{}', from_session = NULL, from_key = NULL, to_key = NULL, undone_at = coalesce(undone_at, ?)"
)


@transaction
def record_digests(erasure: int, kind: str, digests: Iterable[str]) -> Statements[None]:
    """Record what a step erases, in the same transaction."""
    rows: list[tuple[Value, ...]] = [(erasure, kind, digest) for digest in dict.fromkeys(digests)]
    yield "INSERT INTO erased_digests (erasure, kind, digest) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows


def _drop_files(erasure: int, kind: str, holders: Sequence[int], digests: Digests) -> Statements[None]:
    """Drop their references and record files that nobody else has. The content is deleted at the end."""
    files = yield from drop_refs(f"kind = ? AND holder IN ({placeholders(holders)})", kind, *holders)
    yield from record_digests(erasure, "file", map(digests.file, files))


@transaction
def save_footprint(erasure: int, footprint: Footprint) -> Statements[None]:
    yield "UPDATE erasures SET subject = ? WHERE no = ? AND ended IS NULL", (footprint.text, erasure)


@transaction
def stop_jobs(footprint: Footprint, now: datetime) -> Statements[int]:
    """Pause their jobs, so that none starts another turn meanwhile. They are deleted at the end."""
    is_theirs = footprint.identifies("owner")
    rows = yield (
        "UPDATE schedules SET paused = ?, requested = NULL"
        f" WHERE {is_theirs.sql} AND (paused IS NULL OR requested IS NOT NULL) RETURNING no",
        (micros(now), *is_theirs.values),
    )
    return len(rows)


@transaction
def erase_processes(footprint: Footprint) -> Statements[int]:
    """Delete what runs or ran for them, or in a session of theirs alone.

    The gateway that looks after a process kills it when it finds no row of it, and removes its output.
    """
    theirs = _processes_of(footprint)
    rows = yield f"DELETE FROM processes WHERE {theirs.sql} RETURNING no", theirs.values
    yield Notify(PROCESSES)
    return len(rows)


@transaction
def count_processes(footprint: Footprint) -> Statements[int]:
    theirs = _processes_of(footprint)
    rows = yield f"SELECT count(*) FROM processes WHERE {theirs.sql}", theirs.values
    return rows[0][0]


def _processes_of(footprint: Footprint) -> Filter:
    theirs, own = footprint.identifies("identity"), sole_participant_filter(footprint)
    return Filter(
        f"({theirs.sql} OR session_no IN (SELECT s.no FROM sessions s WHERE {own.sql}))", (*theirs.values, *own.values)
    )


@transaction
def fail_halted_turns(footprint: Footprint, now: datetime) -> Statements[int]:
    """Fail their turns that no worker runs: they would wait for ever, or be resumed."""
    is_theirs = footprint.identifies("identity")
    rows = yield (
        "UPDATE turns SET state = 'failed', fence = fence + 1, ended = ?, error = ?, pending_call = NULL"
        f" WHERE {is_theirs.sql} AND (state IN ('parked', 'interrupted')"
        " OR (state = 'running' AND lease_until < ?)) RETURNING no, session_no",
        (micros(now), FORGOTTEN, *is_theirs.values, micros(now)),
    )
    for number, session in rows:
        yield from write_journal("settle", session, 1, 0, number)
    return len(rows)


@transaction
def erase_deliveries(erasure: int, sends: Mapping[int, Delivery | None], digests: Digests) -> Statements[int]:
    """Delete deliveries to them, sent or not, by number; of those that cannot be read there is no digest."""
    yield from record_digests(erasure, "send", [digests.send(send) for send in sends.values() if send])
    yield from _drop_files(erasure, "out", list(sends), digests)
    yield from outbox.delete_sends(list(sends))
    return len(sends)


_EMPTY_MESSAGE = (
    "UPDATE inbox SET message_id = NULL, chat = '', alt_chat = '', chat_user = '', server = '', version = '',"
    " retried_in = 0, identity = NULL, place = NULL, request_key = NULL, continues = NULL,"
    " state = 'done', turn_no = NULL, reason = NULL,"
    " key = ?, body = ?, checksum = NULL"
)


@transaction
def erase_messages(
    erasure: int, numbers: Sequence[int], messages: Sequence[Received], digests: Digests
) -> Statements[int]:
    """Delete their messages in any state, except those that a running turn is answering.

    Of those that cannot be read there is no digest.
    """
    yield from record_digests(erasure, "message", map(digests.message, messages))
    last = yield "SELECT max(no) FROM inbox", ()
    profiles = {message.number: message.key.profile for message in messages}
    gone: list[int] = []
    for number in numbers:
        yield from withdraw(number, "its sender was deleted")
        empty = _EMPTY_MESSAGE, (SessionKey(profiles.get(number, MAIN), person=FORGOTTEN).text, b"")
        away, values = empty if number == last[0][0] else ("DELETE FROM inbox", ())
        rows = yield (
            f"{away} WHERE no = ? AND (turn_no IS NULL OR turn_no NOT IN"
            f" (SELECT no FROM turns t WHERE t.key = inbox.key AND t.state IN {OPEN_TURN})) RETURNING no",
            (*values, number),
        )
        gone += [row[0] for row in rows]
    for table in ("mentions", "result_requests"):
        yield f"DELETE FROM {table} WHERE inbox_no = ?", [(number,) for number in gone]
    yield from _drop_files(erasure, "in", gone, digests)
    return len(gone)


@transaction
def erase_session(erasure: int, session: str, digests: Digests, now: datetime) -> Statements[int]:
    """Delete a session without other participants. Raises SessionBusy while a turn runs."""
    found = yield from get_visible(session, _OPERATOR)
    yield from lock_session(found, found.key, _OPERATOR)
    entries = yield from load_all(session, _OPERATOR)
    yield from record_digests(erasure, "entry", _entry_digests(entries, digests))
    yield from record_digests(erasure, "session", [digests.name(session)])
    removed = yield from deletion.delete(session, _OPERATOR, now)
    yield from record_digests(erasure, "file", map(digests.file, removed.files))
    return removed.entries


def _entry_digests(entries: Iterable[Entry], digests: Digests) -> list[str]:
    return [digests.entry(entry) for entry in entries if not isinstance(entry, UnreadableEntry)]


@transaction
def erase_share(
    erasure: int, number: int, entries: Sequence[Entry], digests: Digests, now: datetime
) -> Statements[int]:
    """Delete their entries from a shared session. Raises SessionBusy while a turn runs."""
    session = yield from hold(number)
    yield from check_not_busy(session)
    yield from record_digests(erasure, "entry", _entry_digests(entries, digests))
    yield from _undo_summaries(session, [entry for entry in entries if entry.role is Role.SUMMARY], now)
    files = yield from deletion.remove_entries(number, [entry.seq for entry in entries])
    yield from record_digests(erasure, "file", map(digests.file, files))
    yield "DELETE FROM memory_notes WHERE session_no = ? AND seq = ?", [(number, entry.seq) for entry in entries]
    yield from memory.drop_orphans()
    # They may quote them.
    yield (
        "UPDATE sessions SET title = NULL, hidden_title = NULL, title_hidden_by = NULL, instructions = NULL"
        " WHERE no IN (?, ?)",
        (number, session.root),
    )
    return len(entries)


@value
class RowPage(Generic[T]):
    """Some rows: what was found in them, and the numbers of those that cannot be read."""

    last: int
    """The number of the last one."""
    found: tuple[T, ...]
    unreadable: tuple[int, ...] = ()


_QUOTING_ROWS = 10_000
_NUMBER = {"entries": "id", "inbox": "no"}
QUOTING_TABLES = tuple(_NUMBER)


@transaction
def find_quotes(table: str, footprint: Footprint, after: int) -> Statements[RowPage[int] | None]:
    """Return the numbers of the next rows that quote what they said; None after the last row."""
    authors = [f'"author":{json_text(identity)}'.encode() for identity in footprint.identities]
    return (yield from _find(table, _NUMBER[table], authors, after))


@transaction
def find_notices(footprint: Footprint, after: int) -> Statements[RowPage[int] | None]:
    """Return the numbers of the next sends with one of their ids in them; None after the last."""
    ids = [json_text(id_)[1:-1].encode() for _, id_ in sorted(footprint.addresses)]
    # What an agent sent is what it said to others.
    return (yield from _find("outbox", "id", ids, after, f" AND id < 0 AND cause_kind <> '{CauseKind.TOOL}'"))


def _find(
    table: str, number: str, words: Sequence[bytes], after: int, condition: str = ""
) -> Statements[RowPage[int] | None]:
    """Find the rows, among the next ones, whose body contains one of the words."""
    rows = yield (
        f"SELECT max(n) FROM (SELECT {number} AS n FROM {table} WHERE {number} > ?{condition}"
        f" ORDER BY {number} LIMIT ?) page",
        (after, _QUOTING_ROWS),
    )
    if (last := rows[0][0]) is None:
        return None
    found: set[int] = set()
    for word in words:
        quoting = yield (
            f"SELECT {number} FROM {table} WHERE {number} > ? AND {number} <= ?{condition}"
            " AND /*pg position(?::bytea in body) --*/ instr(body, ?)\n > 0",
            (after, last, word),
        )
        found.update(row[0] for row in quoting)
    return RowPage(last=last, found=tuple(sorted(found)))


@transaction
def erase_quotes(table: str, numbers: Sequence[int]) -> Statements[int]:
    """Remove the quotes from replies of others. What cannot be read is deleted with the quote in it."""
    number, erased = _NUMBER[table], 0
    for each in numbers:
        for (body,) in (yield f"SELECT body FROM {table} WHERE {number} = ? AND length(body) > 0", (each,)):
            erased += 1
            changed = next(readable(_WITHOUT_QUOTE[table], [(each, body)]), None)
            if changed is None and table == "entries":
                yield "DELETE FROM entries WHERE id = ?", (each,)
                yield from write_journal("delete", each // SEQS, each % SEQS, each % SEQS)
            else:
                yield f"UPDATE {table} SET {SET_BODY} WHERE {number} = ?", (*(changed or (b"", None)), each)
    return erased


def _entry_without_quote(row: Row) -> tuple[bytes, int | None]:
    entry = entry_of(row)._replace(quote=None)
    return prepare(entry).values(row[0] // SEQS, entry.seq)


def _message_without_quote(row: Row) -> tuple[bytes, int | None]:
    return body_values(json_text({name: it for name, it in from_json(row[1]).items() if name != "quote"}).encode())


_WITHOUT_QUOTE = {"entries": _entry_without_quote, "inbox": _message_without_quote}


def without_person(source: Source) -> Source:
    """Remove the sender; for a direct chat, the chat too."""
    plain = replace(with_participant(source, None), message_id=None)
    return replace(plain, chat_id=None, chat_id_alt=None) if source.chat_kind == DM else plain


def _undo_summaries(session: Session, summaries: Sequence[Entry], now: datetime) -> Statements[None]:
    """Show again what the deleted summaries covered."""
    if not summaries:
        return
    gone = {entry.seq for entry in summaries}
    rows: list[Row] = yield (
        "SELECT no, details FROM operations WHERE session_no = ? AND kind = 'compaction'",
        (session.number,),
    )
    for operation, details in rows:
        if details_of(details).get("summary") in gone:
            yield "UPDATE operations SET undone_at = coalesce(undone_at, ?) WHERE no = ?", (micros(now), operation)
            yield from show(operation, session.number)


@transaction
def blank_turns(footprint: Footprint, spoken: Sequence[int]) -> Statements[int]:
    """Keep turns that others share, without the person and without error texts."""
    is_theirs = footprint.identifies("identity")
    error = f"error = CASE WHEN error IS NULL THEN NULL ELSE '{FORGOTTEN}' END"
    rows = yield (
        "UPDATE turns SET identity = NULL, stopped_by = NULL, stopped_at = NULL, draft = NULL, pending_call = NULL,"
        f" approvals = NULL, {error} WHERE state NOT IN {OPEN_TURN} AND {is_theirs.sql} RETURNING no",
        is_theirs.values,
    )
    yield f"UPDATE turns SET {error} WHERE state NOT IN {OPEN_TURN} AND no = ?", [(number,) for number in spoken]
    return len(rows)


_KEY_COLUMNS = (
    ("sessions", "key"),
    ("turns", "key"),
    ("operations", "key"),
    ("operations", "from_key"),
    ("operations", "to_key"),
    ("inbox", "key"),
    ("processes", "place"),
    ("ready_queue", "key"),
)
"""Columns with keys of conversations, besides those of places that are deleted."""


@transaction
def all_conversation_keys() -> Statements[list[str]]:
    found: set[str] = set()
    deleted = ("routes", "key"), ("attached_chats", "place"), ("attached_chats", "key"), ("memory_notes", "place")
    for table, column in (*_KEY_COLUMNS, *deleted):
        rows = yield f"SELECT DISTINCT {column} FROM {table} WHERE {column} IS NOT NULL", ()
        found.update(row[0] for row in rows)
    return sorted(found)


@transaction
def rename_key(erasure: int, key: SessionKey, digests: Digests, now: datetime) -> Statements[int]:
    """Give what others left in a conversation named after them a key that names nobody."""
    yield Lock(key.text)
    if (yield f"SELECT 1 FROM turns WHERE key = ? AND state IN {OPEN_TURN} LIMIT 1", (key.text,)):
        raise SessionBusy(key.text)
    yield from record_digests(erasure, "name", [digests.name(key.text)])
    anonymous = SessionKey(key.profile, person=f"{FORGOTTEN}-{digests.name(key.text)}").text
    yield "DELETE FROM routes WHERE key = ?", (key.text,)
    yield "DELETE FROM attached_chats WHERE place = ? OR key = ?", (key.text, key.text)
    yield "DELETE FROM memory_notes WHERE place = ?", (key.text,)
    # These were emptied with the session.
    yield "DELETE FROM inbox WHERE key = ? AND body = ? AND no < (SELECT max(no) FROM inbox)", (key.text, b"")
    yield f"{_EMPTY_MESSAGE} WHERE key = ? AND body = ?", (anonymous, b"", key.text, b"")
    yield (
        f"UPDATE operations SET {BLANK_OPERATION} WHERE key = ? AND kind NOT IN ('undo', 'compaction')",
        (micros(now), key.text),
    )
    yield (
        "UPDATE sessions SET ended = coalesce(ended, ?), end_reason = coalesce(end_reason, ?) WHERE key = ?",
        (micros(now), EndReason.SWITCHED.value, key.text),
    )
    renamed = 0
    for table, column in _KEY_COLUMNS:
        rows = yield f"UPDATE {table} SET {column} = ? WHERE {column} = ? RETURNING 1", (anonymous, key.text)
        renamed += len(rows)
    return renamed
