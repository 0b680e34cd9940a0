"""Schema 29: a chat moves on one server."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Statements, transaction
from palaver.store import opening
from palaver.store.conversations import chat_migration
from palaver.store.opening import open_store
from tests.store.world import NOON


@transaction
def plant() -> Statements[None]:
    yield "INSERT INTO chat_moves (account, chat, new_chat, since) VALUES ('telegram:bot', '-1', '-1001', 1)", ()


async def test_moves_without_a_server_stay(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:28])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        assert await store.transact(chat_migration.move("telegram", "bot", "-1", "-2", NOON, server="s"))
        assert await store.read(chat_migration.moved()) == {
            ("telegram:bot", None): {"-1": "-1001"},
            ("telegram:bot", "s"): {"-1": "-2"},
        }
