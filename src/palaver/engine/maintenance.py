"""Maintenance: extend leases, recover what has no living owner, end and delete what has expired."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from palaver.db.high_water import Loss
from palaver.db.transaction import COMMITS_MISSING, INBOX, TURNS, Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext, LiveState, Resources
from palaver.engine.delivery.owner import Reporting, notify_owner
from palaver.engine.delivery.worker import DeliveryWorker
from palaver.engine.hooks import NoMeter
from palaver.engine.retry import log_error, retry_outage, retry_until_stored, wait_any
from palaver.engine.turns.dispatcher import Dispatcher
from palaver.engine.turns.runner import TurnRunner
from palaver.model.errors import NewerSchema, StoreError, StoreUnavailable
from palaver.model.reset import ResetRule
from palaver.model.retention import RetentionRules
from palaver.model.session import EndReason, Session
from palaver.model.turn import Outbound, Turn
from palaver.protocols.hooks import EventKind, EventSubscription, GatewayEvent
from palaver.store.accounts import GATEWAY
from palaver.store.clock import StoreClock
from palaver.store.conversations.expiry import expire
from palaver.store.jobs.jobs import KEEP_ENDED
from palaver.store.privacy.erasure import ERASURES
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.queue.outbox import enqueue_events, with_events
from palaver.store.retention.retention import Retention
from palaver.store.scrub import SCRUBS, owed_scrubs

log = logging.getLogger(__name__)

PAGE_SIZE = 500
SESSION_PAGE_SIZE = 100
FULL_SCAN_EVERY = timedelta(hours=1)
"""How often to look at all idle sessions again: one may have been busy, or its rule may have changed."""
ERASURE_PAUSE_SECONDS = 1.0
SCRUB_PAUSE_SECONDS = 60.0
"""Removing traces of deleted rows takes the database long, so do it for many deletions at once."""
RETENTION_START_SECONDS = 60.0
"""At most, after a start: a gateway that seldom runs for an hour deletes, too."""
RETENTION_PAUSE_SECONDS = 3600.0
RETENTION_STEP_PAUSE_SECONDS = 0.05
"""Between two small transactions of retention, so that turns go first."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FINALISE_TRIES = 3
_SWEEPER = "sweeper"
"""The lease of the one gateway that does maintenance for all."""


@dataclass(kw_only=True)
class Maintenance:
    ctx: EngineContext
    resources: Resources
    live: LiveState
    dispatcher: Dispatcher
    runner: TurnRunner
    deliveries: DeliveryWorker
    _paused: Collection[int] | None = None
    """Turns found at the start that wait for a message or a command; None before that is known."""
    _scanned_until: datetime = EPOCH
    """Sessions that expired before this are ended."""
    _scanned_all_at: datetime = EPOCH
    _erasing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One pass at a time: two take each other's rows for those of a running turn."""

    async def serve_heartbeat(self) -> None:
        """Extend leases, compare clocks and report levels, until cancelled."""
        while True:
            await retry_outage(self.compare_clocks)
            await retry_outage(self.runner.heartbeat)
            await retry_outage(self._report_levels)
            await retry_outage(self._find_failing)
            await asyncio.sleep(self._heartbeat_seconds)

    async def compare_clocks(self) -> None:
        """Take on no work while our clock is wrong: people would read wrong times, and codes would not expire."""
        if not isinstance(self.ctx.clock, StoreClock):
            return
        before, self.live.clock_problem = self.live.clock_problem, await self.ctx.clock.compare()
        if self.live.clock_problem and not before:
            log.error("%s; not serving until it is right", self.live.clock_problem, extra={"action": "clock.wrong"})
        elif before and not self.live.clock_problem:
            log.info("the clock is right again", extra={"action": "clock.right"})

    async def _report_levels(self) -> None:
        meter, store = self.ctx.meter, self.ctx.store
        if isinstance(meter, NoMeter):
            return
        meter.level("lanes", self.dispatcher.running)
        meter.level("leases", len(self.runner.running))
        meter.level("accounts", len(self.deliveries.accounts.served()))
        meter.level("inbox_waiting", await store.read(store.inbox.count_waiting()))
        meter.level("outbox_due", await store.read(store.outbox.count_due()))
        now, oldest = self.ctx.clock.now(), await store.read(store.overview.oldest_work())
        meter.level("inbox_oldest_seconds", _age(oldest.waiting, now))
        meter.level("outbox_oldest_seconds", _age(oldest.due, now))

    async def _find_failing(self) -> None:
        """Learn which agents failed, here or at another gateway, so that the next answer ends the problem."""
        self.live.failing_profiles = await self.ctx.store.read(self.ctx.store.problems.failing_profiles())

    async def watch_epochs(self) -> None:
        """Give up what is in memory when commits are missing, and tell the owner, until cancelled."""
        with self.ctx.store.listen(COMMITS_MISSING) as began:
            while True:
                began.clear()
                if loss := self.ctx.store.take_loss():
                    log.error("commits are missing in the database", extra={"action": "store.commits_missing"})
                    self.deliveries.lose_track()
                    await self.dispatcher.give_up()
                    await retry_until_stored(self.ctx.store, self._report_loss(loss))
                await began.wait()

    def _report_loss(self, loss: Loss) -> Transaction[None]:
        epochs, worker = self.ctx.store.epochs, self.ctx.worker
        missing = [f"{epochs.name(each.kind, each.number)} ({each.place}, {each.at:%H:%M:%S})" for each in loss.missing]
        text = texts.commits_missing(f"{loss.began:%Y-%m-%d %H:%M:%S %Z}", missing)
        cause = SendCause(CauseKind.PROBLEM, f"epoch {loss.check}", worker)
        reporting = Reporting(self.ctx.replies.routes, self.ctx.settings.grants)
        nowhere = Outbound(platform=GATEWAY, chat_id="", text="")
        return notify_owner(nowhere, text, cause, reporting, self.ctx.clock.now())

    async def recover(self) -> None:
        """Recover turns and sends that have no living owner, at the start and whenever a worker dies."""
        with self.ctx.store.listen(TURNS) as woken, self.ctx.store.listen(INBOX) as arrived:
            with self.dispatcher.reserved() as task_ended:
                # Only turns that are found at the start can have caused a crash loop.
                if self._paused is None:
                    self._paused = await retry_outage(self._find_paused)
                await self._resume_turns(task_ended)
            while True:
                # A message or a command resumes a paused turn.
                signals = (woken, self.dispatcher.has_lost_track, *([arrived] if self._paused else []))
                await wait_any(*signals, timeout=self._heartbeat_seconds)
                woken.clear()
                arrived.clear()
                with self.dispatcher.reserved() as task_ended:
                    await self._resume_turns(task_ended)

    async def _resume_turns(self, task_ended: asyncio.Event) -> None:
        """Resume all interrupted turns before new ones start, which would take all the room."""
        is_more = True
        while is_more:
            await retry_outage(self._reclaim_sends)
            task_ended.clear()
            if room := self.dispatcher.room:
                is_more = await self._recover_turns(room) == room
            else:
                await wait_any(task_ended, timeout=self._heartbeat_seconds)

    async def _recover_turns(self, limit: int) -> int:
        turns = await retry_outage(lambda: self._reclaim_turns(limit))
        self._paused = frozenset(self._paused or ()).difference(turn.number for turn in turns)
        for turn in turns:
            if turn.attempt > 1:  # a first attempt was created for any worker to start
                log.warning("recovering a turn", extra={"action": "turn.reclaimed", "turn": turn.number})
                self.ctx.meter.count("turns_reclaimed")
            self.dispatcher.start(turn.key, partial(self.runner.resume, turn))
        return len(turns)

    async def sweep(self) -> None:
        """End expired sessions, finalise ended ones, forget people and sum up usage, until cancelled."""
        with self.ctx.store.listen(ERASURES) as asked:
            while True:
                asked.clear()
                pause = self.ctx.settings.limits.sweep_every.total_seconds()
                if await retry_outage(self._is_sweeper):
                    for step in (
                        self._end_expired,
                        self._finalise,
                        self.deliveries.report_unclear,
                        self._clean_up_pairing,
                        self._drop_ended_jobs,
                        self._sum_up_usage,
                    ):
                        await retry_outage(step)
                    if not await retry_outage(self._erase_people):
                        pause = min(pause, ERASURE_PAUSE_SECONDS)
                await wait_any(asked, timeout=pause)

    async def scrub(self) -> None:
        """Remove traces of deleted rows, until cancelled. What fails is tried again."""
        with self.ctx.store.listen(SCRUBS) as deleted:
            while True:
                deleted.clear()
                owed = await retry_outage(lambda: self.ctx.store.read(owed_scrubs()))
                if owed and await retry_outage(self._is_sweeper):
                    await self._scrub()
                    await asyncio.sleep(SCRUB_PAUSE_SECONDS)
                else:
                    await wait_any(deleted, timeout=self.ctx.settings.limits.sweep_every.total_seconds())

    async def retain(self) -> None:
        """Delete what is over its age, count or size, until cancelled. A restart continues.

        One gateway does it for all, except that every machine has its own files.
        """
        pause = RETENTION_START_SECONDS * self.ctx.rng.uniform(0.5, 1.0)  # gateways that start together do not all ask
        while True:
            await asyncio.sleep(pause)
            pause = RETENTION_PAUSE_SECONDS
            rules = self.ctx.settings.retention
            if not await retry_outage(self._is_sweeper):
                rules = rules.of_one_machine()
            if not self.live.clock_problem:
                await retry_outage(partial(self._retain, rules))

    async def _retain(self, rules: RetentionRules) -> None:
        retention = Retention(
            database=self.ctx.store.database,
            blobs=self.resources.blob_store,
            outputs=self.resources.outputs,
            pause=partial(asyncio.sleep, RETENTION_STEP_PAUSE_SECONDS),
        )
        try:
            gone = await retention.run(rules, self.ctx.clock.now())
        except (StoreUnavailable, NewerSchema):
            raise
        except (StoreError, OSError) as error:
            log_error(log, "retention is tried again", error, {"action": "retention.failed"})
            return
        for each in gone:
            if each.items:
                extra = {"action": "retention.deleted", "class": each.kind.value, "items": each.items}
                log.info("retention deleted what was over its limits", extra=extra)

    async def _scrub(self) -> None:
        try:
            await retry_outage(self.ctx.store.scrub)
        except NewerSchema:
            raise
        except StoreError as error:
            log_error(log, "traces of deleted rows stay for now", error, {"action": "scrub.failed"})

    async def _is_sweeper(self) -> bool:
        """Hold the sweeper's lease: one gateway sweeps for all, so that hooks are called once."""
        if self.live.clock_problem:
            return False
        now, lease = self.ctx.clock.now(), 2 * self.ctx.settings.limits.sweep_every
        hold = self.ctx.store.accounts.acquire(GATEWAY, _SWEEPER, self.ctx.worker, now, lease, alone=self.ctx.alone)
        return await self.ctx.store.transact(hold) is not None

    async def release(self) -> None:
        """Let another gateway do maintenance at once."""
        await self.ctx.store.transact(self.ctx.store.accounts.release(GATEWAY, _SWEEPER, self.ctx.worker))

    async def confirm_start(self) -> None:
        """After a while, record that this start did not crash."""
        await asyncio.sleep(self.ctx.settings.limits.crash_window.total_seconds())
        await retry_until_stored(self.ctx.store, self.ctx.store.accounts.reset_start_count())

    @property
    def _heartbeat_seconds(self) -> float:
        return self.ctx.settings.limits.lease.total_seconds() / 3

    async def _find_paused(self) -> Collection[int]:
        """Count this start. After several quick ones, return the interrupted turns: one may crash the gateway."""
        if not self.ctx.alone:  # many gateways have many starts; attempts per turn are still limited
            return ()
        store, now = self.ctx.store, self.ctx.clock.now()
        starts = await store.transact(store.accounts.count_start(now, self.ctx.settings.limits.crash_window))
        if starts <= self.ctx.settings.limits.crash_limit:
            return ()
        log.error("the gateway keeps crashing; interrupted turns wait for a message", extra={"action": "crash_loop"})
        return await store.transact(store.turns.interrupt_all(self.ctx.worker, now))

    async def _reclaim_turns(self, limit: int) -> list[Turn]:
        has_lost_track = self.dispatcher.has_lost_track
        reclaim = self.ctx.store.turns.reclaim(
            self.ctx.worker,
            self.ctx.clock.now(),
            self.ctx.settings.limits.lease,
            alone=self.ctx.alone,
            limit=limit,
            besides=self.dispatcher.keys,
            paused=self._paused or (),
            known=self.runner.running if has_lost_track.is_set() else None,
            kept_back=self.live.departures.kept_back(),
        )
        has_lost_track.clear()
        try:
            return await self.ctx.store.transact(reclaim)
        except StoreUnavailable:
            has_lost_track.set()
            raise

    async def _reclaim_sends(self) -> None:
        if self.live.clock_problem:
            return
        for delivery in await self.deliveries.reclaim():
            self.ctx.meter.count("sends_unclear")
            log.warning("a send has no owner", extra={"action": "send.reclaimed", "delivery": delivery.number})

    async def _end_expired(self) -> None:
        """End sessions that expired since the last scan, and from time to time all that did."""
        now, settings = self.ctx.clock.now(), self.ctx.settings
        rules = {(policy, zone) for policy in settings.resets.values() for zone in settings.zones.values()}
        reaches = {(policy, zone): policy.latest_expired(now, zone) or EPOCH for policy, zone in rules}
        spans = {
            (policy.latest_expired(self._scanned_until, zone) or EPOCH, until)
            for (policy, zone), until in reaches.items()
        }
        scans_all = now - self._scanned_all_at >= FULL_SCAN_EVERY
        if scans_all:
            spans = {(EPOCH, max(reaches.values()))}
        for since, until in spans:
            async for session in self._idle_sessions(since, until):
                rule = settings.reset_rule(session.origin)
                if session.last_human <= reaches[rule.policy, rule.zone]:
                    await self._expire(session, rule, now)
        self._scanned_until, self._scanned_all_at = now, now if scans_all else self._scanned_all_at

    async def _idle_sessions(self, since: datetime, until: datetime) -> AsyncGenerator[Session]:
        last: Session | None = None
        while since < until and (
            page := await self.ctx.store.read(self.ctx.store.expiry.list_idle(since, until, last, SESSION_PAGE_SIZE))
        ):
            for session in page:
                yield session
            last = page[-1]

    async def _expire(self, session: Session, rule: ResetRule, now: datetime) -> None:
        reason = await self.ctx.store.transact(_expire(session, rule, now, self.ctx.subscriptions))
        if reason:
            log.info("session expired", extra={"action": "session.expired", "session": session.id})
            self.ctx.hooks.tell(_event(EventKind.SESSION_ENDED, session, now, reason))

    async def _drop_ended_jobs(self) -> None:
        await self.ctx.store.transact(self.ctx.store.jobs.drop_ended(self.ctx.clock.now() - KEEP_ENDED))

    async def _clean_up_pairing(self) -> None:
        pairing = self.ctx.store.pairing
        await self.ctx.store.transact(pairing.wipe_sent_codes())
        await self.ctx.store.transact(pairing.drop_expired(self.ctx.clock.now()))

    async def _erase_people(self) -> bool:
        """Continue erasures. Return False if more can be done soon."""
        async with self._erasing:
            outcomes = await self.ctx.store.erasures.resume_all(self.ctx.clock.now(), blobs=self.resources.blob_store)
        for outcome in outcomes:
            if outcome.done:
                log.info("a person was forgotten", extra={"action": "person.erased"})
            elif outcome.busy:
                log.info("an erasure waits for a turn to end", extra={"action": "person.erase_waits"})
            if outcome.failed:
                extra = {"action": "person.erase_failed"}
                log.error("an erasure is tried again: %s", outcome.failed, extra=extra)
        return all(outcome.done or outcome.busy or outcome.failed for outcome in outcomes)

    async def finish_erasures(self) -> None:
        """Continue erasures before the gateway stops: one for a single command may not start again soon."""
        if await self.ctx.store.erasures.is_any_open() and await self._is_sweeper():
            await self._erase_people()

    async def _sum_up_usage(self) -> None:
        """Sum up usage, so that a usage report reads few single turns."""
        while await self.ctx.store.transact(self.ctx.store.usage.sum_ended_turns()):
            pass

    async def _finalise(self) -> None:
        """Call the hooks for ended sessions, with retries if one of them or this process fails."""
        for session in await self.ctx.store.read(self.ctx.store.expiry.list_unfinalised(PAGE_SIZE)):
            # Hooks can be slow: another gateway may be the sweeper by now.
            if not await self._is_sweeper():
                return
            now = self.ctx.clock.now()
            event = _event(EventKind.SESSION_FINALISED, session, now, session.end_reason)
            store, hooks = self.ctx.store, self.ctx.hooks
            tries = store.expiry.count_finalise_try(session, now, tries=FINALISE_TRIES)
            # Use a fixed time, so that the event is sent once although hooks may be called again.
            ended = replace(event, at=session.ended or now)
            told = await store.transact(with_events(tries, self.ctx.subscriptions, [ended]))
            if told is None:
                continue
            for name in hooks.names - told:
                if await hooks.call(name, event):
                    told |= {name}
                    await store.transact(store.expiry.record_finalised_by(session, told))
            done = hooks.names <= told
            finalise = store.expiry.mark_finalised(session, self.ctx.clock.now(), done=done, tries=FINALISE_TRIES)
            await store.transact(finalise)


@transaction
def _expire(
    session: Session, rule: ResetRule, now: datetime, subscriptions: Sequence[EventSubscription]
) -> Statements[EndReason | None]:
    reason = yield from expire(session, rule, now)
    if reason and subscriptions:
        yield from enqueue_events(subscriptions, [_event(EventKind.SESSION_ENDED, session, now, reason)])
    return reason


def _event(kind: EventKind, session: Session, now: datetime, reason: EndReason | None) -> GatewayEvent:
    return GatewayEvent(kind=kind, at=now, key=session.key.text, session=session.id, reason=reason)


def _age(since: datetime | None, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds()) if since else 0.0
