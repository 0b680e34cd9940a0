"""Tell the owner of a job what became of it."""

from collections.abc import Iterable
from datetime import datetime

from palaver.db.transaction import Statements, transaction
from palaver.engine import texts
from palaver.engine.delivery.owner import Reporting, notify_job_owner
from palaver.model.firing import FiredJob
from palaver.model.job import Job
from palaver.model.source import Source
from palaver.model.turn import Inbound
from palaver.store.jobs import firings
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.records import micros


def job_cause(job: int, detail: str) -> SendCause:
    return SendCause(CauseKind.JOB, job, detail)


@transaction
def report_unreachable(
    job: FiredJob | Job, origin: Source, unreachable: str, reporting: Reporting, now: datetime, *, runs: bool = True
) -> Statements[None]:
    """Tell the owner of a job which of its targets it cannot send to, at most once an hour."""
    notice, cause = (
        texts.job_not_sent(job.name, job.number, unreachable, runs=runs),
        job_cause(job.number, f"targets {now:%Y-%m-%dT%H}"),
    )
    yield from notify_job_owner(origin, notice, cause, reporting, now)


@transaction
def report_paused(number: int, name: str, origin: Source, reporting: Reporting, now: datetime) -> Statements[None]:
    """Tell the owner of a job that it was paused now, because it cannot fire."""
    yield from _report_paused(number, origin, texts.job_paused(name, number), reporting, now)


@transaction
def pause_dead_job(number: int | None, reporting: Reporting, now: datetime) -> Statements[None]:
    """Pause a job if the answers of its last firings reached no target, and tell its owner."""
    paused = (yield from firings.pause_if_dead(number, now)) if number else None
    if number and paused:
        name, origin = paused
        notice = texts.job_target_dead(name, number, firings.DEAD_FIRINGS)
        yield from _report_paused(number, origin, notice, reporting, now)


def _report_paused(number: int, origin: Source, notice: str, reporting: Reporting, now: datetime) -> Statements[None]:
    yield from notify_job_owner(origin, notice, job_cause(number, f"paused {micros(now)}"), reporting, now)


@transaction
def report_failed(inbound: Inbound, why: str, reporting: Reporting, now: datetime) -> Statements[None]:
    """Tell the owner of a job that its turn failed, at most once an hour."""
    if job := inbound.job:
        notice, cause = texts.job_failed(job.name, job.number, why), job_cause(job.number, f"{now:%Y-%m-%dT%H}")
        yield from notify_job_owner(inbound.origin, notice, cause, reporting, now)


@transaction
def report_dropped(
    inbound: Inbound, dropped: Iterable[Source], reporting: Reporting, now: datetime
) -> Statements[None]:
    """Tell the owner of a job for which of its targets they lost the role."""
    if job := inbound.job:
        problems = dict.fromkeys((place.platform for place in dropped), texts.NEEDS_ADMIN)
        yield from report_unreachable(job, inbound.origin, texts.unreachable_targets(problems), reporting, now)
