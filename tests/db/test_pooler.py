"""Connection poolers: one that lends a server per session works, one that lends it per transaction is refused."""

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.model.errors import StoreError, StoreUnavailable
from palaver.store.opening import open_store
from tests.db.pooler import pooling
from tests.store.conftest import fresh_store


@transaction
def one() -> Statements[int]:
    ((number,),) = yield "SELECT 1", ()
    return number


async def test_a_pooler_in_transaction_mode_is_refused_with_a_sentence(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with pooling(url, per_transaction=True) as pooled:
        with pytest.raises(StoreError, match="pool_mode = session") as refused:
            await open_store(pooled, exclusive=True)
    assert not isinstance(refused.value, StoreUnavailable)


async def test_a_pooler_in_session_mode_works(postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with pooling(url, per_transaction=False) as pooled, await open_store(pooled, exclusive=True) as store:
        assert await store.transact(one()) == 1
