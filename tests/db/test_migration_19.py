"""Schema 19: existing usage stays as it was recorded, with nothing cached and nothing of unknown price."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, transaction
from palaver.store import opening
from palaver.store.opening import open_store


@transaction
def plant() -> Statements[None]:
    columns = "INSERT INTO usage (identity, slot, model, turns, input_tokens, output_tokens, cost_micros)"
    yield f"{columns} VALUES (?, ?, ?, ?, ?, ?, ?)", ("telegram:7", 1, "m", 1, 10, 5, 3)


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def test_usage_is_kept(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:18])
        async with await open_store(store_url) as store:
            await store.transact(plant())
    async with await open_store(store_url) as store:
        kept = "SELECT input_tokens, output_tokens, cached_tokens, cost_micros, unpriced_tokens FROM usage"
        assert await store.read(rows(kept)) == [(10, 5, 0, 3, 0)]
        assert await store.read(rows("SELECT cached_tokens, unpriced_tokens, prompt_tokens FROM turns")) == []
