"""Erase the names of a person from every table."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import Effect
from palaver.model.source import DM, decode_id, encode_id, identity_of
from palaver.store.people import grants
from palaver.store.people.grants import ChangeKind
from palaver.store.people.usage import anonymize
from palaver.store.privacy.digests import Digests, text_columns
from palaver.store.privacy.erase_steps import FORGOTTEN, record_digests, without_person
from palaver.store.privacy.footprint import Footprint
from palaver.store.records import from_json, micros, placeholders, source_of, source_text

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
    ("schedules", "owner"),
)
"""Rows about them alone."""
_HANDLED_ELSEWHERE = frozenset(
    {("usage", "identity"), ("sessions", "owner"), ("erasures", "subject"), *IDENTITY_COLUMNS}
)
_KEY_COLUMNS = (
    ("sessions", "key"),
    ("turns", "key"),
    ("operations", "key"),
    ("inbox", "key"),
    ("ready_queue", "key"),
    ("routes", "key"),
    ("attached_chats", "place"),
    ("attached_chats", "key"),
)


@transaction
def all_conversation_keys() -> Statements[list[str]]:
    """Return every conversation key in any table."""
    found: set[str] = set()
    for table, column in _KEY_COLUMNS:
        rows = yield f"SELECT DISTINCT {column} FROM {table}", ()
        found.update(row[0] for row in rows)
    return sorted(found)


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
    names = tuple(sorted(footprint.identities))
    yield f"DELETE FROM api_tokens WHERE identity IN ({placeholders(names)})", names
    return len(theirs)


@transaction
def erase_names(
    erasure: int, footprint: Footprint, digests: Digests, now: datetime, *, keeps_access: bool
) -> Statements[int]:
    """Delete rows about them alone; in other rows replace their name."""
    names = footprint.names
    yield from _erase_addresses(footprint)
    yield from _erase_moves(footprint, now)
    yield from _erase_access_log(footprint)
    yield (
        f"DELETE FROM firings WHERE schedule IN (SELECT id FROM schedules WHERE owner IN ({placeholders(names)}))",
        names,
    )
    columns = yield from columns_naming(footprint)
    dropped = 0
    for table, column in columns:
        if (table, column) in _DELETED_ROWS or ((table, column) in IDENTITY_COLUMNS and not keeps_access):
            rows = yield f"DELETE FROM {table} WHERE {column} IN ({placeholders(names)}) RETURNING 1", names
            dropped += len(rows)
        elif (table, column) not in _HANDLED_ELSEWHERE:
            rows = yield (
                f"UPDATE {table} SET {column} = ? WHERE {column} IN ({placeholders(names)}) RETURNING 1",
                (
                    FORGOTTEN,
                    *names,
                ),
            )
            dropped += len(rows)
    yield f"UPDATE sessions SET owner = key WHERE owner IN ({placeholders(names)})", names
    yield from anonymize(footprint.identities)
    if keeps_access:
        yield f"UPDATE identities SET name = NULL WHERE identity IN ({placeholders(names)})", names
        yield f"UPDATE people SET name = NULL WHERE id IN ({placeholders(names)})", names
        return dropped
    yield from record_digests(erasure, "name", map(digests.name, names))
    for platform, id_ in _platform_and_ids(footprint.identities):
        rows = yield "DELETE FROM aliases WHERE platform = ? AND ? IN (alias, canonical) RETURNING 1", (platform, id_)
        dropped += len(rows)
    if dropped:
        yield from grants.record(ChangeKind.REVOKED, now, FORGOTTEN, None)
    return dropped


def _platform_and_ids(identities: Iterable[str]) -> list[Sequence[str]]:
    return [identity.split(":", 1) for identity in sorted(identities)]


def _erase_addresses(footprint: Footprint) -> Statements[None]:
    """Erase them from home channels, routes and origins of sessions."""
    rows: list[Row] = yield "SELECT profile, platform, address FROM home_channels", ()
    for profile, platform, address in rows:
        source = source_of(address)
        where = "WHERE profile = ? AND platform = ?"
        if source.chat_kind == DM and (source.platform, source.chat_id or "") in footprint.chats:
            yield f"DELETE FROM home_channels {where}", (profile, platform)
        elif identity_of(source) in footprint.identities:
            yield (
                f"UPDATE home_channels SET address = ? {where}",
                (source_text(without_person(source)), profile, platform),
            )
    theirs: list[tuple[Value, ...]] = [
        (encode_id(chat), len(platform) + 1, f"{platform}:") for platform, chat in sorted(footprint.chats)
    ]
    yield from _erase_positions(footprint)
    for column in ("gone_chats WHERE chat", "chat_moves WHERE chat", "chat_moves WHERE new_chat"):
        yield f"DELETE FROM {column} = ? AND substr(account, 1, ?) = ?", theirs
    ids: tuple[Value, ...] = tuple(sorted(footprint.identities))
    started: list[Row] = yield (
        "SELECT s.no, s.origin FROM sessions s JOIN participants p ON p.session_no = s.no"
        f" WHERE p.identity IN ({placeholders(ids)})",
        ids,
    )
    for number, origin in started:
        if footprint.is_sender(source_of(origin)):
            yield (
                "UPDATE sessions SET origin = ? WHERE no = ?",
                (source_text(without_person(source_of(origin))), number),
            )
    routes: list[Row] = yield "SELECT key, address FROM routes", ()
    for key, address in routes:
        source = source_of(address)
        if identity_of(source) in footprint.identities:
            yield "UPDATE routes SET address = ? WHERE key = ?", (source_text(without_person(source)), key)


def _erase_positions(footprint: Footprint) -> Statements[None]:
    """The read position of an account may name people who wait for an answer."""
    theirs: list[tuple[Value, ...]] = [
        (f'"{decode_id(name)}"', f'"{FORGOTTEN}"', platform)
        for platform, name in _platform_and_ids(footprint.identities)
    ]
    yield "UPDATE accounts SET position = replace(position, ?, ?) WHERE platform = ?", theirs


def _erase_moves(footprint: Footprint, now: datetime) -> Statements[None]:
    """Clear attach, handoff and switch operations that lead from or to their chats."""
    rows: list[Row] = yield "SELECT no, details FROM operations WHERE kind IN ('attach', 'handoff', 'switch')", ()
    for number, details in rows:
        if _involves(footprint, from_json(details)):
            yield (
                "UPDATE operations SET details = '{}', from_session = NULL, from_key = NULL, to_key = NULL,"
                " undone_at = coalesce(undone_at, ?) WHERE no = ?",
                (micros(now), number),
            )


def _involves(footprint: Footprint, course: Mapping[str, Any]) -> bool:
    ends = [source_of(course[name]) for name in ("from", "home") if name in course]
    notice: Mapping[str, Any] = course.get("tell", {})
    chats = {(source.platform, source.chat or "") for source in ends} | {
        (notice.get("platform"), notice.get("chat_id"))
    }
    return any(map(footprint.is_sender, ends)) or not footprint.chats.isdisjoint(chats)


def _erase_access_log(footprint: Footprint) -> Statements[None]:
    """Keep that something changed and when."""
    names: tuple[Value, ...] = footprint.names
    yield f"UPDATE access_log SET details = '{{}}' WHERE identity IN ({placeholders(names)})", names
