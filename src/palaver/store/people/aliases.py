"""Aliases: several forms of one id, and moving what is stored under one form to another."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import PEOPLE, Lock, Notify, Statements, transaction
from palaver.model.key import SessionKey
from palaver.model.source import (
    DM,
    MessageAddress,
    account_text,
    canonical_id,
    decode_id,
    encode_id,
    identity_text,
    parse_participant,
    participant_text,
)
from palaver.store.conversations import chat_migration
from palaver.store.conversations.chat_migration import rekey
from palaver.store.conversations.titles import free_title
from palaver.store.people.grants import ChangeKind, record
from palaver.store.people.links import merge
from palaver.store.people.usage import reassign
from palaver.store.records import inbound_of, instant, source_of, source_text


@transaction
def load_for(platform: str) -> Statements[Mapping[str, str]]:
    rows = yield "SELECT alias, canonical FROM aliases WHERE platform = ?", (platform,)
    return {decode_id(row[0]): decode_id(row[1]) for row in rows}


@transaction
def load_all() -> Statements[Mapping[str, Mapping[str, str]]]:
    rows = yield "SELECT platform, alias, canonical FROM aliases", ()
    found: dict[str, dict[str, str]] = {}
    for platform, alias, known_as in rows:
        found.setdefault(platform, {})[decode_id(alias)] = decode_id(known_as)
    return found


@transaction
def learn(platform: str, alias: str, known_as: str, now: datetime) -> Statements[bool]:
    yield Lock(f"aliases of {platform}")
    alias, known_as = participant_text(alias) or "", participant_text(known_as) or ""
    before = yield from load_for(platform)
    if before.get(alias) == known_as:
        return False
    yield (
        "INSERT INTO aliases (platform, alias, canonical) VALUES (?, ?, ?)"
        " ON CONFLICT (platform, alias) DO UPDATE SET canonical = excluded.canonical",
        (platform, encode_id(alias), encode_id(known_as)),
    )
    new = canonical_id(alias, {**before, alias: known_as})
    for old in sorted({canonical_id(alias, before), canonical_id(known_as, before)} - {new}):
        yield from _rename_identity(platform, old, new, now)
    yield Notify(PEOPLE)
    return True


@transaction
def move_person(
    platform: str, account: str | None, old: str, new: str, at: datetime, now: datetime
) -> Statements[bool]:
    """Move somebody and their direct chat to a new id; False if the old one has been somebody else's since `at`.

    Unlike an alias, the old id then belongs to nobody: whoever gets it is a stranger.
    """
    yield Lock(f"aliases of {platform}")
    was, is_now = participant_text(old) or "", participant_text(new) or ""
    last = yield (
        "SELECT body, received FROM inbox WHERE identity = ? ORDER BY no DESC LIMIT 1",
        (identity_text(platform, was),),
    )
    is_elses = any((inbound_of(body)[0].at if body else instant(received)) > at for body, received in last)
    if was == is_now or is_elses:
        return False
    stable = canonical_id(was, (yield from load_for(platform)))
    if stable == was:
        yield from learn(platform, old, new, now)
    else:
        yield from learn(platform, new, parse_participant(stable)[0] or "", now)
    yield "DELETE FROM aliases WHERE platform = ? AND alias = ?", (platform, encode_id(was))
    yield (
        "UPDATE aliases SET canonical = ? WHERE platform = ? AND canonical = ?",
        (encode_id(is_now), platform, encode_id(was)),
    )
    yield from chat_migration.move(platform, account, old, new, now)
    yield (
        "DELETE FROM chat_moves WHERE account = ? AND chat = ?",
        (account_text(platform, account), encode_id(old)),
    )
    yield (
        "UPDATE grants SET user_id = ? WHERE platform = ? AND user_id = ?",
        (encode_id(new), platform, encode_id(old)),
    )
    yield from _move_jobs(platform, old, new)
    yield Notify(PEOPLE)
    return True


def _move_jobs(platform: str, old: str, new: str) -> Statements[None]:
    """Have jobs run for the new id, and send to it."""
    for number, targets, origin in (yield "SELECT no, target, origin FROM schedules", ()):
        source = source_of(origin)
        ids = {name: new for name in ("user_id", "chat_id") if getattr(source, name) == old}
        theirs = replace(source, **ids) if source.platform == platform else source
        words = [f"{platform}:{new}" if word == f"{platform}:{old}" else word for word in targets.split(",")]
        if (theirs, ",".join(words)) != (source, targets):
            yield (
                "UPDATE schedules SET target = ?, origin = ? WHERE no = ?",
                (",".join(words), source_text(theirs), number),
            )


def _rename_identity(platform: str, old: str, new: str, now: datetime) -> Statements[None]:
    """Move the conversations and the person stored under one id to another."""
    was, is_now = identity_text(platform, old), identity_text(platform, new)
    rows = yield (
        "SELECT s.key FROM participants p JOIN sessions s ON s.no = p.session_no WHERE p.identity IN (?, ?)"
        " UNION SELECT coalesce(place, key) FROM inbox WHERE identity = ?"
        " UNION SELECT key FROM ready_queue ORDER BY key",
        (was, is_now, was),
    )
    for key in map(SessionKey.parse, (row[0] for row in rows)):
        renamed = _renamed(key, platform, old, new)
        if renamed != key:
            yield from rekey(key, renamed)
        if renamed.chat != key.chat:
            yield from _rename_chat(key, renamed)
    yield from _rename_sender(was, is_now, encode_id(old), encode_id(new))
    yield (
        "INSERT INTO participants (identity, session_no, left_at) SELECT ?, session_no, left_at FROM participants"
        " WHERE identity = ? ON CONFLICT (identity, session_no) DO UPDATE SET left_at = NULL"
        " WHERE excluded.left_at IS NULL",
        (is_now, was),
    )
    for table, column in (("attached_chats", "actor"), ("schedules", "owner"), ("api_tokens", "identity")):
        yield f"UPDATE {table} SET {column} = ? WHERE {column} = ?", (is_now, was)
    took_part = yield "DELETE FROM participants WHERE identity = ? RETURNING session_no", (was,)
    if (yield from merge(was, is_now)):
        yield from record(ChangeKind.LINKED, now, platform, is_now, {"with": was})
    if took_part:  # Most aliases are of people who never wrote.
        for table in ("turns", "memory_notes"):
            yield f"UPDATE {table} SET identity = ? WHERE identity = ?", (is_now, was)
        yield from reassign([was], is_now)
        yield from _move_feedback(was, is_now)
        yield from _move_sessions([row[0] for row in took_part], was, is_now)


def _move_feedback(was: str, is_now: str) -> Statements[None]:
    """Keep the later of two ratings of one answer."""
    yield (
        "INSERT INTO feedback (turn_no, identity, rating, at) SELECT turn_no, ?, rating, at FROM feedback"
        " WHERE identity = ? ON CONFLICT (turn_no, identity) DO UPDATE SET rating = excluded.rating, at = excluded.at"
        " WHERE feedback.at < excluded.at",
        (is_now, was),
    )
    yield "DELETE FROM feedback WHERE identity = ?", (was,)


def _move_sessions(sessions: Iterable[int], was: str, is_now: str) -> Statements[None]:
    """Give sessions to another owner, and a number to titles that both have."""
    for number in sorted(sessions):
        for (title,) in (yield "SELECT title FROM sessions WHERE no = ? AND owner = ?", (number, was)):
            free = title and (yield from free_title(is_now, title))
            yield "UPDATE sessions SET owner = ?, title = ? WHERE no = ?", (is_now, free, number)


def _renamed(key: SessionKey, platform: str, old: str, new: str) -> SessionKey:
    """Return the key with the new id. A direct chat is a person; ids of groups are not rewritten."""
    if key.platform != platform:
        return key
    (was, _), (is_now, _) = parse_participant(old), parse_participant(new)
    chat = is_now or "" if key.kind == DM and key.chat == was else key.chat
    return key._replace(chat=chat, user=new if key.user == old else key.user)


def _rename_chat(old: SessionKey, new: SessionKey) -> Statements[None]:
    """Recognise a message delivered under one id when it comes again under the other."""
    yield (
        "UPDATE inbox SET chat = ? WHERE chat = ? AND server = ? AND platform = ? AND account = ?"
        f" AND {_is_free('chat')}",
        (*map(encode_id, (new.chat, old.chat, old.scope, old.platform, old.account, new.chat)),),
    )


def _rename_sender(was: str, is_now: str, old: str, new: str) -> Statements[None]:
    """Do the same in direct chats without an id, which the sender stands for."""
    yield (
        f"UPDATE inbox SET chat_user = ? WHERE identity = ? AND chat_user = ? AND {_is_free('chat_user')}",
        (new, was, old, new),
    )
    yield "UPDATE inbox SET identity = ? WHERE identity = ?", (is_now, was)


def _is_free(column: str) -> str:
    """Return the condition that no other message has the address that a row gets with a new value of the column."""
    others = " AND ".join(f"i.{name} = inbox.{name}" for name in _UNIQUE if name != column)
    return f"NOT EXISTS (SELECT 1 FROM inbox i WHERE i.{column} = ? AND {others})"


_UNIQUE = (*MessageAddress._fields, "version", "retried_in")
