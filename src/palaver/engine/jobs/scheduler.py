"""The scheduler: find the jobs that are due, and put each firing into the inbox as a message of its owner."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from palaver.db.transaction import JOBS, Statements, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.engine.delivery.owner import Reporting, notify_job_owner
from palaver.engine.delivery.targets import TargetRules, reachable_places
from palaver.engine.intake.admission import CurrentRights
from palaver.engine.intake.receiver import Intake
from palaver.engine.jobs.creation import check_rights, target_rules
from palaver.engine.jobs.notices import job_cause, pause_dead_job, report_paused, report_unreachable
from palaver.engine.retry import log_error, retry_outage, retry_until_stored, wait_any
from palaver.model.access import AccessRole
from palaver.model.errors import InvalidInput, NotAllowed, PalaverError, StoreUnavailable
from palaver.model.job import Job, firing_id
from palaver.model.platform import Platform
from palaver.model.schedule import Once, due_occurrence
from palaver.model.source import Source
from palaver.model.target import parse_targets
from palaver.model.turn import BusyMode, Cause, Destination, Inbound, InboxState, Received, outbound_to
from palaver.store.conversations import mirrors
from palaver.store.jobs.firings import CANNOT_SEND, Fired, Occurrence, fire

log = logging.getLogger(__name__)

BATCH_SIZE = 100
_AWAY = "the gateway was away"


@dataclass(kw_only=True)
class Scheduler:
    ctx: EngineContext
    intake: Intake
    rights: CurrentRights

    async def serve(self) -> None:
        """Fire jobs when they are due, until cancelled."""
        with self.ctx.store.listen(JOBS) as changed:
            while True:
                changed.clear()
                due = await retry_outage(self._fire_due)
                await wait_any(changed, timeout=self._pause_seconds(due))

    def _pause_seconds(self, due: datetime | None) -> float:
        """Look again when the next job is due; early enough for jobs that another process has made."""
        poll = self.ctx.settings.limits.poll
        return max(min(poll, due - self.ctx.clock.now() if due else poll).total_seconds(), 0.001)

    async def _fire_due(self) -> datetime | None:
        """Fire everything that is due; return when the next job is."""
        store, now = self.ctx.store, self.ctx.clock.now()
        while numbers := await store.read(store.firings.list_due(now, BATCH_SIZE)):
            # Gateways that share a store begin with different jobs.
            self.ctx.rng.shuffle(numbers)
            for number in numbers:
                await self._fire(number, now)
            now = self.ctx.clock.now()
        return await store.read(store.firings.next_due())

    async def _fire(self, number: int, now: datetime) -> None:
        """Fire one job. One that cannot be read is paused, so that it holds up no other."""
        store = self.ctx.store
        try:
            job = await store.read(store.jobs.get(number))
            if job is not None:
                await self._fire_job(job, now)
        except StoreUnavailable:
            raise
        except PalaverError as error:
            log_error(log, "a job cannot fire and was paused", error, {"action": "job.paused", "job": number})
            await self._pause(number, now)

    async def _pause(self, number: int, now: datetime) -> None:
        """Pause a job that cannot fire, then tell its owner: an error of the notice must not undo the pause."""
        store = self.ctx.store
        paused = await store.transact(store.jobs.pause_unreadable(number, now))
        if paused is None:
            return
        try:
            await retry_until_stored(store, report_paused(number, *paused, self._reporting(), now))
        except PalaverError as error:
            extra = {"action": "job.pause_not_reported", "job": number}
            log_error(log, "the owner of a job gets no notice that it was paused", error, extra)

    async def _fire_job(self, job: Job, now: datetime) -> None:
        occurrence = await self._occurrence(job, now)
        if occurrence is None:
            return
        fired = await self.ctx.store.transact(_fire_and_tell(job, occurrence, now, self._reporting()))
        if fired is None:
            return
        if fired.skipped:
            self.ctx.meter.count("jobs_skipped")
        else:
            self.ctx.meter.count("jobs_fired")
        extra = {"action": "job.fired", "job": job.number, "inbox": fired.message}
        log.info("a job %s", "was skipped" if fired.skipped else "fired", extra=extra)

    def _reporting(self) -> Reporting:
        return Reporting(self.ctx.replies.routes, self.ctx.settings.grants)

    async def _occurrence(self, job: Job, now: datetime) -> Occurrence | None:
        """Return what fires now, with everything decided as of now: rights, targets and the conversation."""
        at, following = job.requested, job.next_due
        skipped = problem = None
        if at is None:
            if job.next_due is None or job.paused or job.next_due > now:
                return None
            at, following = due_occurrence(job.schedule, job.next_due, now, self.ctx.settings.limits.job_grace)
            skipped = None if at else _AWAY
        origin = await self.intake.canonical(job.origin)
        inbound = Inbound(
            source=replace(origin, message_id=firing_id(job.number, at or now)),
            text=job.prompt,
            at=at or now,
            cause=Cause.SCHEDULE,
            busy=BusyMode.QUEUE,
            plain=True,
            job=job.fired,
        )
        key = await self.intake.place_of(origin) if job.attached else job.key
        if not skipped:
            destinations, problems = await self._destinations(job, inbound, now)
            inbound = replace(inbound, destinations=tuple(destinations))
            problem = texts.unreachable_targets(problems) or None
            skipped = None if destinations else f"{CANNOT_SEND} {problem}"
        # A missed occurrence is recorded under the time at which it was due.
        at = at or job.next_due or now
        return Occurrence(at=at, following=following, key=key, inbound=inbound, skipped=skipped, problem=problem)

    async def _destinations(
        self, job: Job, inbound: Inbound, now: datetime
    ) -> tuple[list[Destination], dict[str, str]]:
        """Return where the answer goes now, and of each target that it does not reach why."""
        store, origin = self.ctx.store, replace(inbound.source, message_id=None)
        received = Received(
            number=0,
            key=job.key,
            inbound=inbound,
            state=InboxState.WAITING,
            received=now,
            role=job.role,
            basis=job.basis,
        )
        kept, _ = await store.read(self.rights.split([received]))
        homes = await store.read(store.accounts.list_homes(origin.profile, self.rights.rules()))
        rules = target_rules(origin, homes, self.ctx.replies.senders, job.name, inbound.at)
        places, problems = dict[object, Source](), dict[str, str]()
        for word in job.targets.split(","):
            # Somebody without access is refused when the turn begins.
            found, problem = _reach(word, rules, self.ctx.replies.platforms, kept[0].role if kept else job.role)
            places |= {place.address: place for place in found}
            gone = [each for each in found if await store.read(store.accounts.is_chat_gone(outbound_to(each, "")))]
            problem = problem or (texts.CHAT_GONE if gone else None)  # It is tried all the same: it may be back.
            problems |= {word: problem} if problem else {}
        return [Destination(place=each, mirror=await self._mirror(job, each)) for each in places.values()], problems

    async def _mirror(self, job: Job, place: Source) -> str | None:
        """Return the key of the conversation in a chat, if the job is to be mirrored and one is open there."""
        is_its_own = job.attached and place.address == job.origin.address
        if not job.mirrors or is_its_own:
            return None
        chat = await self.ctx.store.read(mirrors.find_chat(self.ctx.current_source(place)))
        return chat and chat.text


def _reach(
    word: str, rules: TargetRules, platforms: Mapping[str, Platform], role: AccessRole | None
) -> tuple[list[Source], str | None]:
    """Return the places that a target leads to, and why it does not lead to all."""
    try:
        targets = parse_targets(word, platforms)
        check_rights(targets, role)
    except NotAllowed:
        return [], texts.NEEDS_ADMIN
    except InvalidInput:
        return [], texts.UNKNOWN_TARGET
    problem = next((why for target in targets if (why := rules.problem(target))), None)
    try:
        return reachable_places(targets, rules), problem
    except InvalidInput as error:
        return [], problem or texts.refusal(error)


@transaction
def _fire_and_tell(job: Job, occurrence: Occurrence, now: datetime, reporting: Reporting) -> Statements[Fired | None]:
    """Fire a job. Tell its owner if it cannot run: a reminder that was missed would otherwise never come."""
    fired = yield from fire(job, occurrence, now)
    if fired is None:
        return None
    if occurrence.problem:
        runs = occurrence.skipped is None
        yield from report_unreachable(job, job.origin, occurrence.problem, reporting, now, runs=runs)
        if not runs:
            yield from pause_dead_job(job.number, reporting, now)
    elif occurrence.skipped and isinstance(job.schedule, Once):
        notice = texts.job_missed(job.name, job.prompt)
        yield from notify_job_owner(job.origin, notice, job_cause(job.number, "missed"), reporting, now)
    return fired
