"""What a gateway sends through a connector: the connector answers as soon as it knows what became of it."""

import asyncio
from pathlib import Path
from typing import TypeVar, cast

import pytest

from palaver.db.transaction import Transaction
from palaver.engine.delivery.sender import EndedSends
from palaver.model.turn import Delivery, Outbound, OutboxState
from palaver.testkit.platform import BOT
from tests.engine.gateway import until
from tests.relay.world import connector

T = TypeVar("T")


async def test_a_send_that_ends_before_anybody_waits_for_it_is_answered_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connector(tmp_path) as there:
        store, real = there.here.store, there.here.store.transact
        chat = there.world.dm(there.world.person("alice"))

        async def is_sent() -> bool:
            return await there.here.rows("SELECT state FROM outbox") == [("delivered",)]

        async def answer_late(work: Transaction[T]) -> T:
            result = await real(work)
            if isinstance(result, Delivery) and result.state is OutboxState.DUE:
                await until(is_sent)
            return cast("T", result)

        monkeypatch.setattr(store, "transact", answer_late)
        link = there.here.engine.relay.link("acme", "fake", BOT)
        assert link
        async with asyncio.timeout(10):
            await link.send(Outbound(platform="fake", account=BOT, chat_id=chat.id, text="hello"), "k1")
        assert [message.text for message in chat.shown] == ["hello"]


async def test_a_send_that_another_worker_ends_is_answered_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def notify(_: EndedSends, number: int) -> None:
        """Notify nobody: another worker sent the message."""

    monkeypatch.setattr(EndedSends, "notify", notify)
    async with connector(tmp_path) as there:
        chat = there.world.dm(there.world.person("alice"))
        link = there.here.engine.relay.link("acme", "fake", BOT)
        assert link
        await link.send(Outbound(platform="fake", account=BOT, chat_id=chat.id, text="hello"), "k1")
        assert [message.text for message in chat.shown] == ["hello"]
