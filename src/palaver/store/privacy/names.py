"""The names of a person, and all that hangs on them: out of every table there is."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import Effect
from palaver.model.ids import decode_id, encode_id
from palaver.model.session import identity_of
from palaver.model.source import DM
from palaver.store.people import grants
from palaver.store.people.grants import ChangeKind
from palaver.store.people.usage import anonymize
from palaver.store.privacy.digests import Digests, text_columns
from palaver.store.privacy.erase_steps import FORGOTTEN, nameless, note
from palaver.store.privacy.footprint import Trace, marks
from palaver.store.records import from_json, micros, source_of, source_text

__all__ = [
    "WHO",
    "drop_grants",
    "drop_names",
    "named_keys",
    "naming",
]

WHO = (
    ("links", "one"),
    ("links", "other"),
    ("identities", "identity"),
    ("identities", "person"),
    ("identities", "born"),
    ("people", "id"),
    ("grants", "person"),
    ("web_keys", "identity"),
)
"""Who they are to the gateway: stays with their access."""
_ABOUT = (
    ("participants", "identity"),
    ("pairings", "identity"),
    ("offers", "identity"),
    ("offers", "guest"),
    ("wrong_codes", "identity"),
    ("schedules", "owner"),
)
"""Rows about nobody else."""
_OTHERWISE = frozenset({("used", "identity"), ("sessions", "owner"), ("erasures", "who"), *WHO})
_KEYS = (
    ("sessions", "key"),
    ("turns", "key"),
    ("operations", "key"),
    ("inbox", "key"),
    ("lines", "key"),
    ("routes", "key"),
    ("attached", "place"),
    ("attached", "key"),
)


@transaction
def named_keys() -> Statements[list[str]]:
    """Every conversation that any row names."""
    found: set[str] = set()
    for table, column in _KEYS:
        rows = yield f"SELECT DISTINCT {column} FROM {table}", ()
        found.update(row[0] for row in rows)
    return sorted(found)


@transaction
def naming(trace: Trace) -> Statements[list[tuple[str, str]]]:
    """The columns, whoever made them, in which one of their names stands."""
    names = trace.names
    found: list[tuple[str, str]] = []
    for table, column in (yield from text_columns()):
        rows = yield f"SELECT 1 FROM {table} WHERE {column} IN ({marks(names)}) LIMIT 1", names
        if rows:
            found.append((table, column))
    return found


@transaction
def drop_grants(trace: Trace, now: datetime, *, by: str, force: bool = False) -> Statements[int]:
    """What lets them in. A block stays: whoever is kept out does not get in by being forgotten.

    Raises LastOwner where nobody would own the gateway any more, unless that was heeded before.
    """
    rows: list[Row] = yield "SELECT no, effect, platform, user_id, chat_id, person FROM grants ORDER BY no", ()
    theirs = [
        number
        for number, effect, platform, user, chat, person in rows
        if effect == Effect.ALLOW.value
        and (
            f"{platform}:{user}" in trace.identities
            or person in trace.people
            or (platform, chat) in {(name, encode_id(place)) for name, place in trace.chats}
        )
    ]
    for number in theirs:
        yield from grants.remove(number, now, by=by, force=force)
    names = tuple(sorted(trace.identities))
    yield f"DELETE FROM web_keys WHERE identity IN ({marks(names)})", names
    return len(theirs)


@transaction
def drop_names(erasure: int, trace: Trace, digests: Digests, now: datetime, *, keeps_access: bool) -> Statements[int]:
    """Rows about them go; where a row is about others too, their name gives way to a word that says nothing."""
    names = trace.names
    yield from _drop_places(trace)
    yield from _drop_courses(trace, now)
    yield from _drop_log(trace)
    yield f"DELETE FROM firings WHERE schedule IN (SELECT id FROM schedules WHERE owner IN ({marks(names)}))", names
    there = yield from naming(trace)
    dropped = 0
    for table, column in there:
        if (table, column) in _ABOUT or ((table, column) in WHO and not keeps_access):
            rows = yield f"DELETE FROM {table} WHERE {column} IN ({marks(names)}) RETURNING 1", names
            dropped += len(rows)
        elif (table, column) not in _OTHERWISE:
            rows = yield (
                f"UPDATE {table} SET {column} = ? WHERE {column} IN ({marks(names)}) RETURNING 1",
                (
                    FORGOTTEN,
                    *names,
                ),
            )
            dropped += len(rows)
    yield f"UPDATE sessions SET owner = key WHERE owner IN ({marks(names)})", names
    yield from anonymize(trace.identities)
    if keeps_access:
        yield f"UPDATE identities SET name = NULL WHERE identity IN ({marks(names)})", names
        yield f"UPDATE people SET name = NULL WHERE id IN ({marks(names)})", names
        return dropped
    yield from note(erasure, "name", map(digests.name, names))
    for platform, id_ in _split(trace.identities):
        rows = yield "DELETE FROM aliases WHERE platform = ? AND ? IN (alias, canonical) RETURNING 1", (platform, id_)
        dropped += len(rows)
    if dropped:
        yield from grants.record(ChangeKind.REVOKED, now, FORGOTTEN, None)
    return dropped


def _split(identities: Iterable[str]) -> list[Sequence[str]]:
    return [identity.split(":", 1) for identity in sorted(identities)]


def _drop_places(trace: Trace) -> Statements[None]:
    """Homes, addresses and beginnings that are theirs, or that say whose they were."""
    rows: list[Row] = yield "SELECT profile, platform, address FROM homes", ()
    for profile, platform, address in rows:
        source = source_of(address)
        where = "WHERE profile = ? AND platform = ?"
        if source.chat_kind == DM and (source.platform, source.chat_id or "") in trace.chats:
            yield f"DELETE FROM homes {where}", (profile, platform)
        elif identity_of(source) in trace.identities:
            yield f"UPDATE homes SET address = ? {where}", (source_text(nameless(source)), profile, platform)
    theirs: list[tuple[Value, ...]] = [
        (encode_id(chat), len(platform) + 1, f"{platform}:") for platform, chat in sorted(trace.chats)
    ]
    yield from _drop_calls(trace)
    for column in ("gone_chats WHERE chat", "moved_chats WHERE chat", "moved_chats WHERE now_at"):
        yield f"DELETE FROM {column} = ? AND substr(account, 1, ?) = ?", theirs
    ids: tuple[Value, ...] = tuple(sorted(trace.identities))
    begun: list[Row] = yield (
        "SELECT s.no, s.origin FROM sessions s JOIN participants p ON p.session_no = s.no"
        f" WHERE p.identity IN ({marks(ids)})",
        ids,
    )
    for number, origin in begun:
        if trace.speaks(source_of(origin)):
            yield "UPDATE sessions SET origin = ? WHERE no = ?", (source_text(nameless(source_of(origin))), number)
    routes: list[Row] = yield "SELECT key, address FROM routes", ()
    for key, address in routes:
        source = source_of(address)
        if identity_of(source) in trace.identities:
            yield "UPDATE routes SET address = ? WHERE key = ?", (source_text(nameless(source)), key)


def _drop_calls(trace: Trace) -> Statements[None]:
    """How far an account has read may say who has called it somewhere and waits for an answer."""
    theirs: list[tuple[Value, ...]] = [
        (f'"{decode_id(name)}"', f'"{FORGOTTEN}"', platform) for platform, name in _split(trace.identities)
    ]
    yield "UPDATE accounts SET position = replace(position, ?, ?) WHERE platform = ?", theirs


def _drop_courses(trace: Trace, now: datetime) -> Statements[None]:
    """Moves from or to where they are, or in their name: nothing leads there any more, nor back from there."""
    rows: list[Row] = yield "SELECT no, details FROM operations WHERE kind IN ('attach', 'handoff', 'switch')", ()
    for number, details in rows:
        if _leads_to(trace, from_json(details)):
            yield (
                "UPDATE operations SET details = '{}', from_session = NULL, from_key = NULL, to_key = NULL,"
                " undone_at = coalesce(undone_at, ?) WHERE no = ?",
                (micros(now), number),
            )


def _leads_to(trace: Trace, course: Mapping[str, Any]) -> bool:
    ends = [source_of(course[name]) for name in ("from", "home") if name in course]
    told: Mapping[str, Any] = course.get("tell", {})
    chats = {(source.platform, source.chat or "") for source in ends} | {(told.get("platform"), told.get("chat_id"))}
    return any(map(trace.speaks, ends)) or not trace.chats.isdisjoint(chats)


def _drop_log(trace: Trace) -> Statements[None]:
    """That something was changed stays known, and when."""
    names: tuple[Value, ...] = trace.names
    yield f"UPDATE access_log SET details = '{{}}' WHERE identity IN ({marks(names)})", names
