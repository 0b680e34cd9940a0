"""The verdict sees what is broken: without one of the engine's safeguards, some seed fails soon."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import count
from typing import Any, cast

import pytest

from palaver.db.transaction import Statements, Transaction, Value, transaction
from palaver.model.source import MessageAddress, Source
from palaver.model.turn import Delivery, OutboxState, Turn
from palaver.store import accounts
from palaver.store.queue import inbox, outbox, turns
from tests.simulation import disk, play

ENOUGH = 48


def complaints(first: int = 0) -> Iterator[str]:
    """Begin with a seed that has shown it before."""
    for seed in (first, *range(ENOUGH)):
        yield from play.perform(seed).problems


def test_without_a_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    def let_pass(*_: object) -> None: ...

    monkeypatch.setattr(turns, "_refuse_stale", let_pass)
    assert any(complaints(first=3))


def test_without_knowing_redeliveries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    address, numbers = inbox.message_address, count()

    def forget(source: Source) -> MessageAddress:
        found = address(source)
        return found if next(numbers) % 2 else found._replace(message_id=f"{found.message_id} again")

    monkeypatch.setattr(inbox, "message_address", forget)
    monkeypatch.setattr(play, "PATIENCE", 600.0)
    assert any("times" in problem or "rest" in problem for problem in complaints())


def test_without_the_mark_of_duplicates(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(_delivery: Delivery, **_: bool) -> tuple[OutboxState, int]:
        return OutboxState.DUE, 0

    monkeypatch.setattr(outbox, "resolve_unclear", forget)
    assert any("marked" in problem for problem in complaints(first=3))


def test_without_a_calm_start(monkeypatch: pytest.MonkeyPatch) -> None:
    @transaction
    def count_start(*_: object) -> Statements[int]:
        yield from ()
        return 99

    monkeypatch.setattr(accounts, "count_start", count_start)
    assert any("a calm start" in problem for problem in complaints(first=5))


def test_without_order_in_a_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = outbox.claim

    @transaction
    def out_of_order(*args: Any, **more: Any) -> Statements[list[Delivery]]:
        steps = iter(claim(*args, **more))
        sql, values = cast("tuple[str, tuple[Value, ...]]", next(steps))
        rows = yield sql.replace("(e.created, e.id) < (o.created, o.id)", "1 = 0"), values
        while True:
            try:
                rows = yield steps.send(rows)
            except StopIteration as finished:
                return finished.value

    monkeypatch.setattr(outbox, "claim", out_of_order)
    assert any("before" in problem for problem in complaints(first=2))


def test_without_a_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(*_: object) -> None: ...

    monkeypatch.setattr(disk.Disk, "keep", forget)
    monkeypatch.setattr(play, "PATIENCE", 600.0)
    assert any(complaints(first=2))


def test_without_waiting_for_the_end_of_a_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    reclaim = turns.reclaim

    def too_early(worker: str, now: datetime, *args: Any, **more: Any) -> Transaction[list[Turn]]:
        return reclaim(worker, now + timedelta(hours=1), *args, **more)

    monkeypatch.setattr(turns, "reclaim", too_early)
    assert any("too early" in problem for problem in complaints())
