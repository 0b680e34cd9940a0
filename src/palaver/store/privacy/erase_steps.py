"""The steps of an erasure: each one transaction, bounded, and the same when it is taken again."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Lock, Row, Statements, Value, transaction
from palaver.model.errors import SessionBusy
from palaver.model.key import SessionKey
from palaver.model.lifecycle import EndReason
from palaver.model.session import Principal, Session
from palaver.model.source import DM, Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Received
from palaver.store.conversations import deletion
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.conversations.sessions import check_not_busy
from palaver.store.conversations.transcript import SEQS, load_all, show, write_journal
from palaver.store.conversations.visibility import get, get_visible
from palaver.store.privacy.digests import Digests
from palaver.store.privacy.footprint import Trace, marks
from palaver.store.queue import outbox
from palaver.store.queue.inbox import withdraw
from palaver.store.records import from_json, micros

__all__ = [
    "FORGOTTEN",
    "drop_messages",
    "drop_sends",
    "end_halted",
    "forget_turns",
    "keep_trace",
    "nameless",
    "note",
    "remove_session",
    "rename_key",
    "take_share",
]

FORGOTTEN = "forgotten"
"""Stands where a name was."""
_OPERATOR = Principal.operator()
_OVER = "state IN ('done', 'failed')"


@transaction
def note(erasure: int, kind: str, digests: Iterable[str]) -> Statements[None]:
    """What a step takes away, in that step."""
    rows: list[tuple[Value, ...]] = [(erasure, kind, digest) for digest in dict.fromkeys(digests)]
    if rows:
        yield "INSERT INTO erased (erasure, kind, digest) VALUES (?, ?, ?) ON CONFLICT DO NOTHING", rows


def _drop_files(erasure: int, kind: str, holders: Sequence[int], digests: Digests) -> Statements[None]:
    """What only they had is noted, and its content goes before the erasure is done."""
    files = yield from drop_refs(f"kind = ? AND holder IN ({marks(holders)})", kind, *holders)
    yield from note(erasure, "file", map(digests.file, files))


@transaction
def keep_trace(erasure: int, trace: Trace) -> Statements[None]:
    yield "UPDATE erasures SET who = ? WHERE no = ? AND ended IS NULL", (trace.text, erasure)


@transaction
def end_halted(trace: Trace, now: datetime) -> Statements[int]:
    """Turns of theirs that nobody is at work on: they would wait for ever, or be taken up again."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    rows = yield (
        "UPDATE turns SET state = 'failed', fence = fence + 1, ended = ?, error = ?, asked = NULL"
        f" WHERE identity IN ({marks(ids)}) AND (state IN ('parked', 'interrupted')"
        " OR (state = 'running' AND lease_until < ?)) RETURNING no, session_no",
        (micros(now), FORGOTTEN, *ids, micros(now)),
    )
    for number, session in rows:
        yield from write_journal("settle", session, 1, 0, number)
    return len(rows)


@transaction
def drop_sends(erasure: int, sends: Sequence[Delivery], digests: Digests) -> Statements[int]:
    """What was owed to them, sent or not."""
    yield from note(erasure, "send", map(digests.send, sends))
    yield from _drop_files(erasure, "out", [send.number for send in sends], digests)
    yield from outbox.delete_sends([send.number for send in sends])
    return len(sends)


_EMPTY_MESSAGE = (
    "UPDATE inbox SET dedup = NULL, revises = NULL, identity = NULL, retried_in = NULL, place = NULL,"
    " state = 'done', turn_no = NULL, reason = NULL,"
    " key = ?, body = ?"
)


@transaction
def drop_messages(erasure: int, messages: Sequence[Received], digests: Digests) -> Statements[int]:
    """What came from them, whatever became of it, besides what a turn is answering now."""
    yield from note(erasure, "message", map(digests.message, messages))
    last = yield "SELECT max(no) FROM inbox", ()
    gone: list[int] = []
    for message in messages:
        yield from withdraw(message.number, "its sender is forgotten")
        empty = _EMPTY_MESSAGE, (SessionKey(message.key.profile, person=FORGOTTEN).text, b"")
        away, values = empty if message.number == last[0][0] else ("DELETE FROM inbox", ())
        rows = yield (
            f"{away} WHERE no = ? AND (turn_no IS NULL OR turn_no NOT IN"
            f" (SELECT no FROM turns t WHERE t.key = inbox.key AND NOT t.{_OVER})) RETURNING no",
            (*values, message.number),
        )
        gone += [row[0] for row in rows]
    yield "DELETE FROM mentions WHERE inbox_no = ?", [(number,) for number in gone]
    yield from _drop_files(erasure, "in", gone, digests)
    return len(gone)


@transaction
def remove_session(erasure: int, session: str, digests: Digests, now: datetime) -> Statements[int]:
    """A conversation in which nobody else ever spoke, whole. Raises SessionBusy in the middle of a turn."""
    found = yield from get_visible(session, _OPERATOR)
    yield Lock(found.key.text)
    entries = yield from load_all(session, _OPERATOR)
    yield from note(erasure, "entry", map(digests.entry, entries))
    yield from note(erasure, "session", [digests.name(session)])
    removed = yield from deletion.delete(session, _OPERATOR, now)
    yield from note(erasure, "file", map(digests.file, removed.files))
    return removed.entries


@transaction
def take_share(erasure: int, number: int, entries: Sequence[Entry], digests: Digests, now: datetime) -> Statements[int]:
    """Their entries out of a conversation that others share. Raises SessionBusy in the middle of a turn."""
    session = yield from get(number)
    yield Lock(session.key.text)
    yield from check_not_busy(session)
    yield from note(erasure, "entry", map(digests.entry, entries))
    yield from _lift(session, [entry for entry in entries if entry.role is Role.SUMMARY], now)
    ids = [number * SEQS + entry.seq for entry in entries]
    yield "DELETE FROM entries WHERE id = ?", [(id_,) for id_ in ids]
    yield from _drop_files(erasure, "entry", ids, digests)
    for first, last in _runs(sorted(entry.seq for entry in entries)):
        yield from write_journal("delete", number, first, last)
    # Nobody knows whose words a title was made of.
    yield "UPDATE sessions SET title = NULL WHERE no = ?", (number,)
    return len(ids)


def _runs(seqs: Sequence[int]) -> list[tuple[int, int]]:
    """First and last of each unbroken row of numbers: what stands between them is not journalled as gone."""
    runs: list[tuple[int, int]] = []
    for seq in seqs:
        if runs and runs[-1][1] == seq - 1:
            runs[-1] = (runs[-1][0], seq)
        else:
            runs.append((seq, seq))
    return runs


def nameless(source: Source) -> Source:
    """The place without who spoke there; a direct chat is nobody else's place."""
    plain = replace(source, user_id=None, user_id_alt=None, message_id=None)
    return replace(plain, chat_id=None, chat_id_alt=None) if source.chat_kind == DM else plain


def _lift(session: Session, summaries: Sequence[Entry], now: datetime) -> Statements[None]:
    """A summary that goes does not leave a hole: what it stood for is shown again."""
    if not summaries:
        return
    gone = {entry.seq for entry in summaries}
    rows: list[Row] = yield (
        "SELECT no, details FROM operations WHERE session_no = ? AND kind = 'compaction'",
        (session.number,),
    )
    for operation, details in rows:
        if from_json(details)["summary"] in gone:
            yield (
                "UPDATE operations SET undone_at = coalesce(undone_at, ?) WHERE no = ?",
                (micros(now), operation),
            )
            yield from show(operation, session.number)


@transaction
def forget_turns(trace: Trace, spoken: Sequence[int]) -> Statements[int]:
    """A turn stays where others took part, but not whom it answered, nor what went wrong in words."""
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    blank = (
        "UPDATE turns SET identity = NULL, stopped_by = NULL, stopped_at = NULL,"
        " draft = NULL, asked = NULL, approvals = NULL,"
        f" error = CASE WHEN error IS NULL THEN NULL ELSE '{FORGOTTEN}' END WHERE {_OVER} AND"
    )
    rows = yield f"{blank} identity IN ({marks(ids)}) RETURNING no", ids
    numbers: list[tuple[Value, ...]] = [(number,) for number in spoken]
    if numbers:
        yield (
            f"UPDATE turns SET error = CASE WHEN error IS NULL THEN NULL ELSE '{FORGOTTEN}' END WHERE {_OVER}"
            " AND no = ?",
            numbers,
        )
    for identity in sorted(trace.identities):
        yield "UPDATE turns SET stopped_by = NULL, stopped_at = NULL WHERE stopped_by = ?", (identity,)
    return len(rows)


_KEYED = (("turns", "key"), ("operations", "key"), ("inbox", "key"))


@transaction
def rename_key(erasure: int, key: SessionKey, digests: Digests, now: datetime) -> Statements[int]:
    """What others left under the name of a conversation that was theirs goes on under a name that says nothing."""
    yield Lock(key.text)
    if (yield f"SELECT 1 FROM turns WHERE key = ? AND NOT {_OVER} LIMIT 1", (key.text,)):
        raise SessionBusy(key.text)
    yield from note(erasure, "name", [digests.name(key.text)])
    unnamed = SessionKey(key.profile, person=f"{FORGOTTEN}-{digests.name(key.text)}").text
    yield "DELETE FROM routes WHERE key = ?", (key.text,)
    yield "DELETE FROM attached WHERE place = ? OR key = ?", (key.text, key.text)
    # Emptied when the session went.
    yield "DELETE FROM inbox WHERE key = ? AND body = ? AND no < (SELECT max(no) FROM inbox)", (key.text, b"")
    yield f"{_EMPTY_MESSAGE} WHERE key = ? AND body = ?", (unnamed, b"", key.text, b"")
    yield "UPDATE lines SET key = ? WHERE key = ?", (unnamed, key.text)
    yield (
        "UPDATE operations SET undone_at = coalesce(undone_at, ?), details = '{}', from_session = NULL,"
        " from_key = NULL, to_key = NULL"
        " WHERE key = ? AND kind NOT IN ('undo', 'compaction')",
        (micros(now), key.text),
    )
    sessions = yield (
        "UPDATE sessions SET key = ?, ended = coalesce(ended, ?), end_reason = coalesce(end_reason, ?)"
        " WHERE key = ? RETURNING no",
        (unnamed, micros(now), EndReason.SWITCHED.value, key.text),
    )
    renamed = len(sessions)
    for table, column in _KEYED:
        rows = yield f"UPDATE {table} SET {column} = ? WHERE {column} = ? RETURNING no", (unnamed, key.text)
        renamed += len(rows)
    for column in ("from_key", "to_key"):
        yield f"UPDATE operations SET {column} = ? WHERE {column} = ?", (unnamed, key.text)
    return renamed
