"""Hands: how one message that is owed is given to its adapter."""

import asyncio
import logging
from dataclasses import replace

from palaver.domain.attachment import Attachment
from palaver.domain.turn import Delivery, Outbound
from palaver.domain.value import value
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.engine.waiting import contained
from palaver.ports.ability import able
from palaver.ports.adapter import (
    Adapter,
    ChatMoved,
    Checking,
    Editing,
    Files,
    PlatformDown,
    SendRefused,
    TargetGone,
    Threading,
)

__all__ = ["Hands"]

log = logging.getLogger(__name__)


@value(kw_only=False)
class Hands:
    on: Ground

    def is_safe(self, outbound: Outbound) -> bool:
        """Whether sending it twice shows it once."""
        adapter = self.on.replies.adapter_for(outbound.platform, outbound.account)
        is_edit = outbound.edits is not None and able(adapter, Editing)
        return is_edit or (adapter is not None and adapter.limits.repeats_safely)

    async def send(self, adapter: Adapter, delivery: Delivery, limit: float) -> str:
        """Gives the receipt. Raises what adapters raise, and TimeoutError after so many seconds."""
        with self.on.limits.within(limit), contained():
            return await self._reach_and_send(adapter, delivery, limit)

    async def _reach_and_send(self, adapter: Adapter, delivery: Delivery, limit: float) -> str:
        if delivery.may_be_duplicate and able(adapter, Checking):
            await _reach(adapter, limit / 2)
        return await self._send(adapter, delivery)

    async def _send(self, adapter: Adapter, delivery: Delivery) -> str:
        outbound = delivery.outbound
        if delivery.may_be_duplicate and not outbound.is_news:
            outbound = replace(outbound, text=f"{outbound.text}\n{words.MAY_BE_DUPLICATE}")
        if outbound.file is not None:
            return await self._send_file(adapter, outbound, outbound.file, delivery)
        if outbound.edits is not None and able(adapter, Editing):
            await adapter.edit(outbound.edits, outbound)
            return outbound.edits
        if self.opens_thread(outbound) and able(adapter, Threading):
            return await adapter.open_thread(outbound, idempotency_key=delivery.name)
        return await adapter.send(outbound, idempotency_key=delivery.name)

    def opens_thread(self, outbound: Outbound) -> bool:
        if outbound.opens is None:
            return False
        return able(self.on.replies.adapter_for(outbound.platform, outbound.account), Threading)

    async def _send_file(self, adapter: Adapter, outbound: Outbound, file: Attachment, delivery: Delivery) -> str:
        """Where the chat does not take it, it is told where the file is."""
        place = self.on.shelf.place(file.sha256 or "") if self.on.shelf else None
        if place is not None and able(adapter, Files):
            try:
                return await adapter.send_file(outbound, place, idempotency_key=delivery.name)
            except (ChatMoved, TargetGone):
                raise
            except SendRefused:
                log.warning("a file was refused", extra={"action": "file.refused", "delivery": delivery.number})
        return await adapter.send(replace(outbound, text=words.file_left(file)), idempotency_key=delivery.name)


async def _reach(adapter: Checking, limit: float) -> None:
    """A send that may be a duplicate is repeated once: not while the platform is still away."""
    try:
        async with asyncio.timeout(limit):
            await adapter.check()
    except TimeoutError as error:
        raise PlatformDown("no answer in time") from error
