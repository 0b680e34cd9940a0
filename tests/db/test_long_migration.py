"""A migration can take longer than any other transaction may."""

import pytest

from palaver.db import postgres_pool
from palaver.db.schema import Migration, known_migrations
from palaver.store import opening
from palaver.store.opening import open_store

_SLOW = "/*pg SELECT pg_sleep(1.1) */"


async def test_time_limits_do_not_hold_for_migrations(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await open_store(store_url):
        pass
    known = known_migrations()
    longest = Migration(known[-1].number + 1, "9999_slow", f"{_SLOW};CREATE TABLE slow (id @int) @strict;")
    monkeypatch.setattr(opening, "known_migrations", lambda: [*known, longest])
    monkeypatch.setattr(postgres_pool, "SESSION_TIMEOUTS", {"transaction_timeout": "1s", "statement_timeout": "1s"})
    monkeypatch.setattr(postgres_pool, "_COMMAND_TIMEOUT_SECONDS", 1.0)
    async with await open_store(store_url):
        pass
