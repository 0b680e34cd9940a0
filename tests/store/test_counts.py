"""Rows are counted by table and state."""

from palaver.model.turn import OutboxState
from palaver.store.status.counts import count_rows
from palaver.store.store import Store
from tests.store.test_forgetting import live


async def test_rows_are_counted_by_table_and_state(store: Store) -> None:
    await live(store)
    counts = await store.read(count_rows())
    outbox = counts["outbox"]
    assert isinstance(outbox, dict)
    assert outbox[OutboxState.DUE.value] > 0
    assert outbox["other"] == 0
    assert isinstance(counts["sessions"], int)
