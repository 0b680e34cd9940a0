"""Hands: how one message that is owed is given to its adapter."""

import asyncio
import logging
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.delivery.handoff import Handoffs
from palaver.engine.retry import contain_cancellation
from palaver.model.attachment import Attachment
from palaver.model.lifecycle import OutboxState
from palaver.model.source import Source
from palaver.model.turn import Delivery, Outbound
from palaver.model.value import value
from palaver.protocols.adapter import Adapter, ChatMoved, PlatformDown, SendRefused, TargetGone
from palaver.protocols.capabilities import Checking, Editing, Threading, Uploading, supports
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import RepeatSafety

__all__ = [
    "DeliveryFailures",
    "Sender",
]

log = logging.getLogger(__name__)


@value
class DeliveryFailures:
    ctx: EngineContext
    handoffs: Handoffs

    @transaction
    def settles(self, delivery: Delivery, step: Transaction[OutboxState], now: datetime) -> Statements[OutboxState]:
        """The step that settles a send, and what follows from its result."""
        state = yield from step
        yield from self.follows(delivery, state, now)
        return state

    @transaction
    def follows(self, delivery: Delivery, state: OutboxState, now: datetime) -> Statements[None]:
        """What was to come with a send that does not arrive does not come either."""
        if state in {OutboxState.DEAD, OutboxState.UNCLEAR}:
            yield from self.handoffs.failed(delivery.outbound, now)
        if state is OutboxState.UNCLEAR:
            yield from self._tell_unclear(delivery, now)

    @transaction
    def bury(self, delivery: Delivery, step: Transaction[OutboxState], error: str, now: datetime) -> Statements[bool]:
        """False where the chat is not gone but has another id."""
        if (yield from self.settles(delivery, step, now)) is not OutboxState.DEAD:
            return False
        # Where we only tell what happens there is no chat: the account itself says that it is switched off.
        if delivery.outbound.is_news or (yield from self.ctx.store.accounts.chat_gone(delivery.outbound, now, error)):
            yield from self._tell_gone(delivery, now)
        return True

    def _tell_gone(self, delivery: Delivery, now: datetime) -> Statements[None]:
        outbound = delivery.outbound
        gone = outbound.account if outbound.is_news else outbound.chat_id
        _, others = yield from self._homes(outbound)
        cause = SendCause(CauseKind.CHAT_GONE, delivery.number)
        yield from self._tell(others, texts.gone_notice(f"{outbound.platform}:{gone}"), cause, now)

    def _tell_unclear(self, delivery: Delivery, now: datetime) -> Statements[None]:
        """Once an hour: the first stands for all that an outage loses, and a notice that is lost calls for no other."""
        homes, others = yield from self._homes(delivery.outbound)
        notice = texts.unclear_notice(f"out:{delivery.number}")
        yield from self._tell(others or homes, notice, SendCause(CauseKind.UNCLEAR, f"{now:%Y-%m-%dT%H}"), now)

    def _homes(self, outbound: Outbound) -> Statements[tuple[list[Source], list[Source]]]:
        """All there are, and those that are not where this was to go."""
        homes = yield from self.ctx.store.accounts.all_homes()
        there = (outbound.platform, outbound.account, outbound.chat_id)
        return list(homes), [home for home in homes if (home.platform, home.account, home.chat) != there]

    def _tell(self, homes: list[Source], text: str, cause: SendCause, now: datetime) -> Statements[None]:
        for home in homes[:1]:
            notice = self.ctx.replies.to(home, text)
            yield from self.ctx.store.outbox.enqueue(notice[0], cause, now)


@value(kw_only=False)
class Sender:
    ctx: EngineContext

    def is_safe(self, outbound: Outbound) -> bool:
        """Whether sending it twice shows it once."""
        return self.repeat_safety().covers(outbound)

    def repeat_safety(self) -> RepeatSafety:
        adapters = self.ctx.replies.adapters
        return RepeatSafety(
            accounts=frozenset(name for name, adapter in adapters.items() if adapter.limits.repeats_safely),
            edits=frozenset(name for name, adapter in adapters.items() if supports(adapter, Editing)),
        )

    async def send(self, adapter: Adapter, delivery: Delivery, limit: float) -> str:
        """Gives the receipt. Raises what adapters raise, and TimeoutError after so many seconds."""
        with self.ctx.timeouts.timeout(limit), contain_cancellation():
            return await self._reach_and_send(adapter, delivery, limit)

    async def _reach_and_send(self, adapter: Adapter, delivery: Delivery, limit: float) -> str:
        if delivery.may_be_duplicate and supports(adapter, Checking):
            await _reach(adapter, limit / 2)
        return await self._send(adapter, delivery)

    async def _send(self, adapter: Adapter, delivery: Delivery) -> str:
        outbound = delivery.outbound
        if delivery.may_be_duplicate and not outbound.is_news:
            outbound = replace(outbound, text=f"{outbound.text}\n{texts.MAY_BE_DUPLICATE}")
        if outbound.file is not None:
            return await self._send_file(adapter, outbound, outbound.file, delivery)
        if outbound.edits is not None and supports(adapter, Editing):
            await adapter.edit(outbound.edits, outbound)
            return outbound.edits
        if self.opens_thread(outbound) and supports(adapter, Threading):
            return await adapter.open_thread(outbound, idempotency_key=delivery.idempotency_key)
        return await adapter.send(outbound, idempotency_key=delivery.idempotency_key)

    def opens_thread(self, outbound: Outbound) -> bool:
        if outbound.opens is None:
            return False
        return supports(self.ctx.replies.adapter_for(outbound.platform, outbound.account), Threading)

    async def _send_file(self, adapter: Adapter, outbound: Outbound, file: Attachment, delivery: Delivery) -> str:
        """Where the chat does not take it, it is told where the file is."""
        place = self.ctx.shelf.place(file.sha256 or "") if self.ctx.shelf else None
        if place is not None and supports(adapter, Uploading):
            try:
                return await adapter.send_file(outbound, place, idempotency_key=delivery.idempotency_key)
            except (ChatMoved, TargetGone):
                raise
            except SendRefused:
                log.warning("a file was refused", extra={"action": "file.not_accepted", "delivery": delivery.number})
        return await adapter.send(
            replace(outbound, text=texts.file_left(file)), idempotency_key=delivery.idempotency_key
        )


async def _reach(adapter: Checking, limit: float) -> None:
    """A send that may be a duplicate is repeated once: not while the platform is still away."""
    try:
        async with asyncio.timeout(limit):
            await adapter.check()
    except TimeoutError as error:
        raise PlatformDown("no answer in time") from error
