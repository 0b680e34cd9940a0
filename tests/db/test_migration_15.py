"""Schema 15: what was packed into texts becomes columns."""

import json

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.status.invariants import violations
from palaver.store.store import Store

SESSION = "01k5x"
KEY = "agent:main:telegram:dm:7"
CAUSES = {
    "busy:7": ("busy", "7", "", 0),
    "parked:7": ("parked", "7", "", 0),
    "halt:7:2:0": ("halt", "7", "2", 0),
    "halt:7:2:11": ("halt", "7", "2", 11),
    "tool:7:cafe12:1": ("tool", "7", "cafe12", 1),
    "told:7:7168:webhook:a": ("told", "7", "7168:webhook:a", 0),
    "told::-4:webhook:a": ("told", "", "-4:webhook:a", 0),
    "command:3:0": ("command", "3", "", 0),
    "command:3:1": ("command", "3", "", 1),
    "command:3:file": ("command", "3", "file", 0),
    "command:3:other": ("command", "3", "other", 0),
    "revision:4:0": ("revision", "4", "", 0),
    "pair:5:0": ("pair", "5", "", 0),
    "paired:5:0": ("paired", "5", "", 0),
    f"welcome:{SESSION}:0": ("welcome", SESSION, "", 0),
    f"news:{SESSION}:7:turn.started:1.5:webhook:a": ("news", SESSION, "7:turn.started:1.5:webhook:a", 0),
    "handoff:9": ("handoff", "9", "", 0),
    "recalled:9": ("recalled", "9", "", 0),
    "handed-off:9": ("handed-off", "9", "", 0),
    "not-handed-off:9": ("not-handed-off", "9", "", 0),
    "taken-back:9": ("taken-back", "9", "", 0),
    "gone:-3": ("gone", "-3", "", 0),
    "unclear:2026-03-01T12": ("unclear", "2026-03-01T12", "", 0),
}


@transaction
def rows(sql: str, *values: Value) -> Statements[list[Row]]:
    return (yield sql, values)


@transaction
def plant() -> Statements[None]:
    """Rows as Palaver wrote them with schema 14."""
    origin = json.dumps({"platform": "telegram", "chat_kind": "dm", "chat_id": "7", "user_id": "7"})
    yield (
        (
            "INSERT INTO sessions (no, id, key, profile, platform, owner, origin, started, last_human, last_active)"
            " VALUES (1, ?, ?, 'main', 'telegram', 'telegram:7', ?, 1, 1, 1)"
        ),
        (SESSION, KEY, origin),
    )
    turns: list[tuple[Value, ...]] = [
        (1, "stopped by telegram:7 instead of an answer", None),
        (2, "over the cap of person_day: 12 turns used", None),
        (3, "the agent broke", "telegram:8 at 2026-03-01T12:00:00+00:00"),
    ]
    yield (
        (
            "INSERT INTO turns (no, key, session_no, state, worker, lease_until, started, ended, error, stop)"
            " VALUES (?, 'k', 1, 'failed', 'w', 1, 1, 2, ?, ?)"
        ),
        turns,
    )
    body = json.dumps({"source": json.loads(origin), "labels": {}, "text": "hi", "at": 1, "cause": "human"})
    inbox: list[tuple[Value, ...]] = [
        (1, "telegram::7:m1", body.encode()),
        (2, f"retry:{SESSION}:0", body.encode()),
        (3, "telegram::7:m3", b""),
        (4, "telegram::7:m4", b"not json"),
    ]
    yield (
        "INSERT INTO inbox (no, dedup, key, state, received, body) VALUES (?, ?, 'k', 'done', 1, ?)",
        inbox,
    )
    sends: list[tuple[Value, ...]] = [(-number, name, b"") for number, name in enumerate(CAUSES, 1)]
    yield (
        (
            "INSERT INTO outbox (id, dedup, account, chat, state, due, created, body)"
            " VALUES (?, ?, 'telegram:', '7', 'delivered', 1, 1, ?)"
        ),
        sends,
    )
    yield "INSERT INTO said_once (dedup) VALUES (?)", [("pair:5:0",), ("pair:5:1",), ("command:3:0",)]
    operations: list[tuple[int, str, dict[str, object]]] = [
        (1, "reset", {"before": "01k5w"}),
        (2, "switch", {"before": None, "key": KEY, "ended": None, "reason": None}),
        (3, "handoff", {"from": "{}", "home": "{}", "to": "agent:main:matrix:dm:9", "switch": 2}),
        (4, "compaction", {"summary": 4}),
        (5, "undo", {}),
    ]
    yield (
        "INSERT INTO operations (no, key, session_no, kind, at, by_whom, details) VALUES (?, 'k', 1, ?, 1, 'x', ?)",
        [(number, kind, json.dumps(details)) for number, kind, details in operations],
    )


async def migrated(url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:14])
        async with await open_store(url) as old:
            await old.transact(plant())
    return await open_store(url)


async def test_every_name_of_a_send_becomes_its_cause(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await migrated(store_url, monkeypatch) as store:
        found = await store.read(rows("SELECT cause_kind, cause_id, cause_detail, part FROM outbox ORDER BY id DESC"))
        assert [tuple(row) for row in found] == [*CAUSES.values()]
        wiped = await store.read(rows("SELECT cause_kind, cause_id FROM wiped_after_send ORDER BY 1"))
        assert [tuple(row) for row in wiped] == [("command", "3"), ("pair", "5")]


async def test_senders_stops_quotas_and_moves_become_columns(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await migrated(store_url, monkeypatch) as store:
        found = await store.read(rows("SELECT identity, retried_in FROM inbox ORDER BY no"))
        assert [tuple(row) for row in found] == [("telegram:7", 0), ("telegram:7", 1), (None, 0), (None, 0)]
        found = await store.read(rows("SELECT stopped_by, stopped_at, quota, error FROM turns ORDER BY no"))
        assert [tuple(row) for row in found] == [
            ("telegram:7", None, None, "stopped instead of an answer"),
            (None, None, "person_day", "over the cap of person_day: 12 turns used"),
            ("telegram:8", 1772366400000000, None, "the agent broke"),
        ]
        found = await store.read(rows("SELECT from_session, from_key, to_key, details FROM operations ORDER BY no"))
        assert [(*row[:3], json.loads(row[3])) for row in found] == [
            ("01k5w", None, None, {}),
            (None, KEY, None, {"ended": None, "reason": None}),
            (None, None, "agent:main:matrix:dm:9", {"from": "{}", "home": "{}", "switch": 2}),
            (None, None, None, {"summary": 4}),
            (None, None, None, {}),
        ]
        assert await store.read(rows("SELECT value FROM meta WHERE name = 'schema'")) == [
            (str(known_migrations()[-1].number),)
        ]
        # The operations of these notices were never made.
        wrong = map(str, await store.read(violations()))
        assert not [found for found in wrong if "outbox" in found and "notice about an operation" not in found]
