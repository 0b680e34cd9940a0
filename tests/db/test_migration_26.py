"""Schema 26: alternate ids get a name space of their own; a block stays a block, a redelivery a redelivery."""

import json

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, Value, transaction
from palaver.model.access import Effect, Verdict, decide_access
from palaver.model.source import Source, Trust
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.people.grants import GrantTable, load_table
from tests.store.world import World

ANN = Source(platform="irc", user_id="guest42", user_id_alt="ann")
BOB = Source(platform="irc", user_id="guest43", user_id_alt="bob")
NICK = Source(platform="irc", user_id="bob")
"""A nick that is also the name of another's account."""


_INSERT = "INSERT INTO inbox (message_id, chat_user, platform, key, state, received, identity, body)"


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


@transaction
def plant() -> Statements[None]:
    """As it was when one name stood for a user id and for an alternate id."""
    for number, source in enumerate((ANN, BOB, NICK), 1):
        name = source.user_id_alt or source.user_id or ""
        body = json.dumps({"source": source.to_json(), "labels": {}, "text": ""}).encode()
        values: tuple[Value, ...] = (f"m{number}", name, f"irc:{name}", body)
        yield f"{_INSERT} VALUES (?, ?, 'irc', 'agent:main:irc:dm', 'done', 1, ?, ?)", values
    granted = "INSERT INTO grants (effect, role, basis, platform, user_id, created, actor) VALUES"
    yield f"{granted} ('block', 'member', 'identity', 'irc', 'ann', 1, 'o')", ()
    yield f"{granted} ('allow', 'member', 'identity', 'irc', 'bob', 1, 'o')", ()
    yield "INSERT INTO participants (identity, session_no) VALUES ('irc:ann', 1), ('irc:bob', 1)", ()


async def test_alternate_ids_are_distinguished_from_user_ids(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:25])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        senders = await store.read(rows("SELECT identity, chat_user FROM inbox ORDER BY no"))
        assert [tuple(row) for row in senders] == [
            ("irc:alt%3Aann", "alt%3Aann"),
            ("irc:alt%3Abob", "alt%3Abob"),
            ("irc:bob", "bob"),
        ]
        took_part = await store.read(rows("SELECT identity FROM participants ORDER BY identity"))
        assert [row[0] for row in took_part] == ["irc:alt%3Aann", "irc:bob"], "of two people nobody knows which it was"
        grants = (await store.read(load_table(GrantTable()))).grants.values()
        assert decide_access(ANN, Trust(), grants).grant == next(
            each for each in grants if each.user_id == "alt:ann" and each.effect is Effect.BLOCK
        )
        assert [decide_access(each, Trust(), grants).verdict for each in (BOB, NICK)] == [Verdict.ALLOW] * 2
        world = World(store)
        for number, source in enumerate((ANN, BOB, NICK), 1):
            assert await world.say("again", source, id_=f"m{number}") is None
