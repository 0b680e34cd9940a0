"""The truth as the search reads it: what the journal says is new, and what of the found may be seen."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.session import Principal, Session
from palaver.model.transcript import Entry
from palaver.store.conversations.transcript import SEQS
from palaver.store.conversations.visibility import get_visible, visible_to
from palaver.store.records import SESSION_COLUMNS, entries_of, session_of
from palaver.store.search.documents import Document, documents_of

__all__ = [
    "Change",
    "Noted",
    "Progress",
    "changes_of",
    "documents_in",
    "findable",
    "load",
    "neighbours_of",
    "scope_of",
    "standing",
]

_INDEXED = frozenset({"append", "delete"})
_MOST_NAMED = 1000
_ROWS = 64
_ENTRIES = 512
_BYTES = 4 * 1024 * 1024

# Undone is out of search; what a compaction covers is not, and its summary is as long as the compaction stands.
_SHOWN = (
    "(e.hidden_by IS NULL OR EXISTS (SELECT 1 FROM operations o"
    " WHERE o.no = e.hidden_by AND o.kind = 'compaction' AND o.undone_at IS NULL))"
)


class Noted(NamedTuple):
    """A row of the journal."""

    pos: int
    session: int
    kind: str
    first: int
    last: int
    done: int = 0
    """The last seq that is indexed already."""


class Change(NamedTuple):
    """A range of entries to be indexed anew: all that the truth has of it, nothing else."""

    session: int
    platform: str
    first: int
    last: int
    entries: list[Row]
    """Id and body of each."""

    def documents(self) -> Iterator[Document]:
        """Takes its time: not for the thread that answers."""
        decoded = entries_of(row[1] for row in self.entries)
        for row, entry in zip(self.entries, decoded, strict=True):
            yield from documents_of(row[0], entry, self.session, self.platform)


def documents_in(changes: Iterable[Change]) -> list[Document]:
    """Each once, though ranges overlap, as those of a branch do: they were read at one moment, and say the same."""
    return list({(each.entry, each.page): each for change in changes for each in change.documents()}.values())


class Progress(NamedTuple):
    changes: list[Change]
    rows: int
    """How many of the journal's rows are dealt with."""
    done: int = 0
    """Of the row after these, the last seq."""


@transaction
def changes_of(rows: Sequence[Noted]) -> Statements[Progress]:
    """What these rows of the journal stand for, up to as much as fits into one batch."""
    changes: list[Change] = []
    budget = _Budget()
    for index, row in enumerate(rows):
        if row.kind not in _INDEXED:
            continue
        platform, seq = yield from _beginning(row)
        while seq <= row.last:
            if budget.spent:
                return Progress(changes, index, seq - 1)
            changes.append((yield from _change(row.session, platform, seq, row.last)))
            budget.pay(changes[-1])
            seq = changes[-1].last % SEQS + 1
    return Progress(changes, len(rows))


class _Budget:
    def __init__(self) -> None:
        self._entries = 0
        self._bytes = 0

    @property
    def spent(self) -> bool:
        return self._entries >= _ENTRIES or self._bytes >= _BYTES

    def pay(self, change: Change) -> None:
        self._entries += len(change.entries)
        self._bytes += sum(len(row[1]) for row in change.entries)


def _beginning(row: Noted) -> Statements[tuple[str, int]]:
    """The platform, and the first entry. The copies at the head of a branch are indexed with its first own words."""
    found = yield "SELECT platform, parent_seq FROM sessions WHERE no = ?", (row.session,)
    platform, copied = found[0] if found else ("", None)
    if row.done:
        return platform, row.done + 1
    return platform, 1 if copied and row.first == copied + 1 else row.first


def _change(session: int, platform: str, first: int, last: int) -> Statements[Change]:
    low, high = session * SEQS + first, session * SEQS + last
    rows = yield f"SELECT id, body FROM entries WHERE id >= ? AND id <= ? ORDER BY id LIMIT {_ROWS}", (low, high)
    return Change(session, platform, low, rows[-1][0] if len(rows) == _ROWS else high, rows)


# Who may see what


@transaction
def scope_of(principal: Principal, session: str | None) -> Statements[list[int] | None]:
    """The sessions a search is confined to; None if there are too many to name, or no confines.

    It only spares the index work: whoever took part in more, or may see more, is not given more by it.
    """
    if session is not None:
        return [(yield from get_visible(session, principal)).number]
    names = tuple(sorted(principal.identities))
    marks = ", ".join("?" * len(names))
    rows = yield (
        f"SELECT DISTINCT session_no FROM participants WHERE identity IN ({marks}) LIMIT {_MOST_NAMED + 1}"
        if names
        else "SELECT 1 WHERE 1 = 0",
        names,
    )
    return [row[0] for row in rows] if len(rows) <= _MOST_NAMED else None


@transaction
def findable(entries: Sequence[int], principal: Principal) -> Statements[set[int]]:
    """Those that are there, shown and visible. What a branch copied is found only where the original is not."""
    rows = yield from _found("x.id", entries, principal)
    return {row[0] for row in rows}


def _found(columns: str, entries: Sequence[int], principal: Principal, more: str = "") -> Statements[list[Row]]:
    if not entries:
        return []
    seen = visible_to(principal)
    ids = _padded(entries)
    marks = ", ".join("?" * len(ids))
    # Sessions are named, and asked one by one who may see them, or a planner might go through all there are of them.
    values: tuple[Value, ...] = (*ids, *(each // SEQS for each in ids), *seen.values, *seen.values)
    return (
        yield (
            f"SELECT {columns} FROM (SELECT e.id, e.body, e.id % {SEQS} AS seq, s.no, s.parent, s.parent_seq"
            f" FROM entries e JOIN sessions s ON s.no = e.id / {SEQS}"
            f" WHERE e.id IN ({marks}) AND s.no IN ({marks}) AND {_SHOWN}"
            f" AND CASE WHEN {seen.sql} THEN 1 END = 1) x {more}"
            f" WHERE NOT EXISTS (SELECT 1 FROM sessions s JOIN entries e ON e.id = s.no * {SEQS} + x.seq"
            f" WHERE x.seq <= x.parent_seq AND s.id = x.parent AND {_SHOWN} AND {seen.sql})",
            values,
        )
    )


def _padded(entries: Sequence[int]) -> list[int]:
    """To a power of two, so that the statements are few and stay prepared."""
    size = 1 << (len(entries) - 1).bit_length()
    return [*entries, *[entries[-1]] * (size - len(entries))]


@transaction
def load(entries: Sequence[int], principal: Principal) -> Statements[dict[int, tuple[Session, Entry]]]:
    """The found entries themselves, if they may still be seen."""
    rows = yield from _found(f"x.id, x.body, {SESSION_COLUMNS}", entries, principal, "JOIN sessions s ON s.no = x.no")
    loaded = entries_of(row[1] for row in rows)
    return {row[0]: (session_of(row[2:]), entry) for row, entry in zip(rows, loaded, strict=True)}


@transaction
def neighbours_of(session: int, seq: int, count: int) -> Statements[tuple[tuple[Entry, ...], tuple[Entry, ...]]]:
    """The shown entries around one that may be seen."""
    first, entry = session * SEQS, session * SEQS + seq
    before = yield (
        f"SELECT e.body FROM entries e WHERE e.id >= ? AND e.id < ? AND {_SHOWN} ORDER BY e.id DESC LIMIT ?",
        (first, entry, count),
    )
    after = yield (
        f"SELECT e.body FROM entries e WHERE e.id > ? AND e.id < ? AND {_SHOWN} ORDER BY e.id LIMIT ?",
        (entry, first + SEQS, count),
    )
    return tuple(entries_of(row[0] for row in reversed(before))), tuple(entries_of(row[0] for row in after))


@transaction
def standing(entries: Sequence[int]) -> Statements[int]:
    """How many of these are there, whoever may see them."""
    marks = ", ".join("?" * len(entries))
    return (yield f"SELECT count(*) FROM entries WHERE id IN ({marks})", tuple(entries))[0][0]
