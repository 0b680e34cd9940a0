"""What broke is reported in the log with what caused it, and without a word of anybody."""

import sqlite3

import pytest

from palaver.db.transaction import Statements, transaction
from palaver.engine.retry import describe_error
from palaver.model.errors import StoreError
from palaver.store.opening import open_store


@transaction
def _broken() -> Statements[None]:
    yield "SELECT 1 FROM nowhere WHERE name = ?", ("the words of somebody",)


@pytest.mark.parametrize("writes", [False, True])
async def test_a_refusal_of_the_store_is_reported_with_its_cause(store_url: str, *, writes: bool) -> None:
    async with await open_store(store_url) as store:
        with pytest.raises(StoreError) as refused:
            await (store.transact if writes else store.read)(_broken())
    told = describe_error(refused.value)
    assert told.startswith("StoreError at ")
    assert ", from OperationalError SQLITE_ERROR" in told or ", from UndefinedTableError 42P01 at " in told
    assert "somebody" not in told


def test_what_has_no_name_of_its_own_is_reported_by_its_class() -> None:
    assert describe_error(ValueError("the words of somebody")) == "ValueError"
    assert describe_error(sqlite3.OperationalError("the words of somebody")) == "OperationalError"
