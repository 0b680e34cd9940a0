"""Which sessions a principal can read, and finding one among them."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from palaver.db.transaction import Lock, Statements, Value, transaction
from palaver.model.access import ChatKind, Grant
from palaver.model.errors import BadArgument, NotFound
from palaver.model.key import SessionKey
from palaver.model.session import (
    Principal,
    Session,
    alike_title,
    is_in_lineage,
    lineage,
    lineage_prefix,
    newest_of_lineage,
    unquoted,
)
from palaver.model.source import DM
from palaver.model.text import counted, quoted
from palaver.store.records import SESSION_COLUMNS, json_text, placeholders, read_one, readable, session_of


@transaction
def select_sessions(where: str, *values: Value) -> Statements[list[Session]]:
    """Return the sessions `s` that meet a condition, which may be followed by an order and a limit."""
    rows = yield f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE {where}", values
    return list(readable(session_of, rows))


@transaction
def get(number: int) -> Statements[Session]:
    found = yield from select_one("s.no = ?", number)
    if found is None:
        raise NotFound("session", str(number))
    return found


@transaction
def select_one(where: str, *values: Value) -> Statements[Session | None]:
    rows = yield f"SELECT {SESSION_COLUMNS} FROM sessions s WHERE {where}", values
    return read_one(session_of, rows, "session")


class Filter(NamedTuple):
    """A condition for a WHERE clause, and its values."""

    sql: str
    values: tuple[Value, ...] = ()

    @classmethod
    def all(cls, parts: Iterable["Filter"]) -> "Filter":
        found = list(parts)
        sql = " AND ".join(part.sql for part in found) or "1 = 1"
        return cls(sql, tuple(value for part in found for value in part.values))

    @classmethod
    def given(cls, conditions: Mapping[str, Value]) -> list["Filter"]:
        """Return the conditions whose value is not None. Each has one `?` for it."""
        return [cls(sql, (value,)) for sql, value in conditions.items() if value is not None]

    @classmethod
    def among(cls, column: str, names: Iterable[str]) -> "Filter":
        """Return the condition that a column holds one of these names."""
        wanted = tuple(sorted(names))
        return cls(f"{column} IN ({placeholders(wanted)})", wanted)


def visible_to(principal: Principal, session: str = "s") -> Filter:
    """Return the one rule of who can read a session, by the name it has in the statement."""
    if principal.sees_all:
        return Filter("1 = 1", ())
    if not principal.identities:
        return Filter("1 = 0", ())
    theirs = Filter.all([Filter.among("p.identity", principal.identities), *_within_reach(principal, session)])
    took_part = f"p.session_no = {session}.no AND p.left_at IS NULL AND {theirs.sql}"
    within = principal.within and principal.within.text
    return Filter.all(
        [
            *Filter.given({f"{session}.profile = ?": principal.profile, f"{session}.key = ?": within}),
            Filter(f"EXISTS (SELECT 1 FROM participants p WHERE {took_part})", theirs.values),
            *Filter.given({_EVERYONE_THERE.format(session): principal.among}),
        ]
    )


def _within_reach(principal: Principal, session: str) -> list[Filter]:
    """Return the condition on participants `p` that their account has access in the chat of the session now."""
    if not principal.placed:
        return []
    free = principal.identities - {identity for identity, _ in principal.placed}
    found = [Filter.among("p.identity", free)] if free else []
    for identity, reach in principal.placed:
        there = [Filter(f"{session}.platform <> ?", (reach.platform,))] if reach.anywhere else []
        ways = [
            Filter.all([_in_some(way.allows, session), *([_not(_in_some(way.blocks, session))] if way.blocks else [])])
            for way in reach.ways
        ]
        here = Filter.all([Filter(f"{session}.platform = ?", (reach.platform,)), _any(ways)])
        found.append(Filter.all([Filter("p.identity = ?", (identity,)), _any([*there, here])]))
    return [_any(found)]


def _any(parts: Sequence[Filter]) -> Filter:
    sql = " OR ".join(f"({part.sql})" for part in parts) or "1 = 0"
    return Filter(f"({sql})", tuple(value for part in parts for value in part.values))


def _not(part: Filter) -> Filter:
    return Filter(f"NOT {part.sql}", part.values)


def _in_some(grants: Iterable[Grant], session: str) -> Filter:
    """Return the condition that the chat of a session is one that some of the grants hold in: see `Grant.matches`."""
    places: dict[tuple[str | None, str | None, ChatKind | None], set[str | None]] = {}
    for grant in grants:
        places.setdefault((grant.account, grant.scope_id, grant.kind), set()).add(grant.chat_id)
    return _any([Filter.all(_in_place(session, *place, chats)) for place, chats in places.items()])


def _in_place(
    session: str, account: str | None, scope_id: str | None, kind: ChatKind | None, chats: Collection[str | None]
) -> Iterator[Filter]:
    if account is not None:
        yield _names(session, "account", account)
    if scope_id is not None:
        yield _names(session, "scope_id", scope_id)
    is_dm = _names(session, "chat_kind", DM)
    if kind is not None:
        yield is_dm if kind is ChatKind.DM else _not(is_dm)
    wanted = sorted(chat for chat in chats if chat is not None)
    if len(wanted) == len(chats):
        named = [_names_one_of(session, field, wanted) for field in ("chat_id", "parent_chat_id")]
        other = _names_one_of(session, "chat_id_alt", wanted)
        yield _any([*named, Filter.all([_not(_holds(session, '"chat_id":')), _not(is_dm), other])])


def _names(session: str, field: str, wanted: str) -> Filter:
    """Return the condition that a field of the origin has this value."""
    return _holds(session, _pair(field, wanted))


def _names_one_of(session: str, field: str, wanted: Sequence[str]) -> Filter:
    """Return the condition that a field of the origin has one of these values, looked up among all of them at once."""
    start = f'"{field}":"'
    origin = f"{session}.origin"
    for escaped, stand_in in _STAND_INS.items():
        origin = f"replace({origin}, '{escaped}', '{stand_in}')"
    rest = f"substr({origin}, instr({origin}, '{start}') + {len(start)})"
    there = f"split_part(split_part({origin}, '{start}', 2), '\"', 1)"
    here = f"substr({rest}, 1, instr({rest}, '\"') - 1)"
    values = [json_text(chat)[1:-1] for chat in wanted]
    for escaped, stand_in in _STAND_INS.items():
        values = [each.replace(escaped, stand_in) for each in values]
    return Filter.all([_holds(session, start), Filter.among(f"/*pg {there} --*/ {here}\n", values)])


_STAND_INS = {"\\\\": "¦", '\\"': "”"}
"""For a backslash and a quotation mark inside a value: then the next mark ends it. The JSON itself is ASCII."""


def _pair(field: str, wanted: str) -> str:
    """Return the JSON of a field. No other place in a JSON text looks so: quotation marks in values are escaped."""
    return json_text({field: wanted})[1:-1]


def _holds(session: str, text: str) -> Filter:
    """Return the condition that the origin holds this text."""
    origin = f"{session}.origin"
    return Filter(f"replace({origin}, ?, '') <> {origin}", (text,))


def messages_visible_to(principal: Principal) -> Filter:
    """Return the one rule of who can read an inbox row `i`: its sender, until its content is deleted."""
    if principal.sees_all:
        return Filter("1 = 1", ())
    return Filter.all([Filter("length(i.body) > 0"), Filter.among("i.identity", principal.identities)])


# Every person who takes part in the given session takes part in this one, under any identity.
_EVERYONE_THERE = (
    "NOT EXISTS (SELECT 1 FROM sessions a JOIN participants h ON h.session_no = a.no AND h.left_at IS NULL"
    " LEFT JOIN identities hi ON hi.identity = h.identity WHERE a.id = ? AND NOT EXISTS ("
    "SELECT 1 FROM participants o LEFT JOIN identities oi ON oi.identity = o.identity"
    " WHERE o.session_no = {}.no AND o.left_at IS NULL AND (o.identity = h.identity OR oi.person = hi.person)))"
)


@transaction
def get_visible(session: str, principal: Principal) -> Statements[Session]:
    seen = visible_to(principal)
    found = yield from select_one(f"s.id = ? AND {seen.sql}", session, *seen.values)
    if found is None:
        raise NotFound("session", session)
    return found


@transaction
def lock_session(wanted: Session, key: SessionKey, principal: Principal) -> Statements[Session]:
    """Lock the conversation of a session, and `key`; return the session, which may have moved meanwhile."""
    names = {key.text, wanted.key.text}
    for name in sorted(names):
        yield Lock(name)
    while (wanted := (yield from get_visible(wanted.id, principal))).key.text not in names:
        yield Lock(wanted.key.text)
        names.add(wanted.key.text)
    return wanted


@transaction
def hold(number: int) -> Statements[Session]:
    """Lock the conversation of a session and return the session: it may have moved before the lock was there."""
    found = yield from get(number)
    return (yield from lock_session(found, found.key, Principal.operator()))


_SHORTEST_PREFIX = 4
_MAX_NAMED = 5
COMPARED_TITLES = 5000
"""How many titles are compared with a text that is none of them, newest first."""


@transaction
def find(text: str, principal: Principal) -> Statements[Session]:
    """Find a session by id, by a unique prefix of the id, or by title: the newest of that lineage.

    Where no title is exactly so, its case, its accents, and quotation marks or brackets around it do not count.
    """
    text = text.strip()
    named = yield from _by_id_prefix(text, principal)
    if len(named) > 1:
        ids = ", ".join(each.id for each in named[:_MAX_NAMED])
        raise BadArgument("Several sessions begin with", found=text, allowed="a longer prefix", example=ids)
    if named:
        return named[0]
    texts = [text, *([inner.strip()] if (inner := unquoted(text)) else [])]
    found: list[Session] = []
    for look in (_by_title, _by_alike_title):
        for each in texts:
            found = found or (yield from look(each, principal))
    if not found:
        yield from _check_prefix_length(text, principal)
        raise NotFound("session", text)
    return (yield from _latest_version(found[-1], principal))


def _latest_version(session: Session, principal: Principal) -> Statements[Session]:
    """Return the version of a conversation that is open or was last used: a title means all of them."""
    seen = visible_to(principal)
    found = yield from select_sessions(
        f"(s.no = ? OR s.version_root = ?) AND {seen.sql}"
        " ORDER BY CASE WHEN s.ended IS NULL THEN 0 ELSE 1 END, s.last_active DESC, s.no DESC LIMIT 1",
        *(session.root, session.root, *seen.values),
    )
    return found[0] if found else session


@transaction
def find_exactly(text: str, principal: Principal) -> Statements[Session]:
    """Find the only session with this id, prefix or exact title: for what cannot be undone."""
    text = text.strip()
    related = yield from _of_lineage(text, principal)
    named = [*(yield from _by_id_prefix(text, principal)), *(each for each in related if each.title == text)]
    candidates = list({each.id: each for each in named or related}.values())
    matches = [session for session in candidates if session.id == text.lower()] or candidates
    if named and len(matches) == 1:
        return matches[0]
    if matches:
        raise _ambiguous("Several sessions match" if named else "No session is called exactly", text, matches)
    yield from _check_prefix_length(text, principal)
    raise NotFound("session", text)


def _ambiguous(problem: str, text: str, candidates: Sequence[Session]) -> BadArgument:
    names = [f"{each.id} {quoted(each.title)}" if each.title else each.id for each in candidates[-_MAX_NAMED:]]
    others = ", and others" if len(candidates) > len(names) else ""
    allowed = f"an id, or the whole title of one: {', '.join(names)}{others}"
    return BadArgument(problem, found=text, allowed=allowed, example=candidates[-1].id)


def _check_prefix_length(text: str, principal: Principal) -> Statements[None]:
    if not 0 < len(text) < _SHORTEST_PREFIX:
        return
    where = _prefix_filter(text, principal)
    rows = yield f"SELECT count(*) FROM sessions s WHERE {where.sql}", where.values
    if count := rows[0][0]:
        raise BadArgument(
            f"{counted(count, 'session begins', 'sessions begin')} with",
            found=text,
            allowed=f"a title, or at least {_SHORTEST_PREFIX} characters of an id",
            example="01kjmma2g0",
        )


def _prefix_filter(text: str, principal: Principal) -> Filter:
    seen, name = visible_to(principal), text.lower()
    return Filter(f"s.id >= ? AND s.id < ? AND {seen.sql}", (name, name + "\x7f", *seen.values))


def _by_id_prefix(text: str, principal: Principal) -> Statements[list[Session]]:
    if len(text) < _SHORTEST_PREFIX:
        return []
    where = _prefix_filter(text, principal)
    return (yield from select_sessions(f"{where.sql} ORDER BY s.id LIMIT {_MAX_NAMED + 1}", *where.values))


def _by_title(text: str, principal: Principal) -> Statements[list[Session]]:
    """Return the sessions with the newest title of this lineage, newest last."""
    related = yield from _of_lineage(text, principal)
    newest = newest_of_lineage(text, (each.title or "" for each in related))
    return [each for each in related if each.title == newest]


def _by_alike_title(text: str, principal: Principal) -> Statements[list[Session]]:
    """Return them where only case and accents differ."""
    titles = yield from list_titles(principal, limit=COMPARED_TITLES)
    meant = alike_title(text, [title for _, title in titles])
    return (yield from _by_title(meant, principal)) if meant else []


@transaction
def list_titles(principal: Principal, *given: Filter, limit: int) -> Statements[list[tuple[int, str]]]:
    """Return number and title of the sessions that the principal can see, newest first."""
    where = Filter.all([Filter("s.title IS NOT NULL"), visible_to(principal), *given])
    rows = yield (
        f"SELECT s.no, s.title FROM sessions s WHERE {where.sql} ORDER BY s.no DESC LIMIT ?",
        (*where.values, limit),
    )
    return [(row[0], row[1]) for row in rows]


def _of_lineage(text: str, principal: Principal) -> Statements[list[Session]]:
    """Return the sessions with exactly this title, or this title and a number, newest last."""
    seen = visible_to(principal)
    base, _ = lineage(text)
    prefix = lineage_prefix(base)
    # Without this SQLite scans everyone's sessions.
    mine = Filter.among("identity", () if principal.sees_all else principal.identities)
    theirs = f"s.no IN (SELECT session_no FROM participants WHERE {mine.sql}) AND " if mine.values else ""
    found = yield from select_sessions(
        f"{theirs}(s.title = ? OR s.title = ? OR substr(s.title, 1, ?) = ?)"
        f" AND s.version_root IS NULL AND {seen.sql} ORDER BY s.no",
        *(*mine.values, text, base, len(prefix), prefix, *seen.values),
    )
    return [each for each in found if each.title == text or is_in_lineage(each.title or "", base)]
