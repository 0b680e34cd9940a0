"""Chats that got a new id: their conversations, routes, grants and sends follow."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import INBOX, OUTBOX, Lock, Notify, Row, Statements, Value, key_topic, transaction
from palaver.model.key import SessionKey
from palaver.model.source import decode_id, encode_id
from palaver.model.turn import account_text
from palaver.store.people.grants import ChangeKind, record
from palaver.store.queue.inbox import OPEN_TURN, move_waiting
from palaver.store.records import json_text, micros, source_of, source_text


@transaction
def rekey(old: SessionKey, new: SessionKey) -> Statements[None]:
    """Move a conversation to another key, with a running turn. If that key is in use, only waiting messages move."""
    for name in sorted({old.text, new.text}):
        yield Lock(name)
    taken = yield (
        "SELECT 1 FROM sessions WHERE key = ? UNION ALL SELECT 1 FROM routes WHERE key = ?"
        " UNION ALL SELECT 1 FROM attached_chats WHERE place = ? OR key = ?",
        (new.text,) * 4,
    )
    if not taken:
        yield from _move_rows(old, new)
    yield from move_waiting(old, old, new)
    yield (
        "UPDATE inbox SET place = (SELECT place FROM attached_chats WHERE place = ?)"
        " WHERE place = ? AND state = 'waiting'",
        (new.text, old.text),
    )
    yield Notify(INBOX)


def _move_rows(old: SessionKey, new: SessionKey) -> Statements[None]:
    for table in ("sessions", "routes", "operations", "attached_chats"):
        yield f"UPDATE {table} SET key = ? WHERE key = ?", (new.text, old.text)
    yield "UPDATE attached_chats SET place = ? WHERE place = ?", (new.text, old.text)
    turns = yield (
        f"UPDATE turns SET key = ? WHERE key = ? AND state IN {OPEN_TURN} RETURNING no",
        (new.text, old.text),
    )
    for (turn,) in turns:
        yield "UPDATE inbox SET key = ? WHERE turn_no = ?", (new.text, turn)
        yield Notify(key_topic(old))
    for (place,) in (yield "SELECT place FROM attached_chats WHERE key = ?", (new.text,)):
        yield from move_waiting(SessionKey.parse(place), old, new)


@transaction
def moved() -> Statements[Mapping[str, Mapping[str, str]]]:
    """Return, per account, the old ids of chats and the ids they have now."""
    found: dict[str, dict[str, str]] = {}
    for account, chat, new_chat in (yield "SELECT account, chat, new_chat FROM chat_moves", ()):
        found.setdefault(account, {})[decode_id(chat)] = decode_id(new_chat)
    return found


@transaction
def move(platform: str, account: str | None, old: str, new: str, now: datetime) -> Statements[bool]:
    """Record the new id of a chat and move everything to it; False if that was known.

    Received messages keep their old chat id for deduplication: message ids may start again in the new chat.
    """
    name, was = account_text(platform, account), encode_id(old)
    yield Lock(f"chats of {name}")
    new = yield from _last(name, old, new)
    is_now = encode_id(new)
    known = yield "SELECT 1 FROM chat_moves WHERE account = ? AND chat = ? AND new_chat = ?", (name, was, is_now)
    if old == new or known:
        return False
    yield "DELETE FROM chat_moves WHERE account = ? AND chat = ?", (name, is_now)
    yield "UPDATE chat_moves SET new_chat = ? WHERE account = ? AND new_chat = ?", (is_now, name, was)
    yield (
        "INSERT INTO chat_moves (account, chat, new_chat, since) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (account, chat) DO UPDATE SET new_chat = excluded.new_chat, since = excluded.since",
        (name, was, is_now, micros(now)),
    )
    for key in (yield from _keys(platform, account or "", old)):
        yield from _move_conversation(key, key._replace(chat=new), account)
    yield from _readdress(platform, account, old, new)
    yield from _redirect_sends(name, was, is_now)
    yield (
        "UPDATE grants SET chat_id = ? WHERE platform = ? AND chat_id = ? AND coalesce(account, ?) = ?",
        (is_now, platform, was, encode_id(account or ""), encode_id(account or "")),
    )
    # Makes running access decisions about this chat start again.
    yield from record(ChangeKind.MOVED, now, name, None)
    return True


def _last(account: str, old: str, new: str) -> Statements[str]:
    """Where the chat is that has moved on already; one that comes back to an id it had is there."""
    rows = yield "SELECT new_chat FROM chat_moves WHERE account = ? AND chat = ?", (account, encode_id(new))
    ahead = decode_id(rows[0][0]) if rows else old
    return new if ahead == old else ahead


def _keys(platform: str, account: str, chat: str) -> Statements[list[SessionKey]]:
    """Return the keys that contain this chat."""
    rows = yield (
        "SELECT key FROM sessions WHERE platform = ? UNION SELECT key FROM routes UNION SELECT key FROM ready_queue"
        " UNION SELECT key FROM operations UNION SELECT place FROM attached_chats",
        (platform,),
    )
    keys = (SessionKey.parse(row[0]) for row in rows)
    mine = (key for key in keys if (key.platform, key.account, key.chat) == (platform, account, chat))
    return sorted(mine)


def _move_conversation(old: SessionKey, new: SessionKey, account: str | None) -> Statements[None]:
    yield from rekey(old, new)
    begun: list[Row] = yield "SELECT no, origin FROM sessions WHERE key IN (?, ?)", (old.text, new.text)
    place = (old.platform, account, old.chat)
    yield "UPDATE sessions SET origin = ? WHERE no = ?", _with_chat(begun, place, new.chat)
    # Undoing an operation in another chat leads to the new key.
    for column in ("from_key", "to_key"):
        yield f"UPDATE operations SET {column} = ? WHERE {column} = ?", (new.text, old.text)


def _readdress(platform: str, account: str | None, old: str, new: str) -> Statements[None]:
    """Update the addresses that answers and output go to."""
    place = (platform, account, old)
    pattern = "%" + re.sub(r"[!%_]", r"!\g<0>", json_text(old)) + "%"
    routes: list[Row] = yield "SELECT key, address FROM routes WHERE address LIKE ? ESCAPE '!'", (pattern,)
    homes: list[Row] = yield "SELECT profile, platform, address FROM home_channels", ()
    yield "UPDATE routes SET address = ? WHERE key = ?", _with_chat(routes, place, new)
    yield "UPDATE home_channels SET address = ? WHERE profile = ? AND platform = ?", _with_chat(homes, place, new)


def _with_chat(rows: list[Row], place: tuple[str, str | None, str], new: str) -> list[tuple[Value, ...]]:
    """Return the rows whose last column is a source in that chat: the source in the new chat, then the other columns.

    It names no message to reply to, since that is not in the new chat.
    """
    found = [(source_of(row[-1]), row[:-1]) for row in rows]
    return [
        (source_text(replace(source, chat_id=new, message_id=None)), *names)
        for source, names in found
        if (source.platform, source.account, source.chat) == place
    ]


def _redirect_sends(account: str, old: str, new: str) -> Statements[None]:
    """Redirect sends, also claimed ones: if they fail under the old id, they are retried under the new one."""
    yield (
        "UPDATE outbox SET chat = ? WHERE account = ? AND chat = ? AND state IN ('due', 'claimed')",
        (new, account, old),
    )
    yield "DELETE FROM gone_chats WHERE account = ? AND chat = ?", (account, old)
    yield Notify(OUTBOX)
