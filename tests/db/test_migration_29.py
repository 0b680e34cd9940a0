"""Schema 29: a chat moves on one server, and an attached chat says who attached it."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Statements, transaction
from palaver.store import opening
from palaver.store.conversations import chat_migration
from palaver.store.opening import open_store
from tests.store.test_attach import rows
from tests.store.world import NOON


@transaction
def plant() -> Statements[None]:
    yield "INSERT INTO chat_moves (account, chat, new_chat, since) VALUES ('telegram:bot', '-1', '-1001', 1)", ()
    yield (
        "INSERT INTO operations (no, key, session_no, kind, at, actor) VALUES (7, 'a', 1, 'attach', 1, 'telegram:7')",
        (),
    )
    yield "INSERT INTO attached_chats (place, key, since, operation) VALUES ('a', 'b', 1, 7), ('c', 'b', 1, 8)", ()


@transaction
def clear() -> Statements[None]:
    yield "DELETE FROM operations", ()
    yield "DELETE FROM attached_chats", ()


async def test_moves_without_a_server_stay_and_attached_chats_get_their_actor(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:28])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        found = await store.read(rows("SELECT place, actor FROM attached_chats ORDER BY place"))
        assert found == [("a", "telegram:7"), ("c", "")]
        await store.transact(clear())
        assert await store.transact(chat_migration.move("telegram", "bot", "-1", "-2", NOON, server="s"))
        assert await store.read(chat_migration.moved()) == {
            ("telegram:bot", None): {"-1": "-1001"},
            ("telegram:bot", "s"): {"-1": "-2"},
        }
