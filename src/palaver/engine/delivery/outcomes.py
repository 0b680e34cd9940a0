"""What follows from a send: a handoff takes place or is undone, and the owner gets a notice at home."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.model.access import Grant
from palaver.model.key import SessionKey
from palaver.model.source import DM, Source
from palaver.model.split import ReplyRoutes
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Outbound, OutboxState, outbound_to, resolve_unclear
from palaver.model.value import value
from palaver.store import accounts
from palaver.store.conversations import handoff, transcript
from palaver.store.people import access_rules
from palaver.store.queue import outbox
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.results import RepeatSafety

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


@value(kw_only=False)
class Reporting:
    """What decides where the owner gets a notice."""

    routes: ReplyRoutes
    grants: Sequence[Grant]
    """The configured ones."""
    unclear_every: timedelta = timedelta(hours=1)
    """How often at most to report sends that stay unclear."""


@transaction
def settle_failed(
    delivery: Delivery, settle: Transaction[OutboxState], reporting: Reporting, now: datetime
) -> Statements[OutboxState]:
    """Settle a send and do what follows from its state."""
    state = yield from settle
    yield from _follow_up(delivery, state, reporting, now)
    return state


@transaction
def settle_gone(
    delivery: Delivery, settle: Transaction[OutboxState], error: str, reporting: Reporting, now: datetime
) -> Statements[bool]:
    """Settle a send to a chat that is gone. Return False if the chat only has a new id."""
    outbound = delivery.outbound
    if (yield from settle_failed(delivery, settle, reporting, now)) is not OutboxState.DEAD:
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
    worker: str, now: datetime, safe: RepeatSafety, reporting: Reporting, *, alone: bool
) -> Statements[list[Delivery]]:
    """Release sends whose owner is gone. Return those of which it is unclear whether they arrived."""
    lost = yield from outbox.reclaim_sends(worker, now, safe=safe, alone=alone)
    for delivery in lost:
        state, _ = resolve_unclear(delivery, safe=safe.covers(delivery.outbound), crashed=True)
        yield from _follow_up(delivery, state, reporting, now)
    return lost


def _follow_up(delivery: Delivery, state: OutboxState, reporting: Reporting, now: datetime) -> Statements[None]:
    if state in {OutboxState.DEAD, OutboxState.UNCLEAR}:
        yield from _cancel_handoff(delivery.outbound, reporting.routes, now)
    if state is OutboxState.UNCLEAR:
        yield from _report_unclear(delivery, reporting, now)


def _report_unclear(delivery: Delivery, reporting: Reporting, now: datetime) -> Statements[None]:
    """Report seldom: one outage makes many sends unclear, and lost reports make no further ones."""
    slot = now - (now - _EPOCH) % reporting.unclear_every
    notice, cause = texts.unclear_notice(f"out:{delivery.number}"), SendCause(CauseKind.UNCLEAR, f"{slot:%Y-%m-%dT%T}")
    yield from notify_owner(delivery.outbound, notice, cause, reporting, now)


@transaction
def report_unclear(reporting: Reporting, now: datetime) -> Statements[None]:
    """Report sends that have become unclear since the last report, with the first that can be told somewhere."""
    for delivery in (yield from outbox.list_unreported(now)):
        yield from _report_unclear(delivery, reporting, now)


@transaction
def notify_owner(
    outbound: Outbound,
    text: str,
    cause: SendCause,
    reporting: Reporting,
    now: datetime,
    *,
    never_there: bool = False,
    account_is_down: bool = False,
) -> Statements[None]:
    """Notify the owner in a home channel that is not gone, or where they wrote last; better not where the send failed.

    With `never_there`, not in the chat of `outbound` even if there is no other. With `account_is_down`, in no chat of
    its account. If there is no home channel, mention once that there can be one.
    """
    routes, place, account = reporting.routes, None, (outbound.platform, outbound.account)

    def is_there(home: Source) -> bool:
        at_account = (home.platform, home.account) == account
        return at_account if account_is_down else home.address[:-1] == outbound.chat

    known = yield from accounts.list_all_homes(access_rules.load(reporting.grants))
    homes = [home for home in known if routes.reaches_people(home)]
    others = [home for home in homes if not is_there(home)]

    def distance(home: Source) -> tuple[bool, ...]:
        """Rank the homes: one at the account in question first, a group of another one last."""
        is_far = (home.platform, home.account) != account
        return home not in others, is_far and home.chat_kind != DM, is_far

    for home in sorted(others if never_there or account_is_down else homes, key=distance):
        if place is None and not (yield from accounts.is_chat_gone(outbound_to(home, ""))):
            place = home
    place = place or (yield from accounts.last_owner_chat(reporting.grants, routes, besides=is_there))
    if place is not None:
        hint = "" if homes or not (yield from accounts.take_home_hint()) else f" {texts.NO_HOME}"
        yield from outbox.enqueue_parts(routes.notices(place, f"{text}{hint}"), cause, now)
