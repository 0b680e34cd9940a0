"""Erase the names of a person from every table."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from palaver.db.transaction import Row, Statements, transaction
from palaver.model.access import Effect
from palaver.model.source import DM, Source, encode_id, source_of_identity
from palaver.store.conversations.visibility import Filter
from palaver.store.damage.text import text_columns
from palaver.store.people import grants, memory
from palaver.store.people.grants import ChangeKind
from palaver.store.people.usage import reassign
from palaver.store.privacy.digests import Digests
from palaver.store.privacy.erase_steps import BLANK_OPERATION, FORGOTTEN, record_digests, without_person
from palaver.store.privacy.footprint import Footprint, chat_filters
from palaver.store.records import UNREADABLE, from_json, micros, placeholders, source_of, source_text

IDENTITY_COLUMNS = (
    ("links", "one"),
    ("links", "other"),
    ("identities", "identity"),
    ("identities", "person"),
    ("identities", "original_person"),
    ("people", "id"),
    ("grants", "person"),
    ("api_tokens", "identity"),
)
"""Columns that identify them. They stay if their access is kept."""
_DELETED_ROWS = (
    ("participants", "identity"),
    ("pairings", "identity"),
    ("link_offers", "identity"),
    ("link_offers", "guest"),
    ("wrong_codes", "identity"),
    ("result_requests", "identity"),
    ("session_marks", "identity"),
    ("memory_notes", "identity"),
    ("feedback", "identity"),
    ("schedules", "owner"),
)
"""Rows about them alone."""
_HANDLED_ELSEWHERE = frozenset(
    {("usage", "identity"), ("sessions", "owner"), ("erasures", "subject"), *IDENTITY_COLUMNS}
)


@transaction
def columns_naming(footprint: Footprint) -> Statements[list[tuple[str, str]]]:
    """Return every text column that contains one of their names."""
    names = footprint.names
    found: list[tuple[str, str]] = []
    for table, column in (yield from text_columns()):
        rows = yield f"SELECT 1 FROM {table} WHERE {column} IN ({placeholders(names)}) LIMIT 1", names
        if rows:
            found.append((table, column))
    return found


@transaction
def drop_grants(footprint: Footprint, now: datetime, *, by: str, force: bool = False) -> Statements[int]:
    """Remove grants that allow them. A block stays, so that erasure lets nobody in.

    Raises LastOwner if the gateway would have no owner, unless `force`.
    """
    rows: list[Row] = yield "SELECT no, effect, platform, user_id, chat_id, person FROM grants ORDER BY no", ()
    theirs = [
        number
        for number, effect, platform, user, chat, person in rows
        if effect == Effect.ALLOW.value
        and (
            f"{platform}:{user}" in footprint.identities
            or person in footprint.people
            or (platform, chat) in {(name, encode_id(place)) for name, place in footprint.chats}
        )
    ]
    for number in theirs:
        yield from grants.remove(number, now, by=by, force=force)
    is_theirs = footprint.identifies("identity")
    yield f"DELETE FROM api_tokens WHERE {is_theirs.sql}", is_theirs.values
    return len(theirs)


@transaction
def erase_names(
    erasure: int, footprint: Footprint, digests: Digests, now: datetime, *, keeps_access: bool
) -> Statements[int]:
    """Delete rows about them alone; in other rows replace their name."""
    names = footprint.names
    yield from _erase_chats(footprint)
    yield from _erase_addresses(footprint)
    yield from _erase_from_accounts(footprint)
    yield from _erase_moves(footprint, now)
    yield from _erase_access_log(footprint)
    yield from _erase_jobs(footprint)
    columns = yield from columns_naming(footprint)
    dropped = 0
    for table, column in columns:
        if (table, column) in _DELETED_ROWS or ((table, column) in IDENTITY_COLUMNS and not keeps_access):
            rows = yield f"DELETE FROM {table} WHERE {column} IN ({placeholders(names)}) RETURNING 1", names
            dropped += len(rows)
        elif (table, column) not in _HANDLED_ELSEWHERE:
            rows = yield (
                f"UPDATE {table} SET {column} = ? WHERE {column} IN ({placeholders(names)}) RETURNING 1",
                (FORGOTTEN, *names),
            )
            dropped += len(rows)
    yield from memory.drop_orphans()
    yield f"UPDATE sessions SET owner = key WHERE owner IN ({placeholders(names)})", names
    yield from reassign(footprint.identities, "")
    if keeps_access:
        yield f"UPDATE identities SET name = NULL WHERE identity IN ({placeholders(names)})", names
        yield f"UPDATE people SET name = NULL WHERE id IN ({placeholders(names)})", names
        return dropped
    yield from record_digests(erasure, "name", map(digests.name, names))
    for platform, id_ in (identity.split(":", 1) for identity in sorted(footprint.identities)):
        rows = yield "DELETE FROM aliases WHERE platform = ? AND ? IN (alias, canonical) RETURNING 1", (platform, id_)
        dropped += len(rows)
    if dropped:
        yield from grants.record(ChangeKind.REVOKED, now, FORGOTTEN, None)
    return dropped


def _erase_chats(footprint: Footprint) -> Statements[None]:
    for table, column in (("gone_chats", "chat"), ("chat_moves", "chat"), ("chat_moves", "new_chat")):
        for about in chat_filters(footprint, column):
            yield f"DELETE FROM {table} WHERE {about.sql}", about.values


def _erase_addresses(footprint: Footprint) -> Statements[None]:
    """Erase them from home channels, routes and origins of sessions."""
    took_part = footprint.identifies("identity")
    theirs = Filter(f"no IN (SELECT session_no FROM participants WHERE {took_part.sql})", took_part.values)
    anything = Filter("1 = 1")
    for table, column, where in (
        ("home_channels", "address", anything),
        ("routes", "address", anything),
        ("sessions", "origin", theirs),
    ):
        rows: list[Row] = yield f"SELECT DISTINCT {column} FROM {table} WHERE {where.sql}", where.values
        for (text,) in rows:
            source = _source_or_nobody(text, footprint)
            is_chat = source.chat_kind == DM and (source.platform, source.chat_id) in footprint.chats
            if table == "home_channels" and is_chat:
                yield "DELETE FROM home_channels WHERE address = ?", (text,)
            elif footprint.is_sender(source):
                anonymous = source_text(without_person(source))
                sql = f"UPDATE {table} SET {column} = ? WHERE {column} = ? AND {where.sql}"
                yield sql, (anonymous, text, *where.values)


def _source_or_nobody(text: str, footprint: Footprint) -> Source:
    """Take an address that cannot be read for theirs if it contains one of their ids."""
    try:
        return source_of(text)
    except UNREADABLE:
        theirs = sorted(footprint.identities) if footprint.occurs_in(text) else []
        return source_of_identity(theirs[0]) if theirs else Source(platform=FORGOTTEN)


def _erase_jobs(footprint: Footprint) -> Statements[None]:
    """Delete the firings of their jobs, and their chats from the targets of others, who learn it when the job fires."""
    theirs = footprint.identifies("owner")
    yield f"DELETE FROM firings WHERE schedule_no IN (SELECT no FROM schedules WHERE {theirs.sql})", theirs.values
    rows: list[Row] = yield f"SELECT no, target FROM schedules WHERE NOT {theirs.sql}", theirs.values
    for number, target in rows:
        words = [FORGOTTEN if _leads_to(footprint, word) else word for word in target.split(",")]
        if FORGOTTEN in words:
            yield "UPDATE schedules SET target = ? WHERE no = ?", (",".join(words), number)


def _leads_to(footprint: Footprint, target: str) -> bool:
    where, _, place = target.partition(":")
    platform = where.partition("@")[0]
    return any(name == platform and encode_id(chat) == place.partition(":")[0] for name, chat in footprint.chats)


def _erase_from_accounts(footprint: Footprint) -> Statements[None]:
    """Erase them from texts of adapters: a read position names who waits for an answer, an error may quote anybody."""
    rows: list[Row] = yield "SELECT platform, account, position, last_error FROM accounts", ()
    for platform, account, position, error in rows:
        ids = "|".join(map(re.escape, sorted(footprint.ids({platform}))))
        if ids and position:
            yield (
                "UPDATE accounts SET position = ? WHERE platform = ? AND account = ? AND position = ?",
                (re.sub(f'"({ids})"', f'"{FORGOTTEN}"', position), platform, account, position),
            )
        if ids and error and re.search(ids, error):
            yield (
                "UPDATE accounts SET last_error = ? WHERE platform = ? AND account = ?",
                (FORGOTTEN, platform, account),
            )


def _erase_moves(footprint: Footprint, now: datetime) -> Statements[None]:
    """Clear attach, handoff and switch operations that lead from or to their chats."""
    rows: list[Row] = yield "SELECT no, details FROM operations WHERE kind IN ('attach', 'handoff', 'switch')", ()
    involved = [number for number, details in rows if _may_involve(footprint, details)]
    yield f"UPDATE operations SET {BLANK_OPERATION} WHERE no = ?", [(micros(now), number) for number in involved]


def _may_involve(footprint: Footprint, details: str) -> bool:
    """What cannot be read may name them."""
    try:
        return _involves(footprint, from_json(details))
    except UNREADABLE:
        return True


def _involves(footprint: Footprint, course: Mapping[str, Any]) -> bool:
    ends = [source_of(course[name]) for name in ("from", "home") if name in course]
    notice: Mapping[str, Any] = course.get("tell", {})
    chats = {(source.platform, source.chat or "") for source in ends}
    chats.add((notice.get("platform", ""), notice.get("chat_id", "")))
    return any(map(footprint.is_sender, ends)) or not footprint.chats.isdisjoint(chats)


def _erase_access_log(footprint: Footprint) -> Statements[None]:
    """Keep that something changed and when."""
    rows: list[Row] = yield "SELECT no, identity, details FROM access_log WHERE details <> '{}'", ()
    theirs = [number for number, identity, details in rows if _names_them(footprint, identity, details)]
    yield "UPDATE access_log SET details = '{}' WHERE no = ?", [(number,) for number in theirs]


def _names_them(footprint: Footprint, identity: str | None, text: str) -> bool:
    try:
        details: Mapping[str, str] = from_json(text)
    except UNREADABLE:
        return True
    chat = (details.get("platform", ""), details.get("chat_id", ""))
    return chat in footprint.chats or not {identity, *details.values()}.isdisjoint(footprint.names)
