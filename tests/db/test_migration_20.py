"""Schema 20: a home channel has a name."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole, Grant
from palaver.model.label import Label
from palaver.store import accounts, opening
from palaver.store.accounts import NamedHome
from palaver.store.opening import open_store
from palaver.store.people import access_rules
from palaver.store.records import source_text
from tests.store.world import NOON, dm

OPEN = access_rules.load((Grant(role=AccessRole.OWNER),))


@transaction
def plant() -> Statements[None]:
    yield (
        "INSERT INTO home_channels (profile, platform, address, set_at, actor) VALUES ('main', 'telegram', ?, 1, '')",
        (source_text(dm("7")),),
    )


async def test_a_home_channel_keeps_its_place_and_gets_a_name(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(opening, "known_migrations", lambda: known_migrations()[:19])
        async with await open_store(store_url) as old:
            await old.transact(plant())
    async with await open_store(store_url) as store:
        assert await store.read(accounts.list_named_homes("main", OPEN)) == [NamedHome(dm("7"), None)]
        await store.transact(accounts.set_home("main", dm("7"), NOON, by="ann", name=Label("Ann")))
        assert await store.read(accounts.list_named_homes("main", OPEN)) == [NamedHome(dm("7"), Label("Ann"))]
