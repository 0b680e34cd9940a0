"""What follows from a send: a handoff takes place or is undone, and the owner gets a notice at home."""

from collections.abc import Collection
from datetime import UTC, datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.delivery.owner import Reporting, notify_owner, pass_on
from palaver.engine.jobs.notices import pause_dead_job
from palaver.model.epochs import NO_EPOCHS
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.split import ReplyRoutes
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Outbound, OutboxState, resolve_unclear
from palaver.store import accounts
from palaver.store.conversations import handoff, transcript
from palaver.store.jobs import firings
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import Departure, RepeatSafety

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Handoffs


@transaction
def complete_handoff(
    number: int, place: SessionKey, origin: Source, home: Source, now: datetime, *, routes: ReplyRoutes
) -> Statements[None]:
    """Move a conversation once its announcement has arrived in the other chat."""
    returned, recalled = routes.notice(origin, texts.RETURNED), routes.notice(home, texts.RECALLED)
    session = yield from handoff.complete(number, place, home, now, recalled=recalled, returned=returned)
    if session is None:
        yield from outbox.enqueue(recalled, SendCause(CauseKind.HANDOFF_RECALLED, number), now)
        return
    note = texts.handoff_note(origin.platform, home.platform)
    yield from transcript.append_outside_turn(place, Entry(seq=0, role=Role.NOTE, at=now, text=note))
    notice = routes.notice(origin, texts.handed_off(home.platform))
    yield from outbox.enqueue(notice, SendCause(CauseKind.HANDOFF_DONE, number), now)


def _cancel_handoff(announced: Outbound, routes: ReplyRoutes, now: datetime) -> Statements[None]:
    """Keep the conversation where it is if its announcement failed or may have failed."""
    number = announced.handoff
    endpoints = None if number is None else (yield from handoff.endpoints(number))
    if number is None or endpoints is None:
        return
    is_here = yield from handoff.cancel(number, now)
    if is_here is not None:
        notice = routes.notice(endpoints[0], texts.not_handed_off(announced.platform, is_here=is_here))
        yield from outbox.enqueue(notice, SendCause(CauseKind.HANDOFF_FAILED, number), now)


# Failures


@transaction
def settle_failed(
    delivery: Delivery, settle: Transaction[OutboxState], reporting: Reporting, now: datetime, *, is_gone: bool = False
) -> Statements[OutboxState]:
    """Settle a send and do what follows from its state. A chat that `is_gone` is reported as gone."""
    state = yield from settle
    yield from _follow_up(delivery, state, reporting, now, is_gone=is_gone)
    return state


@transaction
def settle_gone(
    delivery: Delivery, settle: Transaction[OutboxState], error: str, reporting: Reporting, now: datetime
) -> Statements[bool]:
    """Settle a send to a chat that is gone. Return False if the chat only has a new id."""
    outbound = delivery.outbound
    if (yield from settle_failed(delivery, settle, reporting, now, is_gone=True)) is not OutboxState.DEAD:
        return False
    # Event subscribers have no chat: for them it is the account that is switched off.
    if outbound.is_news or (yield from accounts.mark_chat_gone(outbound, now, error)):
        gone = outbound.account if outbound.is_news else outbound.chat_id
        server = f"@{outbound.scope_id}" if outbound.scope_id else ""
        notice = texts.gone_notice(f"{outbound.platform}{server}:{gone}")
        cause = SendCause(CauseKind.CHAT_GONE, delivery.number)
        yield from notify_owner(outbound, notice, cause, reporting, now)
    return True


@transaction
def reclaim(
    worker: str,
    now: datetime,
    safe: RepeatSafety,
    reporting: Reporting,
    *,
    alone: bool,
    kept_back: Collection[Departure],
    running: Collection[int],
) -> Statements[list[Delivery]]:
    """Release sends whose owner is gone. Return those of which it is unclear whether they arrived."""
    lost = yield from outbox.reclaim_sends(worker, now, safe=safe, alone=alone, kept_back=kept_back, running=running)
    for delivery in lost:
        state, _ = resolve_unclear(delivery, safe=safe.covers(delivery.outbound), crashed=True)
        yield from _follow_up(delivery, state, reporting, now)
    return lost


def _follow_up(
    delivery: Delivery, state: OutboxState, reporting: Reporting, now: datetime, *, is_gone: bool = False
) -> Statements[None]:
    if state in {OutboxState.DEAD, OutboxState.UNCLEAR}:
        yield from _cancel_handoff(delivery.outbound, reporting.routes, now)
    if state is OutboxState.UNCLEAR:
        yield from _report_unclear(delivery, reporting, now)
    if state is OutboxState.DEAD and delivery.turn:
        yield from pause_dead_job((yield from firings.job_of_turn(delivery.turn)), reporting, now)
    if state is OutboxState.DEAD and delivery.outbound.avoids is not None:
        yield from pass_on(delivery, reporting, now)
    elif state is OutboxState.DEAD and not is_gone:
        hour = f"{now:%Y-%m-%dT%H}"  # one notice is enough for all of it
        notice, cause = texts.refused_notice(NO_EPOCHS.send(delivery.number)), SendCause(CauseKind.REFUSED, hour)
        yield from notify_owner(delivery.outbound, notice, cause, reporting, now)


def _report_unclear(delivery: Delivery, reporting: Reporting, now: datetime) -> Statements[None]:
    """Report at most once in `unclear_every`: one outage makes many sends unclear."""
    slot = now - (now - _EPOCH) % reporting.unclear_every
    notice, cause = (
        texts.unclear_notice(NO_EPOCHS.send(delivery.number)),
        SendCause(CauseKind.UNCLEAR, f"{slot:%Y-%m-%dT%T}"),
    )
    yield from notify_owner(delivery.outbound, notice, cause, reporting, now)


@transaction
def report_unclear(reporting: Reporting, now: datetime) -> Statements[None]:
    """Report all sends that have become unclear since the last report, in one notice."""
    for delivery in (yield from outbox.list_unreported(now)):
        yield from _report_unclear(delivery, reporting, now)
