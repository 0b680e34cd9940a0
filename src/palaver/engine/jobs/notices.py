"""Tell the owner of a job what became of it."""

from datetime import datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.delivery.outcomes import Reporting, notify_owner
from palaver.model.source import Source
from palaver.model.turn import Inbound, outbound_to
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause


def job_cause(job: int, detail: str) -> SendCause:
    return SendCause(CauseKind.JOB, job, detail)


@transaction
def notify_job_owner(
    origin: Source, text: str, cause: SendCause, reporting: Reporting, now: datetime
) -> Statements[None]:
    """Notify the person in the chat where they made the job; the owner of the gateway if that reaches nobody."""
    if reporting.routes.reaches_people(origin):
        yield from outbox.enqueue_parts(reporting.routes.notices(origin, text), cause, now)
    else:
        yield from notify_owner(outbound_to(origin, ""), text, cause, reporting, now)


@transaction
def settle_and_report(
    settle: Transaction[object], inbound: Inbound, why: str, reporting: Reporting, now: datetime
) -> Statements[None]:
    """Settle the failed turn of a job, and tell its owner at most once an hour."""
    yield from settle
    if job := inbound.job:
        notice, cause = texts.job_failed(job.name, job.number, why), job_cause(job.number, f"{now:%Y-%m-%dT%H}")
        yield from notify_job_owner(inbound.origin, notice, cause, reporting, now)
