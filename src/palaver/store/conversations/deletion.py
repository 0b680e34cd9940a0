"""Removal: sessions deleted for good, one by one or by age, each whole and only while nobody works in it."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

from palaver.db.database import Database
from palaver.db.transaction import Lock, Row, Statements, Value, transaction
from palaver.model.errors import BadArgument, SessionBusy
from palaver.model.session import Principal, Session
from palaver.model.value import value
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.conversations.sessions import check_not_busy
from palaver.store.conversations.transcript import SEQS, write_journal
from palaver.store.conversations.visibility import Filter, get, get_visible
from palaver.store.people.usage import sum_all_ended_turns
from palaver.store.queue.cause import OF_OPERATION, OF_SESSION, OF_TURN, CauseKind
from palaver.store.queue.outbox import REPLIES, delete_sends
from palaver.store.records import SESSION_COLUMNS, instant, micros, session_of
from palaver.store.status.session_list import ListFilter, session_filter

__all__ = [
    "ProcessRuns",
    "PruneRule",
    "Pruned",
    "Removed",
    "Survey",
    "delete",
    "prune",
    "survey",
]

_BATCH_SESSIONS = 50
_BATCH_ENTRIES = 20_000
_SAMPLE = 10


class ProcessRuns(SessionBusy):
    """A process that nobody could find again would go on."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.args = (f"session {session} still has a background process: end it, then try again",)


@value
class Removed:
    """A session that is gone, and how much went with it."""

    session: Session
    entries: int
    turns: int
    files: tuple[str, ...] = ()
    """Under what the files are kept that nobody has any more."""


@transaction
def delete(session: str, principal: Principal, now: datetime) -> Statements[Removed]:
    """Delete a session and everything of it. What is owed but not sent yet is not sent any more."""
    found = yield from get_visible(session, principal)
    yield Lock(found.key.text)
    current = yield from get_visible(session, principal)
    if current.key != found.key:
        yield Lock(current.key.text)
    yield from _refuse_in_use(current)
    return (yield from _remove(current, now))


def _refuse_in_use(session: Session) -> Statements[None]:
    yield from check_not_busy(session)
    rows = yield "SELECT 1 FROM processes WHERE session_no = ? AND ended IS NULL LIMIT 1", (session.number,)
    if rows:
        raise ProcessRuns(session.id)


def _remove(session: Session, now: datetime) -> Statements[Removed]:
    number = session.number
    span = (number * SEQS, (number + 1) * SEQS)
    files = yield from _let_files_go(number, span)
    notices = yield _ITS_NOTICES, _of(number, _ITS_NOTICES)
    yield from delete_sends([row[0] for row in notices])
    yield from _empty_messages(number)
    turns = yield "SELECT no FROM turns WHERE session_no = ? ORDER BY no", (number,)
    yield from _remove_turns([row[0] for row in turns])
    yield from _forbid_return(session, now)
    entries = yield "SELECT count(*) FROM entries WHERE id >= ? AND id < ?", span
    yield "DELETE FROM entries WHERE id >= ? AND id < ?", span
    for table in ("participants", "routes", "operations", "processes", "mentions"):
        yield f"DELETE FROM {table} WHERE session_no = ?", (number,)
    yield "DELETE FROM sessions WHERE no = ?", (number,)
    yield from write_journal("delete", number, 1, max(session.counters.entries, 1))
    return Removed(session=session, entries=entries[0][0], turns=len(turns), files=files)


def _of(session: int, sql: str) -> tuple[Value, ...]:
    return (session,) * sql.count("?")


_ITS_MESSAGES = (
    "SELECT i.{0} FROM turns t JOIN inbox i ON i.turn_no = t.no WHERE t.session_no = ?"
    " UNION ALL SELECT i.{0} FROM mentions m JOIN inbox i ON i.no = m.inbox_no"
    " WHERE m.session_no = ? AND i.turn_no IS NULL"
)
"""What its turns answer, and the commands that were said in it or answered with words of it."""
_CHANGES = f"SELECT r.no FROM inbox r WHERE r.revises IN ({_ITS_MESSAGES.format('dedup')})"


def _kinds(kinds: Iterable[CauseKind]) -> str:
    return ", ".join(f"('{kind.value}')" for kind in sorted(kinds))


_CAUSES = (
    f"SELECT k.column1, CAST(t.no AS TEXT) FROM turns t CROSS JOIN (VALUES {_kinds(OF_TURN)}) k WHERE t.session_no = ?"
    f" UNION ALL SELECT '{CauseKind.COMMAND}', CAST(m.inbox_no AS TEXT) FROM mentions m WHERE m.session_no = ?"
    f" UNION ALL SELECT '{CauseKind.REVISION}', CAST(c.no AS TEXT) FROM ({_CHANGES}) c"
    " UNION ALL SELECT k.column1, CAST(p.no AS TEXT) FROM operations p"
    f" CROSS JOIN (VALUES {_kinds(OF_OPERATION)}) k WHERE p.session_no = ?"
    f" UNION ALL SELECT k.column1, s.id FROM sessions s CROSS JOIN (VALUES {_kinds(OF_SESSION)}) k WHERE s.no = ?"
)
_ITS_NOTICES = (
    f"WITH causes (kind, id) AS ({_CAUSES})"
    " SELECT o.id FROM causes c JOIN outbox o ON o.cause_kind = c.kind AND o.cause_id = c.id"
)
"""What was sent because of it, besides the replies of its turns."""


def _let_files_go(session: int, span: tuple[int, int]) -> Statements[tuple[str, ...]]:
    """Of its entries, of its messages and what changed them, of its replies and notices."""
    entries = yield from drop_refs("kind = 'entry' AND holder >= ? AND holder < ?", *span)
    theirs = f"{_ITS_MESSAGES.format('no')} UNION ALL {_CHANGES}"
    messages = yield from drop_refs(f"kind = 'in' AND holder IN ({theirs})", *_of(session, theirs))
    replies = yield from drop_refs(
        "kind = 'out' AND holder IN (SELECT o.id FROM turns t JOIN outbox o"
        f" ON o.id >= t.no * {REPLIES} AND o.id < (t.no + 1) * {REPLIES} WHERE t.session_no = ?)",
        session,
    )
    notices = yield from drop_refs(f"kind = 'out' AND holder IN ({_ITS_NOTICES})", *_of(session, _ITS_NOTICES))
    return (*entries, *messages, *replies, *notices)


def _empty_messages(session: int) -> Statements[None]:
    """Their words go, their ids stay: a platform that delivers a message again must not start a second turn."""
    its = _ITS_MESSAGES.format("no")
    yield f"UPDATE inbox SET body = ? WHERE no IN ({_CHANGES})", (b"", *_of(session, _CHANGES))
    yield (
        f"UPDATE inbox SET body = ?, state = 'done', turn_no = NULL, reason = NULL WHERE no IN ({its})",
        (b"", *_of(session, its)),
    )


def _remove_turns(turns: Sequence[int]) -> Statements[None]:
    if not turns:
        return
    yield from sum_all_ended_turns()
    replies: list[tuple[Value, ...]] = [(turn * REPLIES, (turn + 1) * REPLIES) for turn in turns]
    yield "DELETE FROM outbox WHERE id >= ? AND id < ?", replies
    yield "DELETE FROM turns WHERE no = ?", [(turn,) for turn in turns]


def _forbid_return(session: Session, now: datetime) -> Statements[None]:
    """No way back leads to what is gone: wherever it was, moves away from it now lead to what came before it."""
    rows: list[Row] = yield (
        "SELECT key, from_key, from_session, undone_at IS NULL AND kind IN ('reset', 'switch', 'branch')"
        " FROM operations WHERE session_no = ? ORDER BY no",
        (session.number,),
    )
    keys = {session.key.text, *(key for row in rows for key in row[:2] if key)}
    earlier = {key: before for key, _, before, leads_here in rows if leads_here}
    for key in sorted(keys):
        if before := earlier.get(key):
            yield (
                "UPDATE operations SET from_session = ? WHERE key = ? AND from_session = ?",
                (before, key, session.id),
            )
        else:
            yield (
                "UPDATE operations SET undone_at = ? WHERE key = ? AND undone_at IS NULL AND from_session = ?",
                (micros(now), key, session.id),
            )


# By age


@value
class PruneRule:
    """Which ended sessions may go: open ones never do. Every given field must match."""

    ended_before: datetime | None = None
    keep_newest: int | None = None
    """Of the ended sessions that fit, this many of the most recently active stay whatever their age."""
    platform: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.ended_before is None and self.keep_newest is None:
            raise BadArgument(
                "Nothing says which sessions may go:",
                found="no limit",
                allowed="a date, an age, or how many to keep",
                example="palaver sessions prune --older-than 90d",
            )
        if (self.keep_newest or 0) < 0:
            raise BadArgument(
                "How many to keep cannot be", found=str(self.keep_newest), allowed="0 or more", example="--keep 100"
            )


class _Mark(NamedTuple):
    """The oldest session that is kept: only older ones go."""

    last_active: int
    number: int


@value
class Survey:
    """What a rule would remove now. Nothing else is removed when it is carried out."""

    rule: PruneRule
    mark: tuple[int, int] | None
    sessions: int
    entries: int
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: tuple[Session, ...] = ()
    """A few of them, the oldest first."""


@value
class Pruned:
    sessions: int = 0
    entries: int = 0
    busy: int = 0
    """Left alone because something still works in them."""


def _prunable(rule: PruneRule, principal: Principal, mark: tuple[int, int] | None) -> Filter:
    fits = session_filter(ListFilter(platform=rule.platform, profile=rule.profile), principal)
    parts = [fits, Filter("s.ended IS NOT NULL", ())]
    if rule.ended_before is not None:
        parts.append(Filter("s.ended < ?", (micros(rule.ended_before),)))
    if mark is not None:
        parts.append(Filter("(s.last_active, s.no) < (?, ?)", mark))
    return Filter(" AND ".join(part.sql for part in parts), tuple(value for part in parts for value in part.values))


@transaction
def survey(rule: PruneRule, principal: Principal) -> Statements[Survey]:
    """The dry run."""
    mark = yield from _mark(rule, principal)
    if rule.keep_newest and mark is None:
        return Survey(rule=rule, mark=None, sessions=0, entries=0)
    where = _prunable(rule, principal, mark)
    rows = yield (
        "SELECT count(*), coalesce(sum(s.next_seq - 1), 0), min(s.ended), max(s.ended)"
        f" FROM sessions s WHERE {where.sql}",
        where.values,
    )
    sessions, entries, oldest, newest = rows[0]
    sample = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE {where.sql} ORDER BY s.last_active, s.no LIMIT {_SAMPLE}",
        where.values,
    )
    return Survey(
        rule=rule,
        mark=mark,
        sessions=sessions,
        entries=int(entries),
        oldest=None if oldest is None else instant(oldest),
        newest=None if newest is None else instant(newest),
        sample=tuple(map(session_of, sample)),
    )


def _mark(rule: PruneRule, principal: Principal) -> Statements[_Mark | None]:
    """None if fewer are there than are to be kept."""
    if not rule.keep_newest:
        return None
    fits = session_filter(ListFilter(platform=rule.platform, profile=rule.profile), principal)
    rows = yield (
        f"SELECT s.last_active, s.no FROM sessions s WHERE s.ended IS NOT NULL AND {fits.sql}"
        " ORDER BY s.last_active DESC, s.no DESC LIMIT 1 OFFSET ?",
        (*fits.values, rule.keep_newest - 1),
    )
    return _Mark(*rows[0]) if rows else None


async def prune(
    database: Database,
    found: Survey,
    principal: Principal,
    now: datetime,
    *,
    progress: Callable[[Pruned], None] = lambda _: None,
) -> Pruned:
    """Remove what the survey found, in many small transactions: each session whole, none of them large."""
    done, after = Pruned(), 0
    while found.sessions:
        batch = await database.read(_next_batch(found, principal, after))
        if not batch:
            break
        removed = await database.transact(_remove_batch(found, principal, batch, now))
        done = Pruned(
            sessions=done.sessions + removed.sessions,
            entries=done.entries + removed.entries,
            busy=done.busy + removed.busy,
        )
        after = batch[-1]
        progress(done)
    return done


@transaction
def _next_batch(found: Survey, principal: Principal, after: int) -> Statements[list[int]]:
    """As many sessions as make a small transaction, at least one."""
    where = _prunable(found.rule, principal, found.mark)
    rows = yield (
        f"SELECT s.no, s.next_seq FROM sessions s WHERE s.no > ? AND {where.sql} ORDER BY s.no LIMIT {_BATCH_SESSIONS}",
        (after, *where.values),
    )
    numbers: list[int] = []
    entries = 0
    for number, next_seq in rows:
        entries += next_seq
        if numbers and entries > _BATCH_ENTRIES:
            break
        numbers.append(number)
    return numbers


@transaction
def _remove_batch(found: Survey, principal: Principal, numbers: Sequence[int], now: datetime) -> Statements[Pruned]:
    marks = ", ".join("?" * len(numbers))
    keys = yield f"SELECT DISTINCT key FROM sessions WHERE no IN ({marks}) ORDER BY key", tuple(numbers)
    for row in keys:
        yield Lock(row[0])
    where = _prunable(found.rule, principal, found.mark)
    rows = yield (
        f"SELECT s.no FROM sessions s WHERE s.no IN ({marks}) AND {where.sql} ORDER BY s.no",
        (*numbers, *where.values),
    )
    sessions = entries = busy = 0
    for (number,) in rows:
        session = yield from get(number)
        try:
            yield from _refuse_in_use(session)
        except SessionBusy:
            busy += 1
            continue
        removed = yield from _remove(session, now)
        sessions, entries = sessions + 1, entries + removed.entries
    return Pruned(sessions=sessions, entries=entries, busy=busy)
