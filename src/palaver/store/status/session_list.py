"""List sessions page by page, newest first, and sum them up."""

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo

from palaver.db.transaction import Row, Statements, storable, transaction
from palaver.model.errors import BadArgument
from palaver.model.session import TITLE_LIMIT, Counters, Principal, Session, SessionState
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.store.conversations.visibility import Filter, visible_to
from palaver.store.people.usage import SLOT_MICROS
from palaver.store.records import (
    SEQS,
    SESSION_COLUMNS,
    SESSION_TITLE,
    USAGE_COLUMNS,
    instant,
    micros,
    placeholders,
    readable,
    session_of,
)
from palaver.store.results import Preview


@value
class ListFilter:
    """Every given field must match. Times are those of the last activity."""

    platform: str | None = None
    profile: str | None = None
    state: SessionState | None = None
    titled: bool = False
    title: str | None = None
    """Text anywhere in the title, ignoring case."""
    owner: str | None = None
    person: str | None = None
    """The identity of a participant: `telegram:7`."""
    since: datetime | None = None
    until: datetime | None = None
    without_jobs: bool = False
    """Leave out the conversations that only jobs have."""
    latest_versions: bool = False
    """Of the versions of a conversation, only the one that is open or was last used."""
    archived_by: str | None = None
    """The identity that archived it, with nothing new since."""
    not_archived_by: str | None = None


NO_FILTER = ListFilter()
CONVERSATIONS = ListFilter(without_jobs=True, latest_versions=True)
"""What people call their conversations."""


@value
class Page:
    previews: tuple[Preview, ...]
    after: str | None
    """The cursor of the next page; None on the last one."""


LARGEST_PAGE = 500
SORTABLE_SESSIONS = 2000
"""A person with fewer sessions than this gets them sorted; otherwise the index on activity is walked."""
_PREVIEW_BYTES = 4096


# Conditions


def session_filter(wanted: ListFilter, principal: Principal) -> Filter:
    """Return the SQL condition on `sessions s` for the filter and for what the principal may see."""
    latest = [_latest_version(principal)] if wanted.latest_versions else []
    return Filter.all((visible_to(principal), *_conditions(wanted), *latest))


def _latest_version(principal: Principal) -> Filter:
    seen = visible_to(principal, "v")
    later = "(v.last_active, v.no) > (s.last_active, s.no)"
    return Filter(
        "NOT EXISTS (SELECT 1 FROM sessions v WHERE (v.no = s.version_root OR v.version_root = s.version_root"
        f" OR v.version_root = s.no) AND CASE WHEN v.ended IS NULL THEN s.ended IS NOT NULL OR {later}"
        f" ELSE s.ended IS NOT NULL AND {later} END AND {seen.sql})",
        seen.values,
    )


_ARCHIVED = (
    "EXISTS (SELECT 1 FROM session_marks m WHERE m.identity = ? AND m.session_no = coalesce(s.version_root, s.no)"
    " AND m.archived >= s.last_active AND coalesce(m.seen_seq, s.next_seq) >= s.next_seq - 1)"
)


def _conditions(wanted: ListFilter) -> Iterable[Filter]:
    names = {
        "s.platform = ?": wanted.platform,
        "s.profile = ?": wanted.profile,
        "s.owner = ?": wanted.owner,
        "s.no IN (SELECT session_no FROM participants WHERE identity = ?)": wanted.person,
        _ARCHIVED: wanted.archived_by,
        f"NOT {_ARCHIVED}": wanted.not_archived_by,
    }
    yield from (_equals(sql, text) for sql, text in names.items() if text is not None)
    since, until = (time and micros(time) for time in (wanted.since, wanted.until))
    yield from Filter.given({"s.last_active >= ?": since, "s.last_active < ?": until})
    if wanted.state is not None:
        yield Filter("s.ended IS NULL" if wanted.state is SessionState.OPEN else "s.ended IS NOT NULL")
    if wanted.without_jobs:
        yield Filter("s.schedule_no IS NULL")
    if wanted.titled:
        yield Filter(f"{SESSION_TITLE} IS NOT NULL")
    if wanted.title is not None:
        yield _title_contains(wanted.title)


def _equals(sql: str, text: str) -> Filter:
    """No database can store NUL or half a surrogate, so nothing in it equals them."""
    return Filter(sql, (text,)) if storable((text,)) == (text,) else Filter("1 = 0")


def _title_contains(text: str) -> Filter:
    """Clean the text as titles are cleaned, and try several cases: SQLite folds only ASCII."""
    text = one_line(text, TITLE_LIMIT)
    variants = sorted({text, text.lower(), text.upper(), text.title()})
    escaped = (variant.replace("!", "!!").replace("%", "!%").replace("_", "!_") for variant in variants)
    clause = " OR ".join([f"{SESSION_TITLE} /*pg I*/LIKE ? ESCAPE '!'"] * len(variants))
    return Filter(f"({clause})", tuple(f"%{each}%" for each in escaped))


# Pages


_CURSOR = re.compile(r"(-?[0-9a-f]{1,15})-([0-9a-f]{1,15})", re.ASCII)


def _cursor(last: Row) -> str:
    """Name the last session of a page; the next page starts behind it."""
    number, active = last[0], last[_LAST_ACTIVE]
    return f"{active:x}-{number:x}"


_LAST_ACTIVE = SESSION_COLUMNS.split(", ").index("s.last_active")


def _behind(cursor: str, active: str) -> Filter:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        allowed = "the cursor of the previous page"
        raise BadArgument("This is not a cursor:", found=cursor, allowed=allowed, example="647494a9b2000-2a")
    return Filter(f"({active}, s.no) < (?, ?)", (int(found[1], 16), int(found[2], 16)))


@transaction
def list_sessions(
    principal: Principal, *, wanted: ListFilter = NO_FILTER, after: str | None = None, limit: int = 50
) -> Statements[Page]:
    """Return a page of sessions, newest first. Every page costs the same."""
    limit = max(1, min(limit, LARGEST_PAGE))
    narrow = yield from _participant_filter(principal, wanted)
    active = "+s.last_active" if narrow else "s.last_active"
    behind = [] if after is None else [_behind(after, active)]
    where = Filter.all((session_filter(wanted, principal), *narrow, *behind))
    rows = yield (
        f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE {where.sql} ORDER BY {active} DESC, s.no DESC LIMIT ?",
        (*where.values, limit + 1),
    )
    page, more = rows[:limit], len(rows) > limit
    last_said = yield from _said([row[0] for row in page], "DESC")
    sessions = readable(session_of, page)
    previews = tuple(Preview(session=each, last_said=last_said.get(each.number, "")) for each in sessions)
    return Page(previews=previews, after=_cursor(page[-1]) if more else None)


@transaction
def recent_sessions(principal: Principal, limit: int) -> Statements[list[Preview]]:
    """Return the first page of conversations, each once, without those of jobs."""
    return list((yield from list_sessions(principal, wanted=CONVERSATIONS, limit=limit)).previews)


def _participant_filter(principal: Principal, wanted: ListFilter) -> Statements[list[Filter]]:
    """Return a condition on the participant if it leaves few sessions to sort."""
    names = (wanted.person,) if wanted.person else () if principal.sees_all else tuple(sorted(principal.identities))
    if not names or storable(names) != names:
        return []
    theirs = f"SELECT session_no FROM participants WHERE identity IN ({placeholders(names)})"
    rows = yield f"SELECT count(*) FROM ({theirs} LIMIT {SORTABLE_SESSIONS}) AS few", names
    return [Filter(f"s.no IN ({theirs})", names)] if rows[0][0] < SORTABLE_SESSIONS else []


@transaction
def first_said(numbers: Sequence[int]) -> Statements[dict[int, str]]:
    """Return the first words that a person said in each session."""
    return (yield from _said(numbers, "ASC")) if numbers else {}


def _said(numbers: Sequence[int], order: str) -> Statements[dict[int, str]]:
    rows = yield (
        f"SELECT s.no, (SELECT substr(e.body, 1, ?) FROM entries e WHERE e.id >= s.no * {SEQS}"
        f" AND e.id < (s.no + 1) * {SEQS} AND e.role = 'user' AND e.observed = 0 AND e.hidden_by IS NULL"
        f" ORDER BY e.id {order} LIMIT 1) FROM sessions s WHERE s.no IN ({placeholders(numbers)})",
        (_PREVIEW_BYTES, *numbers),
    )
    return {row[0]: _text_prefix(row[1]) for row in rows if row[1] is not None}


@transaction
def name_sessions(sessions: Iterable[Session]) -> Statements[dict[str, str]]:
    """Return a name for people, never an id, of each session by its id."""
    known = list(sessions)
    words = yield from first_said([each.number for each in known if not each.title])
    return {each.id: each.name_after(words.get(each.number, "")) for each in known}


def _text_prefix(body: bytes) -> str:
    """Decode the text of an entry from the first bytes of its body, which may end in the middle of the text.

    A body is an array of seq, role, time, text and more; neither role nor time contains a quote.
    """
    text = body.split(b',"', 3)[-1].decode(errors="ignore")
    for cut in range(_LONGEST_ESCAPE):
        try:
            return json.JSONDecoder().raw_decode('"' + text[: len(text) - cut] + '"')[0]
        except ValueError:
            continue
    return ""


_LONGEST_ESCAPE = 7


@transaction
def list_session_ids(
    principal: Principal, *, wanted: ListFilter = NO_FILTER, after: str = "", limit: int = 200
) -> Statements[list[str]]:
    """Return ids after `after` in their order, which is that of time."""
    where = session_filter(wanted, principal)
    rows = yield (
        f"SELECT s.id FROM sessions s WHERE s.id > ? AND {where.sql} ORDER BY s.id LIMIT ?",
        (after, *where.values, limit),
    )
    return [row[0] for row in rows]


# Statistics


@value
class Totals(Counters):
    sessions: int = 0
    open: int = 0

    @property
    def ended(self) -> int:
        return self.sessions - self.open

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in _SUMS})


@value
class Stats:
    total: Totals
    platforms: dict[str, Totals]
    days: dict[date, Totals]
    """Of sessions by the day when they started, with everything they have used since."""
    weeks: dict[date, Totals]
    """By the Monday."""
    database_bytes: int | None
    """Only for the operator."""


_SUMS = {
    "sessions": "count(*)",
    "open": "sum(CASE WHEN s.ended IS NULL THEN 1 ELSE 0 END)",
    "entries": "sum(s.next_seq - 1)",
    **{column: f"sum(s.{column})" for column in ("turns", *USAGE_COLUMNS)},
}
_SELECT_SUMS = ", ".join(_SUMS.values())


@transaction
def stats(principal: Principal, *, zone: tzinfo = UTC, since: datetime | None = None) -> Statements[Stats]:
    """Sum up the sessions that the principal may see, by day and week of the zone, from `since` on."""
    seen = visible_to(principal)
    platforms = yield (
        f"SELECT s.platform, {_SELECT_SUMS} FROM sessions s WHERE {seen.sql} GROUP BY s.platform ORDER BY s.platform",
        seen.values,
    )
    by_platform = {row[0]: _totals(row) for row in platforms}
    days = yield from _days(seen, zone, since)
    return Stats(
        total=sum(by_platform.values(), Totals()),
        platforms=by_platform,
        days=_sum_by_date(days),
        weeks=_sum_by_date((day - timedelta(days=day.weekday()), totals) for day, totals in days),
        database_bytes=(yield from _database_size()) if principal.sees_all else None,
    )


def _days(seen: Filter, zone: tzinfo, since: datetime | None) -> Statements[list[tuple[date, Totals]]]:
    rows = yield (
        f"SELECT s.started / {SLOT_MICROS}, {_SELECT_SUMS} FROM sessions s WHERE {seen.sql}"
        f"{'' if since is None else ' AND s.started >= ?'} GROUP BY 1 ORDER BY 1",
        (*seen.values, *(() if since is None else (micros(since),))),
    )
    return [(instant(row[0] * SLOT_MICROS).astimezone(zone).date(), _totals(row)) for row in rows]


def _totals(row: Row) -> Totals:
    return Totals(**dict(zip(_SUMS, map(int, row[1:]), strict=True)))  # PostgreSQL sums integers into decimals


def _sum_by_date(days: Iterable[tuple[date, Totals]]) -> dict[date, Totals]:
    sums: dict[date, Totals] = {}
    for first, totals in days:
        sums[first] = sums.get(first, Totals()) + totals
    return dict(sorted(sums.items()))


def _database_size() -> Statements[int]:
    rows = yield (
        "SELECT /*pg pg_database_size(current_database()) --*/ page_count * page_size"
        " FROM pragma_page_count(), pragma_page_size()",
        (),
    )
    return rows[0][0]
