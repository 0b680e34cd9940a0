"""Chats that got a new id: their conversations, routes, grants and sends follow."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from palaver.db.transaction import INBOX, OUTBOX, Lock, Notify, Row, Statements, Value, key_topic, transaction
from palaver.model.key import SessionKey
from palaver.model.source import Source, account_text, decode_id, encode_id
from palaver.store.people.grants import ChangeKind, record
from palaver.store.queue.inbox import move_waiting
from palaver.store.queue.outbox import OPEN_SEND
from palaver.store.records import OPEN_TURN, json_text, key_in, micros, readable, source_in, source_text


@transaction
def rekey(old: SessionKey, new: SessionKey) -> Statements[None]:
    """Move a conversation to another key, with a running turn.

    If that key is in use, only waiting messages and the notes of the chat move.
    """
    for name in sorted({old.text, new.text}):
        yield Lock(name)
    taken = yield (
        "SELECT 1 FROM sessions WHERE key = ? UNION ALL SELECT 1 FROM routes WHERE key = ?"
        " UNION ALL SELECT 1 FROM attached_chats WHERE place = ? OR key = ?",
        (new.text,) * 4,
    )
    if not taken:
        yield from _move_rows(old, new)
    yield "UPDATE memory_notes SET place = ? WHERE place = ?", (new.text, old.text)
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
    turns = yield f"UPDATE turns SET key = ? WHERE key = ? AND state IN {OPEN_TURN} RETURNING no", (new.text, old.text)
    for (turn,) in turns:
        yield "UPDATE inbox SET key = ? WHERE turn_no = ?", (new.text, turn)
        yield Notify(key_topic(old))
    for (place,) in (yield "SELECT place FROM attached_chats WHERE key = ?", (new.text,)):
        yield from move_waiting(SessionKey.parse(place), old, new)


@transaction
def moved() -> Statements[Mapping[tuple[str, str | None], Mapping[str, str]]]:
    """Return, per account and server, the old ids of chats and the ids they have now."""
    found: dict[tuple[str, str | None], dict[str, str]] = {}
    for account, server, chat, new_chat in (yield "SELECT account, server, chat, new_chat FROM chat_moves", ()):
        found.setdefault((account, decode_id(server) or None), {})[decode_id(chat)] = decode_id(new_chat)
    return found


class _Server(NamedTuple):
    """Where chat ids are unique: one server of a platform, or the whole platform, as one of our accounts sees it."""

    platform: str
    account: str | None
    id: str | None

    @property
    def columns(self) -> tuple[str, str]:
        return account_text(self.platform, self.account), encode_id(self.id or "")

    def holds(self, source: Source, chat: str) -> bool:
        return (source.platform, source.account, source.scope_id, source.chat) == (*self, chat)


@transaction
def move(
    platform: str, account: str | None, old: str, new: str, now: datetime, *, server: str | None = None
) -> Statements[bool]:
    """Record the new id of a chat and move everything to it; False if that was known.

    Received messages keep their old chat id for deduplication: message ids may start again in the new chat.
    """
    there, was = _Server(platform, account, server), encode_id(old)
    yield Lock(f"chats of {account_text(platform, account)}")
    new = yield from _last(there, old, new)
    is_now = encode_id(new)
    known = yield (
        f"SELECT 1 FROM chat_moves WHERE {_THERE} AND chat = ? AND new_chat = ?",
        (*there.columns, was, is_now),
    )
    if old == new or known:
        return False
    yield f"DELETE FROM chat_moves WHERE {_THERE} AND chat = ?", (*there.columns, is_now)
    yield f"UPDATE chat_moves SET new_chat = ? WHERE {_THERE} AND new_chat = ?", (is_now, *there.columns, was)
    yield (
        "INSERT INTO chat_moves (account, server, chat, new_chat, since) VALUES (?, ?, ?, ?, ?)"
        " ON CONFLICT (account, chat, server) DO UPDATE SET new_chat = excluded.new_chat, since = excluded.since",
        (*there.columns, was, is_now, micros(now)),
    )
    for key in (yield from _keys(there, old)):
        yield from _move_conversation(key, key._replace(chat=new), there)
    yield from _readdress(there, old, new)
    yield from _redirect_sends(there, was, is_now)
    yield from _move_grants(there, was, is_now)
    # Makes running access decisions about this chat start again.
    yield from record(ChangeKind.MOVED, now, account_text(platform, account), None)
    return True


_THERE = "account = ? AND server = ?"


def _last(there: _Server, old: str, new: str) -> Statements[str]:
    """Where the chat is that has moved on already; one that comes back to an id it had is there."""
    rows = yield f"SELECT new_chat FROM chat_moves WHERE {_THERE} AND chat = ?", (*there.columns, encode_id(new))
    ahead = decode_id(rows[0][0]) if rows else old
    return new if ahead == old else ahead


def _keys(there: _Server, chat: str) -> Statements[list[SessionKey]]:
    """Return the keys that contain this chat."""
    rows = yield (
        "SELECT key FROM sessions WHERE platform = ? UNION SELECT key FROM routes UNION SELECT key FROM ready_queue"
        " UNION SELECT key FROM operations UNION SELECT place FROM attached_chats"
        " UNION SELECT place FROM memory_notes WHERE place IS NOT NULL",
        (there.platform,),
    )
    place = (there.platform, there.account or "", there.id or "", chat)
    keys = readable(key_in, rows)
    return sorted(key for key in keys if (key.platform, key.account, key.scope, key.chat) == place)


def _move_conversation(old: SessionKey, new: SessionKey, there: _Server) -> Statements[None]:
    yield from rekey(old, new)
    begun: list[Row] = yield "SELECT no, origin FROM sessions WHERE key IN (?, ?)", (old.text, new.text)
    yield "UPDATE sessions SET origin = ? WHERE no = ?", _with_chat(begun, there, old.chat, new.chat)
    # Undoing an operation in another chat leads to the new key.
    for column in ("from_key", "to_key"):
        yield f"UPDATE operations SET {column} = ? WHERE {column} = ?", (new.text, old.text)


def _readdress(there: _Server, old: str, new: str) -> Statements[None]:
    """Update the addresses that answers and output go to."""
    pattern = "%" + re.sub(r"[!%_]", r"!\g<0>", json_text(old)) + "%"
    routes: list[Row] = yield "SELECT key, address FROM routes WHERE address LIKE ? ESCAPE '!'", (pattern,)
    homes: list[Row] = yield "SELECT profile, platform, address FROM home_channels", ()
    yield "UPDATE routes SET address = ? WHERE key = ?", _with_chat(routes, there, old, new)
    moved_homes = _with_chat(homes, there, old, new)
    yield "UPDATE home_channels SET address = ? WHERE profile = ? AND platform = ?", moved_homes


def _with_chat(rows: list[Row], there: _Server, old: str, new: str) -> list[tuple[Value, ...]]:
    """Return the rows whose last column is a source in that chat: the source in the new chat, then the other columns.

    It names no message to reply to, since that is not in the new chat.
    """
    found = [(source, row[:-1]) for row in rows for source in readable(source_in, [row])]
    return [
        (source_text(replace(source, chat_id=new, message_id=None)), *names)
        for source, names in found
        if there.holds(source, old)
    ]


def _redirect_sends(there: _Server, old: str, new: str) -> Statements[None]:
    """Redirect sends, also claimed ones: if they fail under the old id, they are retried under the new one."""
    yield (
        f"UPDATE outbox SET chat = ? WHERE {_THERE} AND chat = ? AND state IN {OPEN_SEND}",
        (new, *there.columns, old),
    )
    yield f"DELETE FROM gone_chats WHERE {_THERE} AND chat = ?", (*there.columns, old)
    yield Notify(OUTBOX)


def _move_grants(there: _Server, old: str, new: str) -> Statements[None]:
    """Move the grants of the chat. One for this chat id on every server stays, and also holds for the new id here."""
    account, server = encode_id(there.account or ""), encode_id(there.id or "")
    theirs = "platform = ? AND chat_id = ? AND coalesce(account, ?) = ?", (there.platform, old, account, account)
    yield f"UPDATE grants SET chat_id = ? WHERE {theirs[0]} AND coalesce(scope_id, '') = ?", (new, *theirs[1], server)
    if server:
        yield (
            f"INSERT INTO grants (scope_id, chat_id, {_GRANTED}) SELECT ?, ?, {_GRANTED} FROM grants"
            f" WHERE {theirs[0]} AND scope_id IS NULL",
            (server, new, *theirs[1]),
        )


_GRANTED = "effect, role, basis, platform, kind, account, user_id, person, created, actor"
