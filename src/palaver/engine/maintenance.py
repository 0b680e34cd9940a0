"""Upkeep: leases are extended, what has no living owner is taken over, what has expired is ended."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from palaver.db.database import TURNS
from palaver.engine.context import EngineContext
from palaver.engine.delivery.worker import DeliveryWorker
from palaver.engine.retry import retry_outage, wait_any
from palaver.engine.turns.dispatcher import Dispatcher
from palaver.engine.turns.runner import TurnRunner
from palaver.model.lifecycle import EndReason
from palaver.model.session import Session
from palaver.model.turn import Turn
from palaver.protocols.hooks import EventKind, GatewayEvent
from palaver.store.accounts import GATEWAY
from palaver.store.privacy.erasure import ERASURES
from palaver.store.results import ResetRule

__all__ = [
    "Maintenance",
]

log = logging.getLogger(__name__)

_PAGE = 500
_LOOKED_AT_ONCE = 100
"""Sessions looked at before others get on."""
_LOOK_AGAIN = timedelta(hours=1)
"""At what was held when its time came, or whose rule has changed."""
_SOON = 1.0
"""Seconds."""
_EVER = datetime(1970, 1, 1, tzinfo=UTC)
_FINALISE_TRIES = 3


@dataclass(kw_only=True)
class Maintenance:
    ctx: EngineContext
    dispatcher: Dispatcher
    runner: TurnRunner
    deliveries: DeliveryWorker
    _is_calm: bool | None = None
    """False while what was found at the start may make the gateway crash again; None before that is known."""
    _looked: datetime = _EVER
    """Until when everything that ended by itself has been found."""
    _looked_at_all: datetime = _EVER
    _routed_since: datetime = _EVER
    """Routes of what was used last before are dropped already."""

    async def beat(self) -> None:
        """The heartbeat, until cancelled."""
        while True:
            await retry_outage(self.runner.heartbeat)
            await retry_outage(self._measure)
            await asyncio.sleep(self._pulse)

    async def _measure(self) -> None:
        meter, store = self.ctx.meter, self.ctx.store
        meter.level("lanes", self.dispatcher.running)
        meter.level("leases", len(self.runner.at_work))
        meter.level("accounts", len(self.deliveries.served()))
        meter.level("inbox_waiting", await store.read(store.inbox.depth()))
        meter.level("outbox_due", await store.read(store.outbox.depth()))

    async def recover(self) -> None:
        """Take over what has no living owner: at the start, and again and again, since workers die at any time."""
        with self.ctx.store.listen(TURNS) as woken:
            with self.dispatcher.reserved() as freed:
                # Only what is found at the start can have been the cause of a crash loop.
                if self._is_calm is None:
                    self._is_calm = await retry_outage(self._starts_calmly)
                if not self._is_calm:
                    await self._give_up()
                    self._is_calm = True
                await self._take_up(freed)
            while True:
                await wait_any(woken, timeout=self._pulse)
                woken.clear()
                with self.dispatcher.reserved() as freed:
                    await self._take_up(freed)

    async def _give_up(self) -> None:
        """All of them, as that takes no room."""
        while await self._take_over(_PAGE, takes_up=False):
            pass

    async def _take_up(self, freed: asyncio.Event) -> None:
        """As many as there are. What is new begins after them: else it would take every lane that gets free."""
        is_more = True
        while is_more:
            await retry_outage(self._reclaim_sends)
            freed.clear()
            if room := self.dispatcher.room:
                is_more = await self._take_over(room, takes_up=True) == room
            else:
                await wait_any(freed, timeout=self._pulse)

    async def _take_over(self, limit: int, *, takes_up: bool) -> int:
        turns = await retry_outage(lambda: self._reclaim_turns(limit))
        for turn in turns:
            if turn.attempt > 1:  # else it was made for whoever comes first
                log.warning("turn taken over", extra={"action": "turn.reclaimed", "turn": turn.number})
                self.ctx.meter.count("turns_reclaimed")
            self.dispatcher.start(turn.key, partial(self.runner.take_over, turn, takes_up=takes_up))
        return len(turns)

    async def sweep(self) -> None:
        """End what has expired, finalise what has ended, forget routes and people, sum up use; until cancelled."""
        with self.ctx.store.listen(ERASURES) as asked:
            while True:
                asked.clear()
                pause = self.ctx.options.sweep_every.total_seconds()
                if await retry_outage(self._is_sweeper):
                    for step in (self._end_expired, self._finalise, self._drop_routes, self._hush, self._sum_up):
                        await retry_outage(step)
                    if not await retry_outage(self._forget):
                        pause = min(pause, _SOON)
                await wait_any(asked, timeout=pause)

    async def _is_sweeper(self) -> bool:
        """One gateway sweeps for all, so that hooks are told once."""
        now, lease = self.ctx.clock.now(), 2 * self.ctx.options.sweep_every
        hold = self.ctx.store.accounts.hold(GATEWAY, "sweeper", self.ctx.worker, now, lease, alone=self.ctx.alone)
        return await self.ctx.store.transact(hold) is not None

    async def settle_in(self) -> None:
        """A gateway that has stood for a while did not crash at its start."""
        await asyncio.sleep(self.ctx.options.crash_window.total_seconds())
        await self.ctx.retry_until_stored(self.ctx.store.accounts.calm())

    @property
    def _pulse(self) -> float:
        return self.ctx.options.lease.total_seconds() / 3

    async def _starts_calmly(self) -> bool:
        if not self.ctx.alone:  # then many starts may be those of many gateways; what a turn can do is still limited
            return True
        now = self.ctx.clock.now()
        starts = await self.ctx.store.transact(self.ctx.store.accounts.count_start(now, self.ctx.options.crash_window))
        if starts > self.ctx.options.crash_limit:
            log.error("the gateway keeps crashing; cut-off turns are given up", extra={"action": "crash_loop"})
        return starts <= self.ctx.options.crash_limit

    async def _reclaim_turns(self, limit: int) -> list[Turn]:
        return await self.ctx.store.transact(
            self.ctx.store.turns.reclaim(
                self.ctx.worker,
                self.ctx.clock.now(),
                self.ctx.options.lease,
                alone=self.ctx.alone,
                limit=limit,
                besides=self.dispatcher.keys,
            )
        )

    async def _reclaim_sends(self) -> None:
        for delivery in await self.ctx.store.transact(self.deliveries.reclaim(self.ctx.clock.now())):
            self.ctx.meter.count("sends_unclear")
            log.warning("send without owner", extra={"action": "send.reclaimed", "delivery": delivery.number})

    async def _end_expired(self) -> None:
        """What has ended since the last look; from time to time whatever has ended at all."""
        now, options = self.ctx.clock.now(), self.ctx.options
        rules = {(policy, zone) for policy in options.resets.values() for zone in options.zones.values()}
        reaches = {(policy, zone): policy.latest_expired(now, zone) or _EVER for policy, zone in rules}
        spans = {
            (policy.latest_expired(self._looked, zone) or _EVER, until) for (policy, zone), until in reaches.items()
        }
        looks_at_all = now - self._looked_at_all >= _LOOK_AGAIN
        if looks_at_all:
            spans = {(_EVER, max(reaches.values()))}
        for since, until in spans:
            async for session in self._silent(since, until):
                rule = options.reset_rule(session.origin)
                if session.last_human <= reaches[rule.policy, rule.zone]:
                    await self._expire(session, rule, now)
        self._looked, self._looked_at_all = now, now if looks_at_all else self._looked_at_all

    async def _silent(self, since: datetime, until: datetime) -> AsyncGenerator[Session]:
        last: Session | None = None
        while since < until and (
            page := await self.ctx.store.read(self.ctx.store.expiry.list_idle(since, until, last, _LOOKED_AT_ONCE))
        ):
            for session in page:
                yield session
            last = page[-1]

    async def _expire(self, session: Session, rule: ResetRule, now: datetime) -> None:
        ended = self._happening(EventKind.SESSION_ENDED, session, None)
        expire = self.ctx.event_outbox.with_events(
            self.ctx.store.expiry.expire(session, rule, now),
            lambda reason: [replace(ended, reason=reason)] if reason else [],
        )
        reason = await self.ctx.store.transact(expire)
        if reason:
            log.info("session expired", extra={"action": "session.expired", "session": session.id})
            self._tell(EventKind.SESSION_ENDED, session, reason)

    async def _drop_routes(self) -> None:
        now, endings = self.ctx.clock.now(), self.ctx.store.expiry
        before = now - self.ctx.options.route_limit
        while page := await self.ctx.store.read(endings.list_unused_routes(self._routed_since, before, _PAGE)):
            for key, _ in page:
                await self.ctx.store.transact(endings.drop_route(key, before, now))
            self._routed_since = page[-1][1]
        self._routed_since = before

    async def _hush(self) -> None:
        """Whoever reads the store later finds no code in it."""
        await self.ctx.store.transact(self.ctx.store.pairing.wipe_sent_codes())

    async def _forget(self) -> bool:
        """Go on with what people asked for who want to be forgotten. False if more can be done in a moment."""
        outcomes = await self.ctx.store.erasures.go_on(self.ctx.clock.now(), shelf=self.ctx.shelf)
        for outcome in outcomes:
            if outcome.done:
                log.info("a person was forgotten", extra={"action": "person.erased"})
            elif outcome.busy:
                log.info("to forget a person waits for a turn to end", extra={"action": "person.erase_waits"})
        return all(outcome.done or outcome.busy for outcome in outcomes)

    async def _sum_up(self) -> None:
        """Whoever asks what was used goes through what is not summed up yet: so not much may wait."""
        while await self.ctx.store.transact(self.ctx.store.usage.sum_ended_turns()):
            pass

    async def _finalise(self) -> None:
        """The hooks for a session that has ended, once; tried again twice if one of them fails, or we do."""
        for session in await self.ctx.store.read(self.ctx.store.expiry.list_unfinalised(_PAGE)):
            # Hooks may take their time: whoever sweeps by now tells the rest.
            if not await self._is_sweeper():
                return
            happening = self._happening(EventKind.SESSION_FINALISED, session, session.end_reason)
            tries = self.ctx.store.expiry.count_finalise_try(session, self.ctx.clock.now(), tries=_FINALISE_TRIES)
            # Under the time that stays the same it is owed once, however often hooks have to be told.
            ended = replace(happening, at=session.ended or happening.at)
            if not await self.ctx.store.transact(
                self.ctx.event_outbox.with_events(tries, lambda _, ended=ended: [ended])
            ):
                continue
            told = await self.ctx.hooks.told(happening)
            finalise = self.ctx.store.expiry.mark_finalised(
                session, self.ctx.clock.now(), done=told, tries=_FINALISE_TRIES
            )
            await self.ctx.store.transact(finalise)

    def _tell(self, kind: EventKind, session: Session, reason: EndReason) -> None:
        self.ctx.hooks.tell(self._happening(kind, session, reason))

    def _happening(self, kind: EventKind, session: Session, reason: EndReason | None) -> GatewayEvent:
        return GatewayEvent(kind=kind, at=self.ctx.clock.now(), key=session.key.text, session=session.id, reason=reason)
