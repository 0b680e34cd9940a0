"""Copying in the store: what some people said in a conversation and were answered, as a conversation of its own."""

from collections.abc import Collection
from datetime import datetime

from palaver.domain.key import SessionKey
from palaver.domain.session import Principal, Session, identity_of, source_behind
from palaver.ports.work import Steps, Value
from palaver.stores.filed import copy_files
from palaver.stores.records import micros, source_text
from palaver.stores.sessions import new_id, rename
from palaver.stores.transcript import SEQS, journal
from palaver.stores.visibility import get

__all__ = ["apart", "copy_part", "spoke"]

# An entry belongs to whoever its turn answers; without a turn, to whoever began the session. What was undone stays
# undone, what a summary stands for comes back; the summary, which may tell of others, stays behind, and the title goes
# with whoever began it.
_THEIRS = (
    "e.id >= ? AND e.id < ? AND e.role <> 'summary' AND (e.hidden_by IS NULL OR EXISTS (SELECT 1 FROM operations o"
    " WHERE o.no = e.hidden_by AND o.kind = 'compaction'))"
    " AND coalesce((SELECT t.identity FROM turns t WHERE t.no = e.turn_no), ?) IN "
)
_TURNS = "SELECT turn_no FROM entries WHERE id >= ? AND id < ? AND turn_no IS NOT NULL"


def apart(profile: str, session: str) -> SessionKey:
    """A place of its own for a session, where nobody can speak: no source leads there."""
    return SessionKey(profile, chat=session)


def _theirs(session: Session, people: Collection[str]) -> tuple[str, tuple[Value, ...]]:
    names, first = sorted(people), session.number * SEQS
    marks = ", ".join("?" * len(names))
    return f"{_THEIRS} ({marks})", (first, first + SEQS, identity_of(session.origin) or "", *names)


def spoke(session: Session, people: Collection[str]) -> Steps[bool]:
    """Whether anything in a session is theirs."""
    where, values = _theirs(session, people)
    return bool((yield f"SELECT 1 FROM entries e WHERE {where} LIMIT 1", values))


def copy_part(session: Session, people: Collection[str], now: datetime) -> Steps[Session]:
    """What is theirs in a session, in a session that only they may read. Its turns go along."""
    number = yield from _new_session(session, people, now)
    yield (
        "INSERT INTO participants (identity, session_no) SELECT identity, ? FROM participants"
        f" WHERE session_no = ? AND left_at IS NULL AND identity IN ({', '.join('?' * len(people))})",
        (number, session.number, *sorted(people)),
    )
    where, values = _theirs(session, people)
    yield (
        "INSERT INTO entries (id, role, turn_no, observed, body)"
        f" SELECT e.id + ?, e.role, e.turn_no, e.observed, e.body FROM entries e WHERE {where}",
        ((number - session.number) * SEQS, *values),
    )
    yield from copy_files(session.number * SEQS, number * SEQS, SEQS)
    yield from journal("append", number, 1, session.counters.entries)
    yield from _take_turns(session, number)
    copied = yield from get(number)
    if session.title is None or session.owner not in people:
        return copied
    return (yield from rename(copied.id, session.title, Principal.operator()))


def _new_session(session: Session, people: Collection[str], now: datetime) -> Steps[int]:
    id_ = new_id(now)
    origin = (
        session.origin if identity_of(session.origin) in people else source_behind(min(people), session.key.profile)
    )
    rows = yield (
        "INSERT INTO sessions (id, key, profile, platform, owner, origin, parent, started, ended, end_reason,"
        " last_human, last_active, next_seq, override) SELECT ?, ?, profile, ?, ?, ?, id, started, ?, ?,"
        " last_human, last_active, next_seq, override FROM sessions WHERE no = ? RETURNING no",
        (
            id_,
            apart(session.key.profile, id_).text,
            origin.platform,
            identity_of(origin),
            source_text(origin),
            session.ended and micros(session.ended),
            session.end_reason,
            session.number,
        ),
    )
    return rows[0][0]


def _take_turns(session: Session, number: int) -> Steps[None]:
    """What became of them is told where they are, and what they cost counts there."""
    copied = number * SEQS, (number + 1) * SEQS
    yield (
        f"UPDATE turns SET session_no = ? WHERE session_no = ? AND no IN ({_TURNS})",
        (number, session.number, *copied),
    )
    sums = ", ".join(
        f"{column} = (SELECT coalesce({total}, 0) FROM turns t WHERE t.session_no = ? AND t.no IN ({_TURNS}))"
        for column, total in _SUMS.items()
    )
    yield f"UPDATE sessions SET {sums} WHERE no = ?", (*(number, *copied) * len(_SUMS), number)


_SUMS = {
    "turns": "count(*)",
    "input_tokens": "sum(t.input_tokens)",
    "output_tokens": "sum(t.output_tokens)",
    "cost_micros": "sum(t.cost_micros)",
}
