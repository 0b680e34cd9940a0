"""Some schemas only add a column: rows of the version before stay as they are, with nothing in it."""

from typing import NamedTuple

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, transaction
from palaver.store import opening
from palaver.store.opening import open_store

_TURN = "(key, session_no, state, worker, lease_until, started, pending_call) VALUES"


class Added(NamedTuple):
    version: int
    row: str
    """What the version before stores."""
    shown: str
    kept: Row


ADDED = (
    Added(
        17,
        "INSERT INTO mentions (inbox_no, session_no) VALUES (7, 1)",
        "SELECT inbox_no, session_no, position FROM mentions",
        (7, 1, None),
    ),
    Added(
        18,
        f"INSERT INTO turns {_TURN} ('a', 1, 'failed', 'w', 1, 1, NULL)",
        "SELECT key, state, failure FROM turns",
        ("a", "failed", None),
    ),
    Added(
        21,
        "INSERT INTO sessions (id, key, profile, platform, owner, origin, started, last_human, last_active, ended,"
        " end_reason, finalised) VALUES ('s', 'k', 'main', 'fake', 'a', '{}', 1, 1, 1, 2, 'idle', 1)",
        "SELECT id, end_reason, finalised, finalised_by FROM sessions",
        ("s", "idle", 1, None),
    ),
    Added(
        22,
        f"INSERT INTO turns {_TURN} ('b', 1, 'parked', 'w', 1, 1, 'c')",
        "SELECT key, state, pending_call, withdrawn_by FROM turns WHERE key = 'b'",
        ("b", "parked", "c", None),
    ),
    Added(
        25,
        f"INSERT INTO turns {_TURN} ('d', 1, 'failed', 'w', 1, 1, NULL)",
        "SELECT key, state, retry_at FROM turns WHERE key = 'd'",
        ("d", "failed", None),
    ),
    Added(
        28,
        "INSERT INTO api_tokens (digest, kind, name, rights, created, last_used)"
        " VALUES ('d', 'token', 'backup', 'read', 1, 1)",
        "SELECT name, identity, profile FROM api_tokens",
        ("backup", None, None),
    ),
    Added(
        32,
        "INSERT INTO sessions (id, key, profile, platform, owner, origin, started, last_human, last_active)"
        " VALUES ('t', 'l', 'main', 'fake', 'a', '{}', 1, 1, 1)",
        "SELECT id, schedule_no FROM sessions WHERE id = 't'",
        ("t", None),
    ),
    Added(
        38,
        f"INSERT INTO turns {_TURN} ('e', 1, 'parked', 'w', 1, 1, 'c')",
        "SELECT t.key, i.answers FROM turns t LEFT JOIN inbox i ON i.turn_no = t.no WHERE t.key = 'e'",
        ("e", None),
    ),
)


@transaction
def run(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def run_at(version: int, store_url: str, patch: pytest.MonkeyPatch, sql: str) -> list[Row]:
    patch.setattr(opening, "known_migrations", lambda: known_migrations()[:version])
    async with await open_store(store_url) as store:
        return [tuple(row) for row in await store.transact(run(sql))]


async def test_rows_of_the_version_before_stay(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for added in ADDED:
        await run_at(added.version - 1, store_url, monkeypatch, added.row)
        assert await run_at(added.version, store_url, monkeypatch, added.shown) == [added.kept]
