"""Transcripts: appended under a fence, hidden and shown again, read for a principal."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import groupby

from palaver.db.transaction import JOURNAL, Lock, Notify, Row, Statements, Value, transaction
from palaver.model.compaction import CompactionPlan, check_gain
from palaver.model.errors import NothingToCompact
from palaver.model.key import SessionKey
from palaver.model.redact import redact
from palaver.model.session import Principal, Session
from palaver.model.transcript import Entry, Role, ToolCall, UnreadableEntry, turn_starts
from palaver.model.value import value
from palaver.model.view import estimate_tokens
from palaver.store.conversations import undo_log
from palaver.store.conversations.attachment_refs import add_refs
from palaver.store.conversations.sessions import check_not_busy, open_by_key
from palaver.store.conversations.titles import hide_title, show_title
from palaver.store.conversations.undo_log import Operation
from palaver.store.conversations.visibility import get_visible
from palaver.store.records import SEQS, Prepared, entries_of, entry_span, placeholders, prepare
from palaver.store.results import OperationKind, Undone

NOT_UNDONE = (
    "(e.hidden_by IS NULL OR EXISTS (SELECT 1 FROM operations o"
    " WHERE o.no = e.hidden_by AND o.kind = 'compaction' AND o.undone_at IS NULL))"
)
"""Whether an entry `e` counts: what a summary stands for does, and so does the summary while it stands."""
_SHOWN_FROM = f"(SELECT no * {SEQS} + shown_from FROM sessions WHERE no = ?)"
_SHOWN, _SHOWN_OF_TURN = (
    f"SELECT id, body FROM entries WHERE id >= {_SHOWN_FROM} AND id < ? AND hidden_by IS NULL{of_turn} ORDER BY id"
    for of_turn in ("", " AND turn_no = ?")
)
_NOTIFY_JOURNAL = Notify(JOURNAL)
_ROW_BYTES = 150
"""What a row takes in memory besides its body."""


@value
class LoadedEntries:
    """The shown entries of a session, with the rows they were decoded from."""

    rows: list[Row]
    entries: list[Entry]
    tokens: int = 0
    """What they take in a prompt, as estimated."""
    size: int = 0
    """About how many bytes the rows take in memory."""


NOTHING_LOADED = LoadedEntries(rows=[], entries=[])


@transaction
def load_shown(session_number: int, *, turn: int | None = None) -> Statements[list[Entry]]:
    """Load the shown entries of a session, or of one of its turns, without reading the hidden beginning."""
    of_session = session_number, (session_number + 1) * SEQS
    rows = yield (_SHOWN, of_session) if turn is None else (_SHOWN_OF_TURN, (*of_session, turn))
    return entries_of(rows)


@transaction
def load_again(session_number: int, known: LoadedEntries) -> Statements[LoadedEntries]:
    """Load the shown entries of a session. Decode only what is new, if all that is known is still stored as it was."""
    rows = yield _SHOWN, (session_number, (session_number + 1) * SEQS)
    return _decode(rows, known)


def _decode(rows: list[Row], known: LoadedEntries) -> LoadedEntries:
    """Return the same, no matter what is known. The rows decide, byte for byte, whether it is still true."""
    count = len(known.rows)
    if rows[:count] != known.rows:
        return _decode(rows, NOTHING_LOADED)
    new = entries_of(rows[count:])
    entries = known.entries + new
    if count and UnreadableEntry in map(type, entries):  # its time depends on all entries around it
        return _decode(rows, NOTHING_LOADED)
    size = sum([_ROW_BYTES + len(row[1]) for row in rows[count:]])
    return LoadedEntries(
        rows=rows, entries=entries, tokens=known.tokens + estimate_tokens(*new), size=known.size + size
    )


@transaction
def find_call(session_number: int, turn: int, id_: str) -> Statements[ToolCall]:
    """Return the latest call of a turn with this id; one that is named by the id if it cannot be read."""
    first = session_number * SEQS
    rows = yield (
        "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND turn_no = ? AND role = 'assistant' ORDER BY id DESC",
        (first, first + SEQS, turn),
    )
    calls = (call for entry in entries_of(rows) for call in entry.calls)
    return next((call for call in calls if call.id == id_), ToolCall(id=id_, name=id_))


@transaction
def load_turn(session_number: int, turn: int) -> Statements[list[Entry]]:
    """Load the entries of a turn: those that a summary covers too, but nothing that was undone."""
    shown = yield from load_shown(session_number, turn=turn)
    rows = yield (
        "SELECT e.id, e.body FROM entries e JOIN operations o ON o.no = e.hidden_by AND o.kind = 'compaction'"
        f" WHERE e.turn_no = ? AND e.hidden_by IS NOT NULL AND e.id / {SEQS} = ?",
        (turn, session_number),
    )
    return sorted([*entries_of(rows), *shown], key=lambda entry: entry.seq)


@transaction
def find_last(session_number: int, turn: int, seqs: Sequence[int]) -> Statements[int | None]:
    """Return the last entry of a turn; None if something of it, or one of these entries, was undone or deleted."""
    own = {entry.seq for entry in (yield from load_turn(session_number, turn))}
    ids = sorted({session_number * SEQS + seq for seq in {*own, *seqs}})
    rows = yield (
        "SELECT e.id FROM entries e LEFT JOIN operations o ON o.no = e.hidden_by AND o.kind = 'compaction'"
        f" WHERE e.id IN ({placeholders(ids)}) AND (e.hidden_by IS NULL OR o.no IS NOT NULL)",
        tuple(ids),
    )
    return max(own) if own and len(rows) == len(ids) else None


@transaction
def load_visible(session: str, principal: Principal) -> Statements[list[Entry]]:
    found = yield from get_visible(session, principal)
    return (yield from load_shown(found.number))


@transaction
def load_all(session: str, principal: Principal) -> Statements[list[Entry]]:
    """Load hidden entries too, each with the operation that hides it: for audits."""
    return (yield from page(session, principal, limit=SEQS, hidden=True))


@transaction
def page(
    session: str,
    principal: Principal,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: int = 100,
    summarised: bool = False,
    hidden: bool = False,
) -> Statements[list[Entry]]:
    """Load the last entries before a seq, the first ones after one, or the newest; oldest first.

    `summarised` also loads what a summary stands for, `hidden` what was undone, too.
    """
    found = yield from get_visible(session, principal)
    start, end = entry_span(found.number)
    first, last = start + min(max(after or 0, 0), SEQS), start + min(max(before or 0, 0), SEQS) if before else end
    if not hidden and not summarised:
        shown_from = yield f"SELECT {_SHOWN_FROM}", (found.number,)
        first = max(first, shown_from[0][0] - 1)
    only_shown = "1 = 1" if hidden else NOT_UNDONE if summarised else "e.hidden_by IS NULL"
    order = "ASC" if after is not None and not before else "DESC"
    rows = yield (
        f"SELECT e.id, e.body, e.hidden_by FROM entries e"
        f" WHERE e.id > ? AND e.id < ? AND {only_shown} ORDER BY e.id {order} LIMIT ?",
        (first, last, limit),
    )
    rows = sorted(rows)
    entries = zip(entries_of(rows), rows, strict=True)
    return [entry if row[2] is None else entry._replace(hidden_by=str(row[2])) for entry, row in entries]


@transaction
def append_outside_turn(key: SessionKey, entry: Entry) -> Statements[bool]:
    """Append an entry to the open session of a conversation; False if none is open."""
    rows = yield (
        "UPDATE sessions SET next_seq = next_seq + 1 WHERE key = ? AND ended IS NULL RETURNING no, next_seq",
        (key.text,),
    )
    for number, next_seq in rows:
        yield from append(number, next_seq - 1, [prepare(entry)])
    return bool(rows)


@transaction
def append(
    session_number: int, first_seq: int, entries: Sequence[Prepared], turn: int | None = None, *, settles: bool = False
) -> Statements[None]:
    """Append entries. The caller holds the session and advances its next seq."""
    start = session_number * SEQS
    rows: list[tuple[Value, ...]] = [
        (start + seq, entry.role, turn, entry.observed, *entry.values(session_number, seq))
        for seq, entry in enumerate(entries, first_seq)
    ]
    if rows:
        yield "INSERT INTO entries (id, role, turn_no, observed, body, checksum) VALUES (?, ?, ?, ?, ?, ?)", rows
        if filed := {start + seq: each.files for seq, each in enumerate(entries, first_seq) if each.files}:
            yield from add_refs("entry", filed)
    if rows or settles:
        kind, last_seq = "append" if rows else "settle", first_seq + len(rows) - 1
        yield from write_journal(kind, session_number, first_seq, last_seq, turn if settles else None)


@transaction
def write_journal(
    kind: str, session_number: int, first_seq: int, last_seq: int, settled: int | None = None
) -> Statements[None]:
    """Record a change of a transcript. A settled turn is named exactly once: usage is summed from it."""
    yield (
        "INSERT INTO journal (session_no, kind, first_seq, last_seq, turn_no) VALUES (?, ?, ?, ?, ?)",
        (session_number, kind, first_seq, last_seq, settled),
    )
    yield _NOTIFY_JOURNAL


@transaction
def write_journal_of(kind: str, session_number: int, seqs: Iterable[int]) -> Statements[None]:
    """Record a change of exactly these entries: a row for each run without a gap."""
    for _, run in groupby(enumerate(seqs), key=lambda each: each[1] - each[0]):
        found = [seq for _, seq in run]
        yield from write_journal(kind, session_number, found[0], found[-1])


@transaction
def undo(key: SessionKey, count: int, now: datetime, *, principal: Principal) -> Statements[Undone | None]:
    """Hide the last `count` turns in which a person spoke, and everything after; all if there are fewer.

    An undo that reaches past a summary undoes the compaction first, so that nothing of what is undone stays shown.
    """
    yield Lock(key.text)
    session = yield from open_by_key(key)
    if session is None:
        return None
    yield from check_not_busy(session)
    entries = yield from load_visible(session.id, principal)
    compactions: list[int] = []
    while len(turn_starts(entries)) < count and (done := (yield from _undo_compaction(key, session, entries, now))):
        compactions.append(done.number)
        entries = yield from load_visible(session.id, principal)
    starts = turn_starts(entries)
    if len(starts) < count:  # A branch has its parent's summary, but not what that covers: hide the summary too.
        starts = [*(entry.position for entry in entries if entry.role is Role.SUMMARY), *starts]
    if not starts:
        return None
    first = min(starts[-count:])
    hidden = tuple(entry for entry in entries if entry.position >= first)
    details = {"compactions": compactions} if compactions else {}
    yield from hide(OperationKind.UNDO, key, session, hidden, now, by=principal.name, **details)
    return Undone(kind=OperationKind.UNDO, session=session.id, entries=hidden, summaries=len(compactions))


def _undo_compaction(
    key: SessionKey, session: Session, shown: Sequence[Entry], now: datetime
) -> Statements[Operation | None]:
    """Undo the last compaction if its summary is shown; return it."""
    compaction = yield from undo_log.latest(key, session.number, OperationKind.COMPACTION)
    if compaction is None or compaction.details["summary"] not in {entry.seq for entry in shown}:
        return None
    yield from undo_log.mark_undone(compaction.number, now)
    yield from unhide(compaction, session.number)
    return compaction


@transaction
def redo_compaction(number: int, session_number: int) -> Statements[bool]:
    """Put a summary back in the place of what it covers. False if it is gone, or a later one was made since."""
    newer = "n.session_no = o.session_no AND n.no > o.no AND n.kind = 'compaction' AND n.undone_at IS NULL"
    rows = yield (
        "SELECT 1 FROM operations o WHERE o.no = ? AND o.undone_at IS NOT NULL"
        f" AND NOT EXISTS (SELECT 1 FROM operations n WHERE {newer})",
        (number,),
    )
    summaries = (yield from show(number, session_number)) if rows else []
    for summary in summaries:
        first, last = summary.covers or (0, 0)
        shown = yield from load_shown(session_number)
        covered = [each for each in shown if first <= each.position <= last and each.seq != summary.seq]
        yield "UPDATE operations SET undone_at = NULL WHERE no = ?", (number,)
        yield from write_journal("show", session_number, summary.seq, summary.seq)
        yield from _hide_by(number, session_number, covered)
    return bool(summaries)


@transaction
def hide(
    kind: OperationKind,
    key: SessionKey,
    session: Session,
    hidden: Sequence[Entry],
    now: datetime,
    *,
    by: str,
    **details: int | list[int],
) -> Statements[int]:
    """Hide entries by an operation that can be undone; return its number."""
    operation = yield from undo_log.record(kind, key, session.number, now, by, details)
    yield from _hide_by(operation, session.number, hidden)
    if hidden and kind is not OperationKind.COMPACTION:
        yield from hide_title(session, min(entry.position for entry in hidden), operation)
    return operation


def _hide_by(operation: int, session_number: int, hidden: Sequence[Entry]) -> Statements[None]:
    if not hidden:
        return
    ids: list[tuple[Value, ...]] = [(operation, session_number * SEQS + entry.seq) for entry in hidden]
    yield "UPDATE entries SET hidden_by = ? WHERE id = ? AND hidden_by IS NULL", ids
    seqs = [entry.seq for entry in hidden]
    yield from advance_shown_from(session_number, max(seqs) + 1)
    yield from write_journal("hide", session_number, min(seqs), max(seqs))


@transaction
def advance_shown_from(session_number: int, seq: int) -> Statements[None]:
    """Set where reading begins: at the first shown entry, or at `seq` if none is shown."""
    # Entries that are being written concurrently come after everything seen here.
    yield (
        f"UPDATE sessions SET shown_from = coalesce((SELECT e.id FROM entries e WHERE e.id >= no * {SEQS} + shown_from"
        f" AND e.id < (no + 1) * {SEQS} AND e.hidden_by IS NULL ORDER BY e.id LIMIT 1) - no * {SEQS}, ?) WHERE no = ?",
        (seq, session_number),
    )


@transaction
def show(operation: int, session_number: int) -> Statements[list[Entry]]:
    """Show the entries that an operation hid."""
    first = session_number * SEQS
    rows = yield (
        "UPDATE entries SET hidden_by = NULL WHERE hidden_by = ? AND id >= ? AND id < ? RETURNING id, body",
        (operation, first, first + SEQS),
    )
    entries = entries_of(sorted(rows))
    if entries:
        seq = entries[0].seq
        yield "UPDATE sessions SET shown_from = ? WHERE no = ? AND shown_from > ?", (seq, session_number, seq)
    return entries


@transaction
def unhide(operation: Operation, session_number: int) -> Statements[tuple[Entry, ...]]:
    """Undo an operation that hid entries: show them, and hide its summary instead."""
    entries = tuple((yield from show(operation.number, session_number)))
    if entries:
        yield from write_journal("show", session_number, entries[0].seq, entries[-1].seq)
    yield from show_title(session_number, operation.number)
    if operation.kind is OperationKind.COMPACTION:
        seq = operation.details["summary"]
        yield "UPDATE entries SET hidden_by = ? WHERE id = ?", (operation.number, session_number * SEQS + seq)
        yield from write_journal("hide", session_number, seq, seq)
    return entries


@transaction
def compact(key: SessionKey, plan: CompactionPlan, summary: str, now: datetime, *, by: str) -> Statements[Entry]:
    """Replace the planned entries by a summary, if they are all still shown and it saves something.

    Repeating it after a lost answer changes nothing.
    """
    yield Lock(key.text)
    session = yield from open_by_key(key)
    shown = (yield from load_shown(session.number)) if session else []
    redacted = redact(summary)
    for entry in shown:
        if entry.covers == plan.covers and entry.text == redacted and entry not in plan.covered:
            return entry
    if session is None or not set(plan.covered) <= set(shown):
        raise NothingToCompact("the conversation has changed since the summary was requested")
    rows = yield "UPDATE sessions SET next_seq = next_seq + 1 WHERE no = ? RETURNING next_seq", (session.number,)
    entry = Entry(seq=rows[0][0] - 1, role=Role.SUMMARY, at=now, text=summary, covers=plan.covers)
    check_gain(plan, entry)
    yield from append(session.number, entry.seq, [prepare(entry)])
    yield from hide(OperationKind.COMPACTION, key, session, plan.covered, now, by=by, summary=entry.seq)
    return entry
