"""Looking documents up in the tables of a PostgreSQL search index, newest first.

A GIN index gives what it finds all at once and in no order, and what it finds has to be fetched to be sorted. So the
newest documents are looked at one by one first, where a common word fills a page at once. How many are found there says
how far back the index should be asked; what is rare is little to fetch wherever it is.
"""

from collections.abc import Iterator

from palaver.ports.work import Row, Steps, work
from palaver.stores.search.conditions import all_of
from palaver.stores.search.documents import Candidate, Need, Wanted
from palaver.stores.visibility import Filter

__all__ = ["find_candidates"]

_WINDOW = 2_000
_SHORT = 3
_BEGINNING = 16_384


@work
def find_candidates(
    wanted: Wanted, after: Candidate | None, limit: int, *, bodies: bool
) -> Steps[tuple[int, list[Candidate]]]:
    """The table they were found in, and they."""
    # Planned anew for these words and sessions each time: what is good for some of them is slow for others.
    yield "SELECT set_config('plan_cache_mode', 'force_custom_plan', TRUE)", ()
    rows = yield from _find(_Look(wanted, after, bodies=bodies), limit)
    # Asked for last: now that it was read, it cannot be replaced before we are done.
    table = yield "SELECT to_regclass('search_documents')::oid::bigint", ()
    return table[0][0], [Candidate(*row) for row in rows]


def _find(look: "_Look", limit: int) -> Steps[list[Row]]:
    rows = yield from look.among_newest(limit)
    if len(rows) >= limit:
        return rows
    begins = yield from look.beginning_of_newest()
    if begins is None:
        return rows
    if rows:
        newest = rows[0][_AT]
        rows = yield from look.in_index(limit, since=newest - (newest - begins) * 2 * limit // len(rows))
    return rows if len(rows) >= limit else (yield from look.in_index(limit))


_AT = 3


class _Look:
    def __init__(self, wanted: Wanted, after: Candidate | None, *, bodies: bool) -> None:
        self._bounds = all_of(_bounds(wanted, after))
        self._match = all_of(_match(wanted))
        self._columns = f"id, entry, page, at{f', left(body, {_BEGINNING})' if bodies else ''}"

    def among_newest(self, limit: int) -> Steps[list[Row]]:
        bounds, match = self._bounds, self._match
        return (
            yield (
                f"SELECT {self._columns} FROM (SELECT * FROM search_documents WHERE {bounds.sql} ORDER BY at DESC,"
                f" id DESC LIMIT {_WINDOW}) d WHERE {match.sql} ORDER BY at DESC, id DESC LIMIT ?",
                (*bounds.values, *match.values, limit),
            )
        )

    def beginning_of_newest(self) -> Steps[int | None]:
        """When the newest documents begin; None if there are no others."""
        rows = yield (
            f"SELECT at FROM search_documents WHERE {self._bounds.sql} ORDER BY at DESC, id DESC"
            f" LIMIT 1 OFFSET {_WINDOW}",
            self._bounds.values,
        )
        return rows[0][0] if rows else None

    def in_index(self, limit: int, since: int | None = None) -> Steps[list[Row]]:
        """Found first and sorted then, or the planner might walk through all documents in the order wanted."""
        where = all_of([self._match, self._bounds, *([] if since is None else [Filter("at >= ?", (since,))])])
        return (
            yield (
                f"WITH found AS MATERIALIZED (SELECT id, at FROM search_documents WHERE {where.sql})"
                f" SELECT {self._columns} FROM search_documents WHERE id IN"
                " (SELECT id FROM found ORDER BY at DESC, id DESC LIMIT ?) ORDER BY at DESC, id DESC",
                (*where.values, limit),
            )
        )


def _bounds(wanted: Wanted, after: Candidate | None) -> Iterator[Filter]:
    if wanted.sessions is not None:
        numbers = ",".join(map(str, wanted.sessions))
        yield Filter("session = ANY (string_to_array(?, ',')::bigint[])", (numbers,))
    if after is not None:
        yield Filter("(at, id) < (?, ?)", (after.at, after.number))
    if wanted.since is not None:
        yield Filter("at >= ?", (wanted.since,))
    if wanted.until is not None:
        yield Filter("at < ?", (wanted.until,))


def _match(wanted: Wanted) -> Iterator[Filter]:
    yield Filter("terms @@ ?::text::tsquery", (_terms(wanted),))
    for need in wanted.needs:
        if need.needles:
            yield Filter(f"({' OR '.join(['strpos(body, ?) > 0'] * len(need.needles))})", need.needles)


def _terms(wanted: Wanted) -> str:
    """Short beginnings are left out if there is anything else: half of all documents have them, and the needles."""
    telling = [_option(need) for need in wanted.needs if not _is_short(need)]
    tags = [" | ".join(map(_quoted, group)) for group in wanted.tags]
    parts = [*telling, *tags] or [_option(need) for need in wanted.needs]
    return " & ".join(f"({part})" for part in parts)


def _is_short(need: Need) -> bool:
    return need.prefix and len(need.options) == 1 and len("".join(need.options[0])) < _SHORT


def _option(need: Need) -> str:
    star = ":*" if need.prefix else ""
    return " | ".join(f"({' & '.join(map(_quoted, terms))}{star})" for terms in need.options)


def _quoted(term: str) -> str:
    return f"'{term}'"
