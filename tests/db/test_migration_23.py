"""Schema 23: a grant can name a kind of chat, and a pairing request belongs to an account."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, transaction
from palaver.model.access import ChatKind, Grant
from palaver.model.source import MessageAddress, message_address
from palaver.model.turn import Inbound
from palaver.store import opening
from palaver.store.opening import open_store
from palaver.store.people import grants, pairing
from palaver.store.people.grants import GrantTable
from palaver.store.queue import inbox
from palaver.store.records import inbound_body, micros
from tests.store.world import NOON, dm, key_of

ASKED = dm("7", account="bot:1", message_id="1")


@transaction
def plant() -> Statements[None]:
    body = inbound_body(Inbound(source=ASKED, text="hi", at=NOON))
    yield _MESSAGE, (*message_address(ASKED), key_of(ASKED).text, micros(NOON), body)
    for identity, message in (("telegram:7", 1), ("telegram:8", 99)):
        yield _REQUEST, (identity, micros(NOON), micros(NOON) + 60, message)
    yield _GRANT, ()


_MESSAGE = (
    f"INSERT INTO inbox ({inbox.ADDRESS_COLUMNS}, key, state, received, body)"  # noqa: S608
    f" VALUES ({', '.join('?' * len(MessageAddress._fields))}, ?, 'refused', ?, ?)"
)
_REQUEST = (
    "INSERT INTO pairings (identity, platform, code_hash, requested, expires, inbox_no, kept)"
    " VALUES (?, 'telegram', 'x', ?, ?, ?, 1)"
)
_GRANT = (
    "INSERT INTO grants (effect, role, basis, platform, created, actor)"
    " VALUES ('allow', 'member', 'identity', 'irc', 1, '')"
)


@transaction
def rows(sql: str) -> Statements[list[Row]]:
    return (yield sql, ())


async def test_grants_hold_everywhere_and_requests_get_their_account(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:22])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        found = await store.read(rows("SELECT identity, account, first_requested = requested FROM pairings"))
        assert [(identity, account, bool(same)) for identity, account, same in found] == [
            ("telegram:7", "telegram:bot%3A1", True)
        ], "nobody can approve a request whose message is gone"
        assert [each.source for each in await store.read(pairing.list_pending(NOON))] == [ASKED]
        await store.transact(grants.add(Grant(platform="telegram", kind=ChatKind.GROUP), NOON, by="operator"))
        table = await store.read(grants.load_table(GrantTable()))
        assert [grant.kind for grant in table.grants.values()] == [None, ChatKind.GROUP]
