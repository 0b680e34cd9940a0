"""The outbox worker: claim what is due, send it, settle it with its receipt or try it again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from heapq import heappop, heappush
from typing import TypeVar

from palaver.db.high_water import Seen
from palaver.db.transaction import OUTBOX, Statements, Transaction, keyed, transaction
from palaver.engine.accounts import AccountRunner
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.delivery import outcomes
from palaver.engine.delivery.departures import Departures
from palaver.engine.delivery.owner import Reporting
from palaver.engine.delivery.sender import Sender
from palaver.engine.retry import log_error, log_task_error, retry, retry_outage, retry_until_stored, wait_any
from palaver.model.backoff import backoff
from palaver.model.epochs import Epochs
from palaver.model.errors import StaleFence, StoreError, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.source import Source, account_text
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Outbound, OutboxState, resolve_unclear
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
from palaver.protocols.capabilities import announced
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent
from palaver.store import accounts
from palaver.store.conversations import mirrors
from palaver.store.queue.outbox import Chat, enqueue_events
from palaver.store.records import chat_columns

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 300.0
DOWN_PAUSE_SECONDS = 1.0
SETTLE_PAUSE_SECONDS = 1.0

T = TypeVar("T")


@dataclass(kw_only=True)
class DeliveryWorker:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    accounts: AccountRunner
    place_of: Callable[[Source], Awaitable[SessionKey]]
    """Returns the key of a chat, even while it is attached to another conversation."""
    _sending: dict["asyncio.Task[None]", str] = field(default_factory=dict["asyncio.Task[None]", str])
    """Running sends, each with its account."""
    _claimed: set[int] = field(default_factory=set[int])
    _send_ended: asyncio.Event = field(default_factory=asyncio.Event)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _leaving: asyncio.Lock = field(default_factory=asyncio.Lock)
    _has_lost_track: bool = False
    """The store did not answer a claim: messages can be claimed that nobody sends."""
    _retry_times: list[datetime] = field(default_factory=list[datetime])
    """A heap of the times at which to try sends again."""
    _owed: Collection[Chat] = ()
    """Chats in which a message is due that are not free yet."""

    def __post_init__(self) -> None:
        ctx = self.ctx
        self._sender = Sender(replies=ctx.replies, blob_store=self.resources.blob_store, timeouts=ctx.timeouts)

    async def serve(self) -> None:
        """Send what is due, until cancelled. Cancelling leaves running sends alone."""
        with self.ctx.store.listen(OUTBOX) as owed:
            while True:
                owed.clear()
                self._send_ended.clear()
                self.accounts.account_taken.clear()
                self.live.budget.freed.clear()
                await retry_outage(self._claim)
                signals = owed, self._send_ended, self.accounts.account_taken, self.live.budget.freed
                await wait_any(*signals, timeout=self._poll_seconds())

    async def drain(self) -> None:
        """Send everything that is due now, and wait until no send runs."""
        await retry_outage(self._claim)
        while self._sending or self._waits_shortly:
            pause = self._poll_seconds()
            await (asyncio.wait(self._sending, timeout=pause) if self._sending else asyncio.sleep(pause))
            await retry_outage(self._claim)

    @property
    def _waits_shortly(self) -> bool:
        """Whether a message is due in a chat that is free again soon, and not only after a long pause."""
        soon = self.ctx.settings.limits.lease.total_seconds()
        return any(self.live.budget.wait_seconds(chat) <= soon for chat in self._owed)

    def abandon(self) -> None:
        """Cancel everything as a crash would; the claims are in the store."""
        for task in self._sending:
            task.cancel()

    def lose_track(self) -> None:
        """Compare what is claimed with the store before the next claim."""
        self._has_lost_track = True
        self._send_ended.set()

    async def reclaim(self) -> list[Delivery]:
        """Release sends whose owner is gone. Return those of which it is unclear whether they arrived."""
        ctx = self.ctx
        safe, now = self._sender.repeat_safety(), ctx.clock.now()
        kept_back, running = self.live.departures.kept_back(), sorted(self._claimed)
        reclaim = outcomes.reclaim(
            ctx.worker, now, safe, self._reporting, alone=ctx.alone, kept_back=kept_back, running=running
        )
        return await ctx.store.transact(reclaim)

    @property
    def _reporting(self) -> Reporting:
        settings = self.ctx.settings
        return Reporting(self.ctx.replies.routes, settings.grants, settings.unclear_notice_every)

    async def report_unclear(self) -> None:
        """Tell the owner of sends that have stayed unclear since the last notice."""
        await self.ctx.store.transact(outcomes.report_unclear(self._reporting, self.ctx.clock.now()))

    # Claim

    async def _claim(self) -> None:
        """Claim what each account has room for, in chats that are free.

        Draining waits for the lock, so it sees every claimed send.
        """
        async with self._claiming:
            while self._retry_times and self._retry_times[0] <= self.ctx.clock.now():
                heappop(self._retry_times)
            if self._has_lost_track:
                mine = self.ctx.store.outbox.release_claims(self.ctx.worker, self._claimed)
                await self.ctx.store.transact(mine)
                self._has_lost_track = False
            unfinished = set(self.accounts.served())
            while by_room := self._accounts_by_room(unfinished):
                unfinished.clear()
                for room, accounts in by_room.items():
                    if await self._start_sends(accounts, room) == room:
                        unfinished.update(accounts)
            await self._find_owed()

    async def _find_owed(self) -> None:
        """Find the chats that are not free and are owed a message: they come next, before any draft."""
        served, budget, outbox = set(self.accounts.served()), self.live.budget, self.ctx.store.outbox
        busy = [chat for chat in budget.busy() if chat[0] in served]
        self._owed = await self.ctx.store.read(outbox.list_owed(busy, self.ctx.clock.now())) if busy else ()
        budget.owe(self._owed)

    async def _start_sends(self, accounts: Collection[str], limit: int) -> int:
        now = self.ctx.clock.now()
        busy = self.live.budget.busy()
        claim = self.ctx.store.outbox.claim(
            self.ctx.worker,
            now,
            self._lease,
            accounts=accounts,
            limit=limit,
            besides=busy,
            doubt=self.ctx.store.epochs.doubt(now),
        )
        try:
            claimed = await self.ctx.store.transact(claim)
        except StoreUnavailable:
            self._has_lost_track = True
            raise
        for delivery in claimed:
            task = asyncio.create_task(self._deliver(delivery))
            self._claimed.add(delivery.number)
            task.add_done_callback(lambda _, number=delivery.number: self._claimed.discard(number))
            self._sending[task] = account_text(delivery.outbound.platform, delivery.outbound.account)
            task.add_done_callback(self._end_send)
        return len(claimed)

    def _accounts_by_room(self, among: Collection[str]) -> Mapping[int, Collection[str]]:
        """Group accounts by how many more sends each may run: one that hangs or is full holds up no other."""
        most, sending = self.ctx.settings.limits.concurrent_sends, Counter(self._sending.values())
        by_room: dict[int, list[str]] = {}
        for account in self.accounts.served():
            if account in among and sending[account] < most:
                by_room.setdefault(most - sending[account], []).append(account)
        return by_room

    @property
    def _lease(self) -> timedelta:
        """Return a lease longer than a text send may take, so that nobody reclaims a running send."""
        return self.ctx.settings.limits.lease + self.ctx.settings.limits.send_limit

    def _end_send(self, task: "asyncio.Task[None]") -> None:
        log_task_error(log, "a send failed", {"action": "send.error"}, task)
        del self._sending[task]
        self._send_ended.set()

    def _poll_seconds(self) -> float:
        poll = self.ctx.settings.limits.poll
        if self._retry_times:
            poll = min(poll, self._retry_times[0] - self.ctx.clock.now())
        free = (wait for chat in self._owed if (wait := self.live.budget.wait_seconds(chat)))
        return max(min(poll.total_seconds(), *free, poll.total_seconds()), 0.001)

    # Send

    async def _deliver(self, delivery: Delivery) -> None:
        outbound, settings = delivery.outbound, self.ctx.settings
        adapter = self.ctx.replies.adapter_for(outbound.platform, outbound.account)
        if adapter is None:
            raise LookupError(outbound.platform)  # only sends to served accounts are claimed
        limit = settings.limits.upload_limit if outbound.file else settings.limits.send_limit
        begin = partial(self._begin, limit=limit, at_once=not adapter.limits.interval)
        departure = _Departing(delivery, begin, self.live.departures)
        try:
            # A draft can have been faster since the chat was seen to be free.
            await self.live.budget.acquire(chat_columns(outbound), adapter.limits.interval)
            if not await self._is_reachable(adapter, delivery):
                return
            if not adapter.limits.announces_requests:
                await departure.leave()
            with self.ctx.meter.step("send", delivery.turn or 0):
                await self._attempt(adapter, departure, limit.total_seconds())
            departure.end()
        except StaleFence:
            departure.end()
            self.ctx.meter.count("sends_lost")
            log.warning(
                "another worker took over a send", extra={"action": "send.lease_lost", "delivery": delivery.number}
            )
        finally:
            self.live.ended_sends.notify(delivery.number)

    def _begin(self, delivery: Delivery, *, limit: timedelta, at_once: bool) -> Callable[[], Awaitable[Delivery]]:
        """Return what records that the request leaves now. Done again, it finds what was done."""
        until = self.ctx.clock.now() + self.ctx.settings.limits.lease + limit
        begin = self.ctx.store.outbox.begin_send(delivery, self.ctx.worker, until)
        return partial(self._retry_until_settled, begin) if at_once else partial(self._begin_alone, begin)

    async def _begin_alone(self, begin: Transaction[Delivery]) -> Delivery:
        """Where there is time, record it for one send after the other, so that each request leaves at once."""
        await self._leaving.acquire()
        try:
            return await self._retry_until_settled(begin)
        finally:
            # The next one begins when this one waits for its platform.
            asyncio.get_running_loop().call_soon(self._leaving.release)

    async def _is_reachable(self, adapter: Adapter, delivery: Delivery) -> bool:
        """Settle a possible duplicate for a retry during an outage: nothing has left."""
        try:
            await self._sender.check(adapter, delivery, self.ctx.settings.limits.send_limit.total_seconds() / 2)
        except Exception as error:  # noqa: BLE001 - no adapter error may end more than one send
            if not isinstance(error, PlatformDown):
                log_error(log, "an adapter failed", error, {"action": "adapter.error", "delivery": delivery.number})
            words = str(error) if isinstance(error, PlatformDown) else f"the adapter broke: {type(error).__name__}"
            await self._settle_for_retry(delivery, words, DOWN_PAUSE_SECONDS)
            return False
        return True

    async def _attempt(self, adapter: Adapter, departure: "_Departing", limit: float) -> None:
        returns = self.accounts.returns
        try:
            receipt = await self._send(adapter, departure, limit)
        except StaleFence:
            raise
        except Exception as error:  # noqa: BLE001 - no adapter error may end more than one send
            await self._settle_error(await departure.record(), error, returns)
        else:
            await self._settle_delivered(await departure.record(), receipt)

    async def _send(self, adapter: Adapter, departure: "_Departing", limit: float) -> str:
        """Send a message. If the connection is lost before a request left, there is no doubt."""
        try:
            with announced(departure.leave):
                return await self._sender.send(adapter, departure.delivery, limit)
        except (SendUnclear, TimeoutError) as error:
            if departure.has_left:
                raise
            raise PlatformDown(str(error) or "no connection in time") from error

    async def _settle_error(self, delivery: Delivery, error: Exception, returns: int) -> None:
        match error:
            case SendRefused():
                await self._settle_rejected(delivery, error)
            case TargetAway():
                # Somebody may have come back while we were looking.
                pause = 0 if self.accounts.returns != returns else error.after
                await self._settle(delivery, OutboxState.DUE, error=str(error), due=self._schedule_retry(pause))
            case PlatformBusy():
                self.live.budget.back_off(chat_columns(delivery.outbound), error.after)
                await self._settle_for_retry(delivery, str(error), error.after, rate_limited=True)
            case PlatformDown():
                await self._settle_for_retry(delivery, str(error), DOWN_PAUSE_SECONDS)
            case SendUnclear() | TimeoutError():
                await self._settle_unclear(delivery, str(error) or "no answer in time")
            case _:
                log_error(log, "an adapter failed", error, {"action": "adapter.error", "delivery": delivery.number})
                await self._settle_unclear(delivery, f"the adapter broke: {type(error).__name__}")

    # Settle

    async def _settle(
        self,
        delivery: Delivery,
        state: OutboxState,
        *,
        error: str | None = None,
        due: datetime | None = None,
        rate_limited: bool = False,
    ) -> None:
        settle = self.ctx.store.outbox.settle_send
        step = settle(delivery, self.ctx.worker, state, error=error, due=due, rate_limited=rate_limited)
        state = await self._settle_failed(delivery, step)
        log.info("send %s", state.value, extra={"action": "send.settled", "delivery": delivery.number})
        if state is OutboxState.DEAD:
            self.ctx.meter.count("sends_dead")

    async def _settle_failed(self, delivery: Delivery, step: Transaction[OutboxState]) -> OutboxState:
        settle = outcomes.settle_failed(delivery, step, self._reporting, self.ctx.clock.now())
        return await self._retry_until_settled(settle)

    async def _settle_for_retry(
        self, delivery: Delivery, error: str, at_least: float, *, rate_limited: bool = False
    ) -> None:
        """Try again later, or give up."""
        if not self._may_retry(delivery):
            end = OutboxState.UNCLEAR if delivery.may_be_duplicate else OutboxState.DEAD
            await self._settle(delivery, end, error=f"given up: {error}", due=self.ctx.clock.now())
            return
        self.ctx.meter.count("send_retries")
        due = self._schedule_retry(self._pause_seconds(delivery, at_least))
        await self._settle(delivery, OutboxState.DUE, error=error, due=due, rate_limited=rate_limited)

    async def _settle_rejected(self, delivery: Delivery, error: SendRefused) -> None:
        match error:
            case ChatMoved():
                await self._settle_moved(delivery, error)
            case TargetGone():
                await self._settle_gone(delivery, str(error))
            case _:
                await self._settle_refused(delivery, str(error))

    async def _settle_refused(self, delivery: Delivery, error: str) -> None:
        """Send without the edit, the thread or the reply that may have been refused; otherwise give up."""
        outbound = delivery.outbound
        if outbound.edits is not None or self._sender.opens_thread(outbound):
            plain = replace(outbound, edits=None, opens=None)
        elif outbound.reply_to is not None:
            plain = replace(outbound, reply_to=None)
        else:
            await self._settle(delivery, OutboxState.DEAD, error=error)
            return
        # Write this before sending: a new message that is sent twice shows twice, an edit does not.
        resend = self.ctx.store.outbox.resend_as(delivery, plain, self.ctx.worker, self.ctx.clock.now(), error=error)
        await self._retry_until_settled(resend)

    async def _settle_unclear(self, delivery: Delivery, error: str) -> None:
        outbox, safe, due = self.ctx.store.outbox, self._sender.is_repeat_safe(delivery.outbound), self.ctx.clock.now()
        if safe and not self._may_retry(delivery):
            step = outbox.settle_send(delivery, self.ctx.worker, OutboxState.UNCLEAR, error=error, due=due)
        else:
            at_least = 0.0 if safe else self.ctx.settings.limits.repeat_after.total_seconds()
            if resolve_unclear(delivery, safe=safe)[0] is OutboxState.DUE:
                due = self._schedule_retry(self._pause_seconds(delivery, at_least))
            step = outbox.mark_unclear(delivery, self.ctx.worker, due, safe=safe, error=error)
        await self._settle_failed(delivery, step)
        self.ctx.meter.count("sends_unclear")
        log.warning("send unclear", extra={"action": "send.unclear", "delivery": delivery.number})

    async def _settle_gone(self, delivery: Delivery, error: str) -> None:
        """Remember that the chat is gone, and tell the owner once."""
        dead = self.ctx.store.outbox.settle_send(delivery, self.ctx.worker, OutboxState.DEAD, error=error)
        settle = outcomes.settle_gone(delivery, dead, error, self._reporting, self.ctx.clock.now())
        if await self._retry_until_settled(settle):
            self.ctx.meter.count("sends_dead")
            account = account_text(delivery.outbound.platform, delivery.outbound.account)
            extra = {"action": "chat.gone", "delivery": delivery.number, "account": account}
            log.warning("a chat is gone", extra=extra)

    async def _settle_moved(self, delivery: Delivery, error: ChatMoved) -> None:
        """Send to the chat's new id at once. Give up in the end on a chat that keeps moving."""
        if not self._may_retry(delivery):
            await self._settle_refused(delivery, str(error))
            return
        now, outbound, store = self.ctx.clock.now(), delivery.outbound, self.ctx.store
        due = self._schedule_retry(DOWN_PAUSE_SECONDS if delivery.attempts > 1 else 0.0)
        settle = store.outbox.settle_send(delivery, self.ctx.worker, OutboxState.DUE, error=str(error), due=due)
        there = (outbound.platform, outbound.account, outbound.chat_id)
        move = store.chat_migration.move(*there, error.new, now, server=outbound.scope_id)
        await self._retry_until_settled(_both(move, settle))
        log.info("a chat has a new id", extra={"action": "chat.moved", "delivery": delivery.number})

    async def _settle_delivered(self, delivery: Delivery, receipt: str) -> None:
        ctx, now, outbound = self.ctx, self.ctx.clock.now(), delivery.outbound
        arrival = await retry_outage(lambda: self._arrival(outbound, receipt, now)) if outbound.handoff else None
        settle = ctx.store.outbox.settle_send(delivery, ctx.worker, OutboxState.DELIVERED, receipt=receipt)
        event = _delivered_event(delivery, now, ctx.store.epochs)
        record = _record_delivered(delivery, settle, receipt, event, arrival=arrival, subscriptions=ctx.subscriptions)
        if not (delivery.is_gone or outbound.mirror or arrival or ctx.subscriptions):  # it only touches its own row
            record = keyed(f"send {delivery.number}", record)
        try:
            await self._retry_until_settled(record)
        except StaleFence:
            if not await retry_outage(lambda: self._is_recorded(delivery, receipt)):
                raise
        ctx.store.saw(
            Seen("out", delivery.number, f"{outbound.platform} chat {outbound.chat}", delivery.created, receipt)
        )
        ctx.meter.lag(outbound.platform, (now - delivery.created).total_seconds())
        log.info("send delivered", extra={"action": "send.settled", "delivery": delivery.number})
        if ctx.hooks.are_registered and not outbound.is_news:
            ctx.hooks.tell(event)

    async def _arrival(self, announced: Outbound, receipt: str, now: datetime) -> Transaction[None] | None:
        """Return what to do in the transaction that records that the announcement of a handoff arrived."""
        number, store = announced.handoff, self.ctx.store
        endpoints = None if number is None else await store.read(store.handoff.endpoints(number))
        if number is None or endpoints is None:
            return None
        origin, home = endpoints
        thread = receipt if self._sender.opens_thread(announced) else home.thread_id
        address = replace(home, thread_id=thread)
        place, routes = await self.place_of(address), self.ctx.replies.routes
        return outcomes.complete_handoff(number, place, origin, address, now, routes=routes)

    async def _is_recorded(self, delivery: Delivery, receipt: str) -> bool:
        """Tell whether an earlier commit of the same result succeeded although we got no answer."""
        found = await self.ctx.store.read(self.ctx.store.outbox.get_delivery(delivery.number))
        mine = OutboxState.DELIVERED, delivery.attempts, receipt
        return found is not None and (found.state, found.attempts, found.receipt) == mine

    async def _retry_until_settled(self, step: Transaction[T]) -> T:
        """Record the result of a send, or raise StaleFence if another worker took it over: else it is sent again."""
        return await retry(
            lambda: retry_until_stored(self.ctx.store, step),
            on=StoreError,
            unless=(StaleFence,),
            report=lambda error: log_error(
                log, "the store refused to settle a send", error, {"action": "send.not_recorded"}
            ),
            first=SETTLE_PAUSE_SECONDS,
            longest=SETTLE_PAUSE_SECONDS,
        )

    # Retry

    def _pause_seconds(self, delivery: Delivery, at_least: float = 0.0) -> float:
        pause = backoff(delivery.attempts, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS)
        return max(at_least, pause) * self.ctx.rng.uniform(1.0, 1.25)

    def _may_retry(self, delivery: Delivery) -> bool:
        """Do not count the time in which nobody served the account."""
        outbound = delivery.outbound
        health = self.accounts.health[account_text(outbound.platform, outbound.account)]
        since = max(health.served_since or delivery.created, delivery.created)
        return self.ctx.clock.now() - since <= self.ctx.settings.limits.send_patience

    def _schedule_retry(self, pause: float) -> datetime:
        due = self.ctx.clock.now() + timedelta(seconds=pause)
        heappush(self._retry_times, due)
        return due


class _Departing:
    """A send on its way to its request. That the request leaves is recorded once, right before it does."""

    def __init__(
        self,
        delivery: Delivery,
        begin: Callable[[Delivery], Callable[[], Awaitable[Delivery]]],
        departures: Departures,
    ) -> None:
        self.delivery = delivery
        self._departures = departures
        self._slot = 0
        self.has_left = False
        """A request can have left."""
        self._begin = begin
        self._begun: Callable[[], Awaitable[Delivery]] | None = None
        self._recording = asyncio.Lock()

    async def leave(self) -> None:
        await self.record()
        self._departures.leave(self._slot)
        self.has_left = True

    async def record(self) -> Delivery:
        async with self._recording:
            if self.delivery.state is OutboxState.CLAIMED:
                number, attempt = self.delivery.number, self.delivery.attempts + 1
                self._slot = self._slot or self._departures.keep_back("send", number, attempt)
                self._begun = self._begun or self._begin(self.delivery)
                self.delivery = await self._begun()
        return self.delivery

    def end(self) -> None:
        self._departures.end(self._slot)


@transaction
def _both(first: Transaction[object], then: Transaction[object]) -> Statements[None]:
    yield from first
    yield from then


@transaction
def _record_delivered(
    delivery: Delivery,
    settle: Transaction[OutboxState],
    receipt: str,
    event: GatewayEvent,
    *,
    arrival: Transaction[None] | None,
    subscriptions: Sequence[EventSubscription],
) -> Statements[None]:
    """Settle a send that arrived and do what follows. `arrival` completes the handoff that it announced."""
    outbound = delivery.outbound
    yield from settle
    if delivery.is_gone:
        yield from accounts.mark_chat_reachable(outbound)
    if outbound.mirror is not None:
        entry = Entry(seq=0, role=Role.ASSISTANT, at=event.at, text=outbound.text, message_id=receipt)
        yield from mirrors.note_delivered(SessionKey.parse(outbound.mirror), entry)
    if arrival is not None:
        yield from arrival
    if subscriptions and not outbound.is_news:
        text = outbound.text if delivery.turn else ""
        yield from enqueue_events(subscriptions, [event], text)


def _delivered_event(delivery: Delivery, now: datetime, epochs: Epochs) -> GatewayEvent:
    return GatewayEvent(
        kind=EventKind.MESSAGE_DELIVERED,
        at=now,
        delivery=delivery.number,
        delivery_id=epochs.send(delivery.number),
        turn=delivery.turn,
        platform=delivery.outbound.platform,
        chat=delivery.outbound.chat_id,
    )
