"""Looking documents up in a SQLite search index, newest first.

A word streams from FTS5 in the order wanted. The beginning of a word does not: FTS5 would collect every word that
begins so before it gives the first document. So beginnings are sought in the text of the newest documents first, where
common ones are found at once; only what is rare there is left to FTS5.
"""

import sqlite3
from collections.abc import Iterator, Sequence

from palaver.stores.search.conditions import all_of
from palaver.stores.search.documents import Candidate, Need, Wanted, session_tag
from palaver.stores.visibility import Filter

__all__ = ["MICROS", "PER_SECOND", "find_candidates"]

MICROS = 1_000_000
# The number of a document says when it was.
PER_SECOND = 64
_WINDOW = 3_000
_BEGINNING = 16_384


def find_candidates(
    db: sqlite3.Connection, wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool, late: int
) -> list[Candidate]:
    """`late` is how many seconds behind its time a document may stand."""
    words = [need for need in wanted.needs if not need.prefix]
    beginnings = [need for need in wanted.needs if need.prefix]
    bounds, tests = all_of(_bounds(wanted, after, late)), all_of(_tests(wanted))
    columns = f"d.id, d.entry, d.page, d.at{f', substr(d.body, 1, {_BEGINNING})' if bodies else ''}"
    if beginnings:
        near = _numbers(_match(words, wanted), bounds)
        floor = db.execute(
            f"SELECT n.rowid {near.sql} ORDER BY n.rowid DESC LIMIT 1 OFFSET {_WINDOW}", near.values
        ).fetchall()
        near = Filter(f"{near.sql} AND n.rowid > ?", (*near.values, *floor[0])) if floor else near
        found = _select(db, columns, near, tests, limit)
        if len(found) >= limit or not floor:
            return found
        words.append(max(beginnings, key=_length))
    return _select(db, columns, _numbers(_match(words, wanted), bounds), tests, limit)


def _numbers(match: str, bounds: Filter) -> Filter:
    """The numbers of documents that fit."""
    if match:
        return Filter(f"FROM terms n WHERE n.terms MATCH ? AND {bounds.sql}", (match, *bounds.values))
    return Filter(f"FROM documents n WHERE {bounds.sql}", bounds.values)


def _select(db: sqlite3.Connection, columns: str, numbers: Filter, tests: Filter, limit: int) -> list[Candidate]:
    """A number without a document says that the file is spoiled."""
    source, _, where = numbers.sql.partition(" WHERE ")
    rows = db.execute(
        f"SELECT {columns} {source} LEFT JOIN documents d ON d.id = n.rowid"
        f" WHERE {where} AND (d.id IS NULL OR ({tests.sql})) ORDER BY n.rowid DESC LIMIT ?",
        (*numbers.values, *tests.values, limit),
    ).fetchall()
    if any(row[0] is None for row in rows):
        raise sqlite3.DatabaseError("the terms and the documents do not fit together")
    return [Candidate(*row) for row in rows]


def _bounds(wanted: Wanted, after: Candidate | None, late: int) -> Iterator[Filter]:
    if after is not None:
        yield Filter("n.rowid < ?", (after.number,))
    if wanted.since is not None:
        yield Filter("n.rowid >= ?", (wanted.since // MICROS * PER_SECOND,))
    if wanted.until is not None:
        yield Filter("n.rowid < ?", ((wanted.until // MICROS + 1 + late) * PER_SECOND,))


def _tests(wanted: Wanted) -> Iterator[Filter]:
    """What the numbers and terms alone do not decide."""
    if wanted.since is not None:
        yield Filter("d.at >= ?", (wanted.since,))
    if wanted.until is not None:
        yield Filter("d.at < ?", (wanted.until,))
    for need in wanted.needs:
        if need.needles:
            yield Filter(f"({' OR '.join(['instr(d.body, ?)'] * len(need.needles))})", need.needles)


def _match(needs: Sequence[Need], wanted: Wanted) -> str:
    sessions = [" OR ".join(_quoted(session_tag(each)) for each in wanted.sessions)] if wanted.sessions else []
    tags = [" OR ".join(map(_quoted, group)) for group in wanted.tags]
    return " AND ".join(f"({part})" for part in (*map(_option, needs), *tags, *sessions))


def _option(need: Need) -> str:
    star = " *" if need.prefix else ""
    return " OR ".join(f"({' AND '.join(map(_quoted, terms))}{star})" for terms in need.options)


def _quoted(term: str) -> str:
    return f'"{term}"'


def _length(need: Need) -> int:
    return sum(map(len, need.options[0]))
