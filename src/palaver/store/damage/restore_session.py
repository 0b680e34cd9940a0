"""Make the row of a session or a turn again from the rows that belong to it."""

from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.session import EndReason, owner_of
from palaver.model.transcript import Role
from palaver.model.turn import TurnState
from palaver.store.conversations.sessions import new_id
from palaver.store.conversations.titles import suggest_title
from palaver.store.damage.mend_structure import key_of_session, origin_of_key, origin_of_session
from palaver.store.damage.set_aside import record_loss
from palaver.store.records import SEQS, entries_of, entry_span, instant, micros, reply_span, source_text

LOST_ROW = "the row of this turn was lost"


@transaction
def restore_session(number: int, now: datetime) -> Statements[bool]:
    """Insert a session that its entries, turns or routes still name, and record what nothing tells any more.

    It gets a new id and its first words as its title. It is open if the conversation leads to it.
    """
    key = yield from key_of_session(number)
    if key is None:
        return False
    origin = (yield from origin_of_session(number)) or origin_of_key(key)
    first, last, next_seq = yield from _span(number, now)
    is_open = yield from _leads_to(key, number, last)
    sums = yield _SUMS, (number,)
    id_ = new_id(instant(first))
    yield (
        "INSERT INTO sessions (no, id, key, profile, platform, owner, origin, started, ended, end_reason, last_human,"
        " last_active, next_seq, turns, input_tokens, output_tokens, cached_tokens, cost_micros, unpriced_tokens)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(number, id_, key.text, key.profile, origin.platform),
            *(owner_of(key, origin), source_text(origin), first),
            *((None, None) if is_open else (last, EndReason.SWITCHED.value)),
            *(last, last, next_seq),
            *map(int, sums[0]),
        ),
    )
    yield _BRANCH, (number,)
    said, seq = yield from _first_words(number)
    title = yield from suggest_title(id_, said, made_from=seq)
    named = "titled after its first words" if title else "without a title"
    found = f"its row was lost: made again from what belongs to it, {'open' if is_open else 'ended'} and {named}"
    unknown = "its id, title, model and other settings are not known"
    yield from record_loss("sessions", id_, f"{found}; {unknown}", now, session=number)
    return True


_COPIED = (
    f"entries e JOIN turns t ON t.no = e.turn_no WHERE e.id >= sessions.no * {SEQS}"
    f" AND e.id < (sessions.no + 1) * {SEQS} AND t.session_no <> sessions.no"
)
_BRANCH = (
    f"UPDATE sessions SET parent_seq = (SELECT max(e.id) % {SEQS} FROM {_COPIED}),"
    f" parent = (SELECT p.id FROM sessions p WHERE p.no = (SELECT t.session_no FROM {_COPIED} ORDER BY e.id DESC"
    f" LIMIT 1)) WHERE no = ? AND EXISTS (SELECT 1 FROM {_COPIED})"
)
"""A session with entries of another one's turns is a branch of it."""


def _leads_to(key: SessionKey, number: int, last: int) -> Statements[bool]:
    """Return whether a conversation leads to a session: its route says so, or else its newest activity."""
    if (yield "SELECT 1 FROM sessions WHERE key = ? AND ended IS NULL", (key.text,)):
        return False
    route = yield "SELECT session_no FROM routes WHERE key = ?", (key.text,)
    # What was opened after the last turn, and else the session of that turn.
    later = yield (
        "SELECT session_no FROM operations WHERE key = ? AND kind IN ('reset', 'switch', 'branch')"
        " AND undone_at IS NULL AND at > ? ORDER BY at DESC, no DESC LIMIT 1",
        (key.text, last),
    )
    newest = yield "SELECT session_no FROM turns WHERE key = ? ORDER BY no DESC LIMIT 1", (key.text,)
    leads = route or later or newest
    return bool(leads) and leads[0][0] == number


def _first_words(number: int) -> Statements[tuple[str, int | None]]:
    """Return how the first thing begins that is shown of what somebody said in a session, and which entry that is."""
    rows = yield (
        "SELECT id, body FROM entries WHERE id >= ? AND id < ? AND role = 'user' AND observed = 0"
        " AND hidden_by IS NULL ORDER BY id LIMIT 5",
        entry_span(number),
    )
    said = next((entry for entry in entries_of(rows) if entry.text.strip()), None)
    return (" ".join(said.text.split()[:_TITLE_WORDS]), said.seq) if said else ("", None)


_TITLE_WORDS = 6
_SUMS = (
    "SELECT count(*), coalesce(sum(input_tokens), 0), coalesce(sum(output_tokens), 0), coalesce(sum(cached_tokens), 0),"
    " coalesce(sum(cost_micros), 0), coalesce(sum(unpriced_tokens), 0) FROM turns WHERE session_no = ?"
)


def _span(number: int, now: datetime) -> Statements[tuple[int, int, int]]:
    """Return when a session began and was last active, and its next seq."""
    first, end = entry_span(number)
    rows = yield "SELECT id, body FROM entries WHERE id >= ? AND id < ? ORDER BY id", (first, end)
    turns = yield "SELECT min(started), max(coalesce(ended, started)) FROM turns WHERE session_no = ?", (number,)
    moments = [*(micros(entry.at) for entry in entries_of(rows)), *(at for at in turns[0] if at is not None)]
    journal = yield "SELECT coalesce(max(last_seq), 0) FROM journal WHERE session_no = ?", (number,)
    last_seq = max([journal[0][0], *(row[0] - first for row in rows)])
    return min(moments, default=micros(now)), max(moments, default=micros(now)), last_seq + 1


@transaction
def restore_turn(number: int, now: datetime) -> Statements[bool]:
    """Insert a turn that its entries still name. It is over: done if it has replies or an answer, else failed."""
    own = yield (
        f"SELECT e.id, e.body FROM entries e LEFT JOIN sessions s ON s.no = e.id / {SEQS} WHERE e.turn_no = ?"
        f" AND e.id % {SEQS} > coalesce(s.parent_seq, 0) ORDER BY e.id",
        (number,),
    )
    key = (yield from key_of_session(own[0][0] // SEQS)) if own else None
    if key is None:
        return False
    entries = entries_of(own)
    replies = yield "SELECT 1 FROM outbox WHERE id >= ? AND id < ? LIMIT 1", reply_span(number)
    is_done = bool(replies) or any(entry.role is Role.ASSISTANT for entry in entries)
    state = TurnState.DONE if is_done else TurnState.FAILED
    moments = [micros(entry.at) for entry in entries]
    yield (
        "INSERT INTO turns (no, key, session_no, state, worker, lease_until, started, ended, error)"
        " VALUES (?, ?, ?, ?, 'repair', ?, ?, ?, ?)",
        (
            *(number, key.text, own[0][0] // SEQS, state.value),
            *(micros(now), min(moments), max(moments), None if is_done else LOST_ROW),
        ),
    )
    lost = "its row was lost: made again from its entries; its sender, model and usage are not known"
    yield from record_loss("turns", str(number), lost, now, session=own[0][0] // SEQS)
    return True
