"""Schema 43: a send that was only claimed is told from one whose request can have left."""

import pytest

from palaver.db.schema import known_migrations
from palaver.db.transaction import Row, Statements, transaction
from palaver.store import opening
from palaver.store.opening import open_store


@transaction
def plant() -> Statements[None]:
    """Rows as Palaver wrote them before: claimed was also what was being sent."""
    for number, state, marked in ((1, "claimed", 0), (2, "claimed", 1), (3, "due", 0), (4, "unclear", 1)):
        worker = "w1" if state == "claimed" else None
        yield (
            (
                "INSERT INTO outbox (id, account, chat, state, due, worker, claim_until, may_be_duplicate, created,"
                " body) VALUES (?, 'telegram:', '7', ?, 1, ?, ?, ?, 1, ?)"
            ),
            (-number, state, worker, worker and 2, marked, b"{}"),
        )


@transaction
def sends() -> Statements[list[Row]]:
    return (yield "SELECT state, times_unclear FROM outbox ORDER BY id DESC", ())


async def test_what_may_have_been_sent_stays_unclear(store_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as earlier:
        steps = tuple(step for step in known_migrations() if step.number < 43)
        earlier.setattr(opening, "known_migrations", lambda: steps)
        async with await open_store(store_url, exclusive=True) as store:
            await store.transact(plant())
    async with await open_store(store_url, exclusive=True) as store:
        assert [tuple(row) for row in await store.read(sends())] == [
            *(("sending", 0), ("sending", 1), ("due", 0), ("unclear", 1))
        ]
