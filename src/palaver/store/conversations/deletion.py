"""Deleting sessions: one by one or by age, each completely, and never during a turn."""

from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from datetime import datetime

from palaver.db.transaction import Database, Lock, Row, Statements, Value, transaction
from palaver.model.errors import BadArgument, NotAllowed, SessionBusy
from palaver.model.session import Principal, Session, SessionState
from palaver.model.value import value
from palaver.store.conversations.attach import has_other_speakers
from palaver.store.conversations.attachment_refs import drop_refs
from palaver.store.conversations.sessions import check_not_busy
from palaver.store.conversations.titles import pass_on_title
from palaver.store.conversations.transcript import write_journal, write_journal_of
from palaver.store.conversations.visibility import Filter, get_visible, lock_session, select_sessions
from palaver.store.people import memory
from palaver.store.people.usage import sum_all_ended_turns
from palaver.store.queue.cause import OF_OPERATION, OF_SESSION, OF_TURN, CauseKind
from palaver.store.queue.inbox import ADDRESS_COLUMNS, CHANGE, ORIGINAL
from palaver.store.queue.outbox import delete_sends
from palaver.store.records import REPLIES, SEQS, SET_BODY, entry_span, instant_or_none, micros, placeholders, reply_span
from palaver.store.scrub import owe_scrub
from palaver.store.status.session_list import ListFilter, session_filter

_SESSIONS_PER_BATCH = 50
_ENTRIES_PER_BATCH = 20_000
_SAMPLE_SIZE = 10


class ProcessRuns(SessionBusy):
    """Raised instead of deleting a session whose background process could then not be found."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.args = (f"session {session} still has a background process. Stop it, then try again",)


class HoldsMore(SessionBusy):
    """Raised instead of deleting more than the one turn that is meant."""

    def __init__(self, session: str) -> None:
        super().__init__(session)
        self.args = (f"session {session} holds more than this one answer. Delete the session instead",)


@value
class Removed:
    """A deleted session, and how much was deleted with it."""

    session: Session
    entries: int
    turns: int
    files: tuple[str, ...] = ()
    """Hashes of files that nothing references any more."""


@transaction
def delete(session: str, principal: Principal, now: datetime, *, only_turn: int | None = None) -> Statements[Removed]:
    """Delete a session and everything in it. Messages that were not sent yet are not sent.

    With `only_turn`, raise HoldsMore if anything was said in it besides this turn.
    """
    found = yield from get_visible(session, principal)
    current = yield from lock_session(found, found.key, principal)
    yield from _check_own(current, principal)
    yield from _check_not_in_use(current)
    if only_turn is not None:
        yield from _check_alone(current, only_turn)
    return (yield from _remove(current, now))


def _check_alone(session: Session, turn: int) -> Statements[None]:
    others = "SELECT 1 FROM entries WHERE id >= ? AND id < ? AND coalesce(turn_no, 0) <> ? LIMIT 1"
    if (yield others, (*entry_span(session.number), turn)):
        raise HoldsMore(session.id)


def _check_own(session: Session, principal: Principal) -> Statements[None]:
    """Raise NotAllowed if others took part: only the owner of the gateway deletes what they said."""
    if not principal.sees_all and (yield from has_other_speakers(session, principal)):
        raise NotAllowed("Deleting a conversation that others took part in", "owner")


def _check_not_in_use(session: Session) -> Statements[None]:
    yield from check_not_busy(session)
    rows = yield "SELECT 1 FROM processes WHERE session_no = ? AND ended IS NULL LIMIT 1", (session.number,)
    if rows:
        raise ProcessRuns(session.id)


def _check_nothing_waits(session: Session) -> Statements[None]:
    if session.ended is None and (yield "SELECT 1 FROM ready_queue WHERE key = ?", (session.key.text,)):
        raise SessionBusy(session.id)


def _remove(session: Session, now: datetime) -> Statements[Removed]:
    number = session.number
    span = entry_span(number)
    files = yield from _drop_file_refs(number, span)
    notices = yield _ITS_NOTICES, _of(number, _ITS_NOTICES)
    yield from delete_sends([row[0] for row in notices])
    yield from _empty_messages(number)
    yield from memory.release_session(number)
    turns = yield "SELECT no FROM turns WHERE session_no = ? ORDER BY no", (number,)
    yield from _remove_turns([row[0] for row in turns])
    yield from _bypass_in_undo_log(session, now)
    entries = yield "SELECT count(*) FROM entries WHERE id >= ? AND id < ?", span
    yield "DELETE FROM entries WHERE id >= ? AND id < ?", span
    yield from _leave_to_next_version(session)
    for table in ("participants", "session_marks", "routes", "operations", "processes", "mentions", "set_aside"):
        yield f"DELETE FROM {table} WHERE session_no = ?", (number,)
    yield "DELETE FROM sessions WHERE no = ?", (number,)
    if turns:  # Their usage stays in the sums.
        yield "INSERT INTO deleted_sessions (id) VALUES (?) ON CONFLICT DO NOTHING", (session.id,)
    yield from write_journal("delete", number, 1, max(session.counters.entries, 1))
    yield from owe_scrub()
    return Removed(session=session, entries=entries[0][0], turns=len(turns), files=files)


def _leave_to_next_version(session: Session) -> Statements[None]:
    """Leave title and marks of a conversation to its next version, if the first one goes."""
    rows = yield "SELECT min(no) FROM sessions WHERE version_root = ?", (session.number,)
    heir = rows[0][0]
    if heir is None:
        return
    yield "UPDATE session_marks SET session_no = ? WHERE session_no = ?", (heir, session.number)
    yield from pass_on_title(session.number, heir)
    yield "UPDATE sessions SET version_root = NULL WHERE no = ?", (heir,)
    yield "UPDATE sessions SET version_root = ? WHERE version_root = ?", (heir, session.number)


def _of(session: int, sql: str) -> tuple[Value, ...]:
    return (session,) * sql.count("?")


_ITS_MESSAGES = (
    "SELECT i.{0} FROM turns t JOIN inbox i ON i.turn_no = t.no WHERE t.session_no = ?"
    " UNION ALL SELECT i.{0} FROM mentions m JOIN inbox i ON i.no = m.inbox_no"
    " WHERE m.session_no = ? AND i.turn_no IS NULL"
)
"""Messages that its turns answer, and commands sent in it or answered with its content."""
_CHANGES = (
    f"SELECT no FROM inbox WHERE {CHANGE} AND ({ADDRESS_COLUMNS}) IN (SELECT {ADDRESS_COLUMNS} FROM inbox"
    f" WHERE {ORIGINAL} AND no IN ({_ITS_MESSAGES.format('no')}))"
)


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


_ITS_REPLIES = (
    f"SELECT o.id FROM turns t JOIN outbox o ON o.id >= t.no * {REPLIES} AND o.id < (t.no + 1) * {REPLIES}"
    " WHERE t.session_no = ?"
)


def contents_beside(table: str, number: str, where: Filter) -> Filter:
    """Return a condition for the messages or sends that do not go with these `sessions s`."""
    its = {"inbox": (_ITS_MESSAGES.format("no"), _CHANGES), "outbox": (_ITS_REPLIES, _ITS_NOTICES)}[table]
    going = f"IN (SELECT s.no FROM sessions s WHERE {where.sql})"
    return Filter.all(
        Filter(f"{number} NOT IN ({sql.replace('= ?', going)})", where.values * sql.count("?")) for sql in its
    )


def _drop_file_refs(session: int, span: tuple[int, int]) -> Statements[tuple[str, ...]]:
    """Drop the file references of its entries, messages, edits, replies and notices."""
    entries = yield from drop_refs("kind = 'entry' AND holder >= ? AND holder < ?", *span)
    theirs = f"{_ITS_MESSAGES.format('no')} UNION ALL {_CHANGES}"
    messages = yield from drop_refs(f"kind = 'in' AND holder IN ({theirs})", *_of(session, theirs))
    replies = yield from drop_refs(f"kind = 'out' AND holder IN ({_ITS_REPLIES})", session)
    notices = yield from drop_refs(f"kind = 'out' AND holder IN ({_ITS_NOTICES})", *_of(session, _ITS_NOTICES))
    return (*entries, *messages, *replies, *notices)


def _empty_messages(session: int) -> Statements[None]:
    """Erase texts but keep ids: a message that is delivered again must not start a second turn."""
    its = _ITS_MESSAGES.format("no")
    yield f"UPDATE inbox SET {SET_BODY} WHERE no IN ({_CHANGES})", (b"", None, *_of(session, _CHANGES))
    yield (
        f"UPDATE inbox SET {SET_BODY}, state = 'done', turn_no = NULL, reason = NULL WHERE no IN ({its})",
        (b"", None, *_of(session, its)),
    )


def _remove_turns(turns: Sequence[int]) -> Statements[None]:
    if not turns:
        return
    yield from sum_all_ended_turns()
    replies: list[tuple[Value, ...]] = [reply_span(turn) for turn in turns]
    yield "DELETE FROM outbox WHERE id >= ? AND id < ?", replies
    for table, number in (("title_usage", "turn_no"), ("feedback", "turn_no"), ("turns", "no")):
        yield f"DELETE FROM {table} WHERE {number} = ?", [(turn,) for turn in turns]


def _bypass_in_undo_log(session: Session, now: datetime) -> Statements[None]:
    """Make /back skip the session: operations that left it now lead to the session before it."""
    rows: list[Row] = yield (
        "SELECT key, from_key, from_session, undone_at IS NULL AND kind IN ('reset', 'switch', 'branch')"
        " FROM operations WHERE session_no = ? ORDER BY no",
        (session.number,),
    )
    keys = {session.key.text, *(key for row in rows for key in row[:2] if key)}
    earlier = {key: before for key, _, before, leads_here in rows if leads_here}
    for key in sorted(keys):
        if before := earlier.get(key):
            yield "UPDATE operations SET from_session = ? WHERE key = ? AND from_session = ?", (before, key, session.id)
        else:
            yield (
                "UPDATE operations SET undone_at = ? WHERE key = ? AND undone_at IS NULL AND from_session = ?",
                (micros(now), key, session.id),
            )


# Single entries


@transaction
def remove_entries(session: int, seqs: Sequence[int]) -> Statements[list[str]]:
    """Delete entries of a session that the caller holds. Return the files that nothing references any more."""
    ids = [session * SEQS + seq for seq in sorted(seqs)]
    yield "DELETE FROM entries WHERE id = ?", [(id_,) for id_ in ids]
    files = yield from drop_refs(f"kind = 'entry' AND holder IN ({placeholders(ids)})", *ids)
    yield from write_journal_of("delete", session, sorted(seqs))
    yield from owe_scrub()
    return files


# By age


@value
class PruneRule:
    """Which sessions to delete; open ones only by age. Every given field must match."""

    before: datetime | None = None
    """Only sessions that ended, or if they are open were last active, before this time."""
    keep_newest: int | None = None
    """Keep this many of the most recently active, regardless of age."""
    platform: str | None = None
    profile: str | None = None

    def __post_init__(self) -> None:
        if self.before is None and self.keep_newest is None:
            raise BadArgument(
                "Choose which sessions to delete.",
                found="",
                allowed="--before a date, --older-than an age, or --keep a number",
                example="palaver sessions prune --older-than 90d",
            )
        if (self.keep_newest or 0) < 0:
            raise BadArgument(
                "--keep cannot be", found=str(self.keep_newest), allowed="0 or more", example="--keep 100"
            )


@value
class Survey:
    """What a rule would delete now. `prune` deletes nothing else."""

    where: Filter = Filter("1 = 0")
    """Finds them among `sessions s`."""
    sessions: int = 0
    entries: int = 0
    oldest: datetime | None = None
    newest: datetime | None = None
    sample: tuple[Session, ...] = ()
    """A few of them, oldest first."""


@value
class Pruned:
    sessions: int = 0
    entries: int = 0
    busy: int = 0
    """Skipped because a turn or process still uses them."""

    def __add__(self, more: "Pruned") -> "Pruned":
        return Pruned(
            sessions=self.sessions + more.sessions, entries=self.entries + more.entries, busy=self.busy + more.busy
        )


_OVER_SINCE = "coalesce(s.ended, s.last_active)"


def _candidates(rule: PruneRule, principal: Principal) -> Filter:
    state = SessionState.ENDED if rule.before is None else None
    return session_filter(ListFilter(platform=rule.platform, profile=rule.profile, state=state), principal)


def _prunable(rule: PruneRule, principal: Principal, mark: tuple[int, int] | None) -> Filter:
    parts = [_candidates(rule, principal)]
    if rule.before is not None:
        parts.append(Filter(f"{_OVER_SINCE} < ?", (micros(rule.before),)))
    if mark is not None:
        parts.append(Filter("(s.last_active, s.no) < (?, ?)", mark))
    return Filter.all(parts)


@transaction
def survey(rule: PruneRule, principal: Principal) -> Statements[Survey]:
    """Return what `prune` would delete."""
    mark = yield from _find_cutoff(rule, principal)
    if rule.keep_newest and mark is None:
        return Survey()
    return (yield from survey_where(_prunable(rule, principal, mark)))


@transaction
def survey_where(where: Filter) -> Statements[Survey]:
    """Return what `prune` would delete of these `sessions s`."""
    rows = yield (
        f"SELECT count(*), coalesce(sum(s.next_seq - 1), 0), min({_OVER_SINCE}), max({_OVER_SINCE})"
        f" FROM sessions s WHERE {where.sql}",
        where.values,
    )
    sessions, entries, oldest, newest = rows[0]
    oldest_first = f"{where.sql} ORDER BY s.last_active, s.no LIMIT {_SAMPLE_SIZE}"
    sample = yield from select_sessions(oldest_first, *where.values)
    return Survey(
        where=where,
        sessions=sessions,
        entries=int(entries),
        oldest=instant_or_none(oldest),
        newest=instant_or_none(newest),
        sample=tuple(sample),
    )


def _find_cutoff(rule: PruneRule, principal: Principal) -> Statements[tuple[int, int] | None]:
    """Return the oldest session that is kept; None if there are fewer sessions than to keep."""
    if not rule.keep_newest:
        return None
    fits = _candidates(rule, principal)
    rows = yield (
        f"SELECT s.last_active, s.no FROM sessions s WHERE {fits.sql}"
        " ORDER BY s.last_active DESC, s.no DESC LIMIT 1 OFFSET ?",
        (*fits.values, rule.keep_newest - 1),
    )
    return (rows[0][0], rows[0][1]) if rows else None


async def prune(
    database: Database, where: Filter, now: datetime, *, progress: Callable[[Pruned], None] = lambda _: None
) -> Pruned:
    """Delete these `sessions s`, in many small transactions with whole sessions."""
    done = Pruned()
    async for step in prune_steps(database, where, now):
        done += step
        progress(done)
    return done


async def prune_steps(database: Database, where: Filter, now: datetime) -> AsyncGenerator[Pruned]:
    after = 0
    while batch := await database.read(_next_batch(where, after)):
        yield await database.transact(_remove_batch(where, batch, now))
        after = batch[-1]


@transaction
def _next_batch(where: Filter, after: int) -> Statements[list[int]]:
    """Return the sessions of the next transaction, at least one."""
    rows = yield (
        f"SELECT s.no, s.next_seq FROM sessions s WHERE s.no > ? AND {where.sql}"
        f" ORDER BY s.no LIMIT {_SESSIONS_PER_BATCH}",
        (after, *where.values),
    )
    numbers: list[int] = []
    entries = 0
    for number, next_seq in rows:
        entries += next_seq
        if numbers and entries > _ENTRIES_PER_BATCH:
            break
        numbers.append(number)
    return numbers


@transaction
def _remove_batch(where: Filter, numbers: Sequence[int], now: datetime) -> Statements[Pruned]:
    these = f"no IN ({placeholders(numbers)})"
    for (key,) in (yield f"SELECT DISTINCT key FROM sessions WHERE {these} ORDER BY key", tuple(numbers)):
        yield Lock(key)
    pruned = Pruned()
    for session in (yield from select_sessions(f"s.{these} AND {where.sql} ORDER BY s.no", *numbers, *where.values)):
        try:
            yield from _check_not_in_use(session)
            yield from _check_nothing_waits(session)
            removed = yield from _remove(session, now)
            pruned += Pruned(sessions=1, entries=removed.entries)
        except SessionBusy:
            pruned += Pruned(busy=1)
    return pruned
