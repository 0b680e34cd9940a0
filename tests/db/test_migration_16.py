"""Schema 16: what identifies a message becomes columns."""

import json

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.source import GROUP, Source
from palaver.store import opening
from palaver.store.opening import open_store
from tests.store.world import World, dm

KEY = "agent:main:telegram:dm:7"
ROWS: list[tuple[str | None, str | None, int | None, dict[str, str] | None, str]] = [
    ("telegram:b:7:m1", None, None, {"chat_id": "7", "account": "b"}, KEY),
    ("telegram:b:7:m1:v2", "telegram:b:7:m1", None, {"chat_id": "7", "account": "b"}, KEY),
    ("retry:3:0", "telegram:b:7:m1", 3, {"chat_id": "7", "account": "b"}, KEY),
    ("retry:4:0", None, 4, {"chat_id": "7"}, KEY),
    ("telegram::9:m4", None, None, {"chat_id": "8"}, KEY),
    ("telegram::7:m5", None, None, {"chat_kind": GROUP, "chat_id_alt": "x", "user_id": "7", "scope_id": "s"}, KEY),
    ("telegram::7:m6", None, None, {"user_id": "7"}, KEY),
    ("telegram::7:m7", None, None, None, KEY),
    ("telegram::7:m8", None, None, None, "agent:main:telegram:dm::user:7"),
    (None, None, None, {"chat_id": "7"}, KEY),
]
"""As schema 15 had them: name, the name of what they change, session of a retry, source, key."""
COLUMNS = "platform, account, server, chat, alt_chat, chat_user, message_id, version, retried_in"
ADDRESSES: list[tuple[Value, ...]] = [
    ("telegram", "b", "", "7", "", "", "m1", "", 0),
    ("telegram", "b", "", "7", "", "", "m1", "v2", 0),
    ("telegram", "b", "", "7", "", "", "m1", "", 3),
    ("telegram", "", "", "7", "", "", None, "", 4),
    ("telegram", "", "", "9", "", "", "m4", "", 0),
    ("telegram", "", "s", "", "x", "", "m5", "", 0),
    ("telegram", "", "", "", "", "7", "m6", "", 0),
    ("telegram", "", "", "7", "", "", "m7", "", 0),
    ("telegram", "", "", "", "", "7", "m8", "", 0),
    ("telegram", "", "", "7", "", "", None, "", 0),
]


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


@transaction
def plant() -> Statements[None]:
    sources = [source and Source(platform="telegram", **source).to_json() for _, _, _, source, _ in ROWS]
    bodies = [
        json.dumps({"source": source, "labels": {}, "text": ""}).encode() if source else b"" for source in sources
    ]
    yield (
        "INSERT INTO inbox (dedup, revises, retried_in, key, state, received, body) VALUES (?, ?, ?, ?, 'done', 1, ?)",
        [(*row[:3], row[4], body) for row, body in zip(ROWS, bodies, strict=True)],
    )
    yield "INSERT INTO gone_chats (account, chat, since, error) VALUES ('telegram:', '7', 1, '')", ()


async def test_names_of_messages_become_addresses(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:15])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        found = await store.read(rows(f"SELECT {COLUMNS} FROM inbox ORDER BY no"))  # noqa: S608 - our columns
        assert [tuple(row) for row in found] == ADDRESSES
        assert await store.read(rows("SELECT account, server, chat FROM gone_chats")) == [("telegram:", "", "7")]
        world = World(store)
        assert await world.say("again", dm("7"), id_="m7") is None
        assert (await world.say("new", dm("7"), id_="m9") or 0) > len(ROWS)
