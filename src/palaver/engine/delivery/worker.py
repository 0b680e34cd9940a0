"""Delivery: everything owed is claimed, sent, and settled with its receipt, or tried again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heappop, heappush
from typing import TypeVar

from palaver.db.database import OUTBOX
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.context import EngineContext
from palaver.engine.delivery.handoff import Handoffs
from palaver.engine.delivery.sender import DeliveryFailures, Sender
from palaver.engine.retry import log_error, log_task_error, retry_outage, wait_any
from palaver.model.errors import StaleFence, StoreError
from palaver.model.key import SessionKey
from palaver.model.lifecycle import OutboxState
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Outbound, account_text, resolve_unclear
from palaver.protocols.adapter import (
    Adapter,
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    SendRefused,
    SendUnclear,
    TargetAway,
    TargetGone,
)
from palaver.protocols.hooks import EventKind, GatewayEvent

__all__ = [
    "DeliveryWorker",
]

log = logging.getLogger(__name__)

_LONGEST_PAUSE = 300.0
_AWAY_PAUSE = 1.0
_AGAIN = 1.0

T = TypeVar("T")


@dataclass(kw_only=True)
class DeliveryWorker:
    ctx: EngineContext
    served: Callable[[], Collection[str]]
    """The accounts that this worker serves now."""
    served_since: Callable[[str], datetime | None]
    """Since when it serves an account."""
    taken_on: asyncio.Event
    """Set when there is one more."""
    returns: Callable[[], int]
    """How often somebody came back to a chat where nobody was."""
    handoffs: Handoffs
    _sending: dict["asyncio.Task[None]", str] = field(default_factory=dict["asyncio.Task[None]", str])
    """Each with the account it goes to."""
    _freed: asyncio.Event = field(default_factory=asyncio.Event)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _tries: list[datetime] = field(default_factory=list[datetime])
    """When something is to be tried again, the next in front."""

    def __post_init__(self) -> None:
        self._undelivered = DeliveryFailures(ctx=self.ctx, handoffs=self.handoffs)
        self._hands = Sender(self.ctx)

    async def serve(self) -> None:
        """Send what is due, until cancelled. Sends that are on their way are not touched by that."""
        with self.ctx.store.listen(OUTBOX) as owed:
            while True:
                owed.clear()
                self._freed.clear()
                self.taken_on.clear()
                await retry_outage(self._fill)
                await wait_any(owed, self._freed, self.taken_on, timeout=self._patience())

    async def drain(self) -> None:
        """Until nothing is on its way any more, nor could be now."""
        await retry_outage(self._fill)
        while self._sending:
            await asyncio.wait(self._sending)
            await retry_outage(self._fill)

    def abandon(self) -> None:
        """Drop everything as a crash would; what was claimed is found in the store."""
        for task in self._sending:
            task.cancel()

    @transaction
    def reclaim(self, now: datetime) -> Statements[list[Delivery]]:
        """Take the sends whose owner is gone out of its hands."""
        reclaim = self.ctx.store.outbox.reclaim_sends(
            self.ctx.worker, now, safe=self._hands.repeat_safety(), alone=self.ctx.alone
        )
        lost = yield from reclaim
        for delivery in lost:
            state, _ = resolve_unclear(delivery, safe=self._hands.is_safe(delivery.outbound))
            yield from self._undelivered.follows(delivery, state, now)
        return lost

    async def _fill(self) -> None:
        # Whoever drains sees every send that was claimed before, or is claimed just now.
        async with self._claiming:
            await self._claim()

    async def _claim(self) -> None:
        while self._tries and self._tries[0] <= self.ctx.clock.now():
            heappop(self._tries)
        waiting = set(self.served())
        while rooms := self._rooms(waiting):
            waiting.clear()
            for room, accounts in rooms.items():
                if await self._begin(accounts, room) == room:
                    waiting.update(accounts)

    async def _begin(self, accounts: Collection[str], most: int) -> int:
        """Send so much of what is due to these accounts; gives how much there was."""
        now = self.ctx.clock.now()
        claim = self.ctx.store.outbox.claim(self.ctx.worker, now, self._lease, accounts=accounts, limit=most)
        claimed = await self.ctx.store.transact(claim)
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery, now + self._lease))
            self._sending[task] = account_text(delivery.outbound.platform, delivery.outbound.account)
            task.add_done_callback(self._done)
        return len(claimed)

    def _rooms(self, among: Collection[str]) -> Mapping[int, Collection[str]]:
        """Accounts by how much more each may send at once: one that hangs, or is nearly full, holds up no other."""
        most, sending = self.ctx.options.concurrent_sends, Counter(self._sending.values())
        rooms: dict[int, list[str]] = {}
        for account in self.served():
            if account in among and sending[account] < most:
                rooms.setdefault(most - sending[account], []).append(account)
        return rooms

    @property
    def _lease(self) -> timedelta:
        """Longer than the send of words may take, so that nobody else takes up what is still on its way."""
        return self.ctx.options.lease + self.ctx.options.send_limit

    def _done(self, task: "asyncio.Task[None]") -> None:
        log_task_error(log, "a send broke", {"action": "send.error"}, task)
        del self._sending[task]
        self._freed.set()

    def _patience(self) -> float:
        poll = self.ctx.options.poll
        if self._tries:
            poll = min(poll, self._tries[0] - self.ctx.clock.now())
        return max(poll.total_seconds(), 0.001)

    async def _deliver(self, delivery: Delivery, until: datetime) -> None:
        adapter = self.ctx.replies.adapter_for(delivery.outbound.platform, delivery.outbound.account)
        if adapter is None:
            raise LookupError(delivery.outbound.platform)  # only what goes to a served account is claimed
        outbound = delivery.outbound
        chat = f"{adapter.platform.name}:{adapter.account}:{outbound.chat_id}"
        try:
            if not await self._has_its_turn(chat, adapter.limits.interval, until):
                await self._settle(delivery, OutboxState.DUE, due=self._later(self.ctx.budget.wait(chat)))
                return
            if outbound.file is not None:
                await self._prolong(delivery)
            with self.ctx.meter.step("send"):
                await self._attempt(adapter, delivery, chat)
        except StaleFence:
            self.ctx.meter.count("sends_lost")
            log.warning("send taken over", extra={"action": "send.lease_lost", "delivery": delivery.number})

    async def _has_its_turn(self, chat: str, interval: float, until: datetime) -> bool:
        """Once the chat may be written to; False where the claim would not last until then and for the send."""
        wait = self.ctx.budget.wait(chat)
        if not self._lasts(until, wait):
            return False
        await self.ctx.budget.take(chat, interval)
        return not wait or self._lasts(until)

    def _lasts(self, until: datetime, wait: float = 0.0) -> bool:
        return self.ctx.clock.now() + timedelta(seconds=wait) + self.ctx.options.send_limit <= until

    async def _prolong(self, delivery: Delivery) -> None:
        until = self.ctx.clock.now() + self.ctx.options.lease + self.ctx.options.upload_limit
        await self._surely(self.ctx.store.outbox.prolong(delivery, self.ctx.worker, until))

    async def _attempt(self, adapter: Adapter, delivery: Delivery, chat: str) -> None:
        returns, options = self.returns(), self.ctx.options
        limit = (options.upload_limit if delivery.outbound.file else options.send_limit).total_seconds()
        try:
            receipt = await self._hands.send(adapter, delivery, limit)
        except SendRefused as error:
            await self._turned_away(delivery, error)
        except TargetAway as away:
            # Somebody may have come back while nobody was found.
            pause = 0 if self.returns() != returns else away.after
            await self._settle(delivery, OutboxState.DUE, error=str(away), due=self._later(pause))
        except PlatformBusy as busy:
            self.ctx.budget.hold(chat, busy.after)
            await self._again(delivery, str(busy), busy.after)
        except PlatformDown as error:
            await self._again(delivery, str(error), _AWAY_PAUSE)
        except (SendUnclear, TimeoutError) as error:
            await self._unclear(delivery, str(error) or "no answer in time")
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises ends one send
            # Nobody knows how far a broken adapter came.
            log_error(log, "the adapter broke", error, {"action": "adapter.error", "delivery": delivery.number})
            await self._unclear(delivery, f"the adapter broke: {type(error).__name__}")
        else:
            await self._arrived(delivery, receipt)

    async def _turned_away(self, delivery: Delivery, error: SendRefused) -> None:
        match error:
            case ChatMoved():
                await self._moved(delivery, error)
            case TargetGone():
                await self._gone(delivery, str(error))
            case _:
                await self._refused(delivery, str(error))

    async def _refused(self, delivery: Delivery, error: str) -> None:
        """A draft that cannot be changed is left behind, a chat may have no threads; else it is given up."""
        if delivery.outbound.edits is None and not self._hands.opens_thread(delivery.outbound):
            await self._settle(delivery, OutboxState.DEAD, error=error)
        else:
            # Not before this is written: sent again, a message of its own is seen twice, an edit is not.
            detach = self.ctx.store.outbox.detach(delivery, self.ctx.worker, self.ctx.clock.now(), error=error)
            await self._surely(detach)

    async def _again(self, delivery: Delivery, error: str, after: float) -> None:
        """Later, with growing pauses and some chance, until patience ends."""
        if not self._has_patience(delivery):
            end = OutboxState.UNCLEAR if delivery.may_be_duplicate else OutboxState.DEAD
            await self._settle(delivery, end, error=f"given up: {error}")
            return
        self.ctx.meter.count("send_retries")
        await self._settle(delivery, OutboxState.DUE, error=error, due=self._later(self._pause(delivery, after)))

    def _pause(self, delivery: Delivery, after: float = 0.0) -> float:
        pause = max(after, min(_LONGEST_PAUSE, 2 ** min(delivery.attempts - 1, 16) * 0.5))
        return pause * self.ctx.chance.uniform(1.0, 1.25)

    def _has_patience(self, delivery: Delivery) -> bool:
        """While nobody served the account nothing was tried: that is not counted."""
        outbound = delivery.outbound
        since = self.served_since(account_text(outbound.platform, outbound.account)) or delivery.created
        return self.ctx.clock.now() - max(since, delivery.created) <= self.ctx.options.send_patience

    def _later(self, pause: float) -> datetime:
        due = self.ctx.clock.now() + timedelta(seconds=pause)
        heappush(self._tries, due)
        return due

    async def _settle(
        self,
        delivery: Delivery,
        state: OutboxState,
        *,
        receipt: str | None = None,
        error: str | None = None,
        due: datetime | None = None,
    ) -> None:
        now = self.ctx.clock.now()
        step = self.ctx.store.outbox.settle_send(
            delivery, self.ctx.worker, state, receipt=receipt, error=error, due=due
        )
        state = await self._surely(self._undelivered.settles(delivery, step, now))
        log.info("send %s", state.value, extra={"action": "send.settled", "delivery": delivery.number})
        if state is OutboxState.DEAD:
            self.ctx.meter.count("sends_dead")

    async def _arrived(self, delivery: Delivery, receipt: str) -> None:
        now, outbound = self.ctx.clock.now(), delivery.outbound
        continuation = None if outbound.handoff is None else await self._handed(outbound, receipt, now)
        try:
            await self._surely(self._arrive(delivery, receipt, now, continuation))
        except StaleFence:
            if not await retry_outage(lambda: self._has_arrived(delivery, receipt)):
                raise
        log.info("send delivered", extra={"action": "send.settled", "delivery": delivery.number})
        if self.ctx.hooks.are_registered and not outbound.is_news:
            self.ctx.hooks.tell(_delivered(delivery, now))

    async def _handed(self, outbound: Outbound, receipt: str, now: datetime) -> Transaction[None]:
        thread = receipt if self._hands.opens_thread(outbound) else None
        return await retry_outage(lambda: self.handoffs.arrival(outbound, thread, now))

    @transaction
    def _arrive(
        self, delivery: Delivery, receipt: str, now: datetime, continuation: Transaction[None] | None
    ) -> Statements[None]:
        outbound, store = delivery.outbound, self.ctx.store
        yield from store.outbox.settle_send(delivery, self.ctx.worker, OutboxState.DELIVERED, receipt=receipt)
        if delivery.is_gone:
            yield from store.accounts.chat_there(outbound)
        if outbound.mirror is not None:
            entry = Entry(seq=0, role=Role.ASSISTANT, at=now, text=outbound.text, message_id=receipt)
            conversation = yield from store.attach.conversation_of(SessionKey.parse(outbound.mirror))
            yield from store.transcript.append_outside_turn(conversation, entry)
        if continuation is not None:
            yield from continuation
        if self.ctx.event_outbox.has_watchers and not outbound.is_news:
            yield from self.ctx.event_outbox.owe(_delivered(delivery, now), outbound.text if delivery.turn else "")

    async def _has_arrived(self, delivery: Delivery, receipt: str) -> bool:
        """Whether this is what is written down, though nobody heard that it was."""
        found = await self.ctx.store.read(self.ctx.store.outbox.get_delivery(delivery.number))
        mine = OutboxState.DELIVERED, delivery.attempts, receipt
        return found is not None and (found.state, found.attempts, found.receipt) == mine

    async def _surely(self, step: Transaction[T]) -> T:
        """What became of a send is written down, or somebody else has taken it over: else it would be sent again."""
        while True:
            try:
                return await self.ctx.retry_until_stored(step)
            except StaleFence:
                raise
            except StoreError as error:
                log_error(log, "the store refused a settled send", error, {"action": "send.not_recorded"})
            await asyncio.sleep(_AGAIN)

    async def _unclear(self, delivery: Delivery, error: str) -> None:
        step = self._after_unclear(delivery, error)
        await self._surely(self._undelivered.settles(delivery, step, self.ctx.clock.now()))
        self.ctx.meter.count("sends_unclear")
        log.warning("send unclear", extra={"action": "send.unclear", "delivery": delivery.number})

    def _after_unclear(self, delivery: Delivery, error: str) -> Transaction[OutboxState]:
        outbox, safe = self.ctx.store.outbox, self._hands.is_safe(delivery.outbound)
        if safe and not self._has_patience(delivery):
            return outbox.settle_send(delivery, self.ctx.worker, OutboxState.UNCLEAR, error=error)
        due = self._later(self._pause(delivery, 0.0 if safe else self.ctx.options.repeat_after.total_seconds()))
        return outbox.unclear(delivery, self.ctx.worker, due, safe=safe, error=error)

    async def _gone(self, delivery: Delivery, error: str) -> None:
        """The chat is gone: that is remembered, and told to the owner at home, once."""
        dead = self.ctx.store.outbox.settle_send(delivery, self.ctx.worker, OutboxState.DEAD, error=error)
        if await self._surely(self._undelivered.bury(delivery, dead, error, self.ctx.clock.now())):
            self.ctx.meter.count("sends_dead")
            account = account_text(delivery.outbound.platform, delivery.outbound.account)
            told = {"action": "chat.gone", "delivery": delivery.number, "account": account}
            log.warning("chat gone", extra=told)

    async def _moved(self, delivery: Delivery, error: ChatMoved) -> None:
        """It is due where the chat is now, at once; one that is never found is given up in the end."""
        if not self._has_patience(delivery):
            await self._refused(delivery, str(error))
            return
        now, outbound, store = self.ctx.clock.now(), delivery.outbound, self.ctx.store
        due = self._later(_AWAY_PAUSE if delivery.attempts > 1 else 0.0)
        settle = store.outbox.settle_send(delivery, self.ctx.worker, OutboxState.DUE, error=str(error), due=due)
        move = store.chat_migration.move(outbound.platform, outbound.account, outbound.chat_id, error.new, now)
        await self._surely(_both(move, settle))
        log.info("chat has another id", extra={"action": "chat.moved", "delivery": delivery.number})


@transaction
def _both(first: Transaction[object], then: Transaction[object]) -> Statements[None]:
    yield from first
    yield from then


def _delivered(delivery: Delivery, now: datetime) -> GatewayEvent:
    return GatewayEvent(kind=EventKind.MESSAGE_DELIVERED, at=now, delivery=delivery.number, turn=delivery.turn)
