"""Usage limits: a turn that would exceed one is not run; a notice says so instead of an answer."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.delivery.owner import Reporting
from palaver.engine.jobs.notices import job_cause, notify_job_owner
from palaver.engine.settings import Settings
from palaver.model.quotas import QuotaKind, QuotaReached, check_quotas, period_start
from palaver.model.session import Session, UsageTotal
from palaver.model.source import identity_of
from palaver.model.split import ReplyRoutes
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Received, TurnState
from palaver.store.people import people, usage
from palaver.store.queue import turns
from palaver.store.results import Begun, Held

UNSUMMED_TURNS = 64
"""Sum up usage once so many turns are not in the sums: adding up fewer on each check is cheaper than writing."""


@transaction
def begin_within_quota(
    begin: Transaction[Begun | Held | None], settings: Settings, routes: ReplyRoutes, now: datetime
) -> Statements[Begun | Held | None]:
    """Begin a turn. Over a limit, its messages are stored but the returned turn has already failed."""
    begun = yield from begin
    if not isinstance(begun, Begun) or all(message.inbound.observed for message in begun.messages):
        return begun
    last = begun.messages[-1]
    if not settings.caps.of(last.role):
        return begun
    yield from usage.sum_ended_turns(least=UNSUMMED_TURNS)
    reached = yield from quota_reached(last, begun.opened.session, settings, now)
    if reached is None:
        return begun
    note = Entry(seq=0, role=Role.NOTE, at=now, text=texts.CAPPED_NOTE)
    source, error = last.inbound.origin, texts.cap_error(reached)
    notice = settings.for_reader(texts.cap_notice(reached, settings.zones.find(source)), last.role)
    replies = [] if last.inbound.job else routes.notices(source, notice)
    yield from turns.settle(begun.turn, [note], replies, now, error=error, quota=reached.measure.value)
    if job := last.inbound.job:
        # Once a day is enough: most limits last until midnight.
        cause, why = job_cause(job.number, f"{now:%Y-%m-%d}"), texts.job_over_limit(job.name, reached)
        yield from notify_job_owner(source, why, cause, Reporting(routes, settings.grants), now)
    return replace(begun, turn=replace(begun.turn, state=TurnState.FAILED, error=error))


@transaction
def quota_reached(
    last: Received, session: Session | None, settings: Settings, now: datetime
) -> Statements[QuotaReached | None]:
    """Return the limit that the sender of the last message has reached, if any; without a session, not one of its."""
    source, caps = last.inbound.source, settings.caps.of(last.role)
    zone = settings.zones.find(source)
    since = {measure: period_start(measure, now, zone) for measure in caps}
    used = yield from _load_usage(identity_of(source), session, since)
    return check_quotas(caps, used, now, zone)


def _load_usage(
    identity: str | None, session: Session | None, since: Mapping[QuotaKind, datetime]
) -> Statements[dict[QuotaKind, UsageTotal]]:
    """Load only the usage that some limit needs."""
    used: dict[QuotaKind, UsageTotal] = {}
    for measure, start in since.items():
        match measure:
            case QuotaKind.SESSION:
                used |= {measure: session.counters} if session else {}
            case QuotaKind.DAY:
                used[measure] = yield from usage.total(start)
            case _ if identity is not None:
                person = yield from people.principal_of(identity)
                used[measure] = yield from usage.total(start, person.identities)
            case _:
                pass
    return used
