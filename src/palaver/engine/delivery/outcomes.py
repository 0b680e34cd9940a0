"""What follows from a send: a handoff takes place or is undone, and failures are reported at home."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.delivery.replies import Replies
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Delivery, Outbound, OutboxState, outbound_to
from palaver.model.value import value
from palaver.store.queue.cause import CauseKind, SendCause
from palaver.store.store import Store


@transaction
def _nothing() -> Statements[None]:
    yield from ()


@value
class Handoffs:
    """Moves a conversation once its announcement has arrived in the other chat."""

    store: Store
    place_of: Callable[[Source], Awaitable[SessionKey]]
    """Returns the key of a chat, even while it is attached to another conversation."""

    async def prepare_arrival(self, announced: Outbound, thread: str | None, now: datetime) -> Transaction[None]:
        """Return what to do in the transaction that records the arrival. `thread` was opened for the handoff."""
        number = announced.handoff
        course = None if number is None else await self.store.read(self.store.handoff.endpoints(number))
        if number is None or course is None:
            return _nothing()
        origin, home = course
        address = replace(home, thread_id=thread or home.thread_id)
        return self._arrive(number, await self.place_of(address), origin, address, now)

    @transaction
    def _arrive(
        self, number: int, place: SessionKey, origin: Source, address: Source, now: datetime
    ) -> Statements[None]:
        store, returned = self.store, outbound_to(origin, texts.RETURNED)
        recalled = outbound_to(address, texts.RECALLED)
        session = yield from store.handoff.complete(number, place, address, now, recalled=recalled, returned=returned)
        if session is None:
            yield from store.outbox.enqueue(recalled, SendCause(CauseKind.HANDOFF_RECALLED, number), now)
            return
        note = texts.handoff_note(origin.platform, address.platform)
        yield from store.transcript.append_outside_turn(place, Entry(seq=0, role=Role.NOTE, at=now, text=note))
        notice = outbound_to(origin, texts.handed_off(address.platform))
        yield from store.outbox.enqueue(notice, SendCause(CauseKind.HANDOFF_DONE, number), now)

    @transaction
    def fail(self, announced: Outbound, now: datetime) -> Statements[None]:
        """Keep the conversation where it is if its announcement failed or may have failed."""
        number, store = announced.handoff, self.store
        course = None if number is None else (yield from store.handoff.endpoints(number))
        if number is None or course is None:
            return
        is_here = yield from store.handoff.cancel(number, now)
        if is_here is not None:
            notice = outbound_to(course[0], texts.not_handed_off(announced.platform, is_here=is_here))
            yield from store.outbox.enqueue(notice, SendCause(CauseKind.HANDOFF_FAILED, number), now)


@value
class DeliveryFailures:
    store: Store
    replies: Replies
    handoffs: Handoffs

    @transaction
    def settle(self, delivery: Delivery, step: Transaction[OutboxState], now: datetime) -> Statements[OutboxState]:
        """Settle a send and do what follows from its state."""
        state = yield from step
        yield from self.follow_up(delivery, state, now)
        return state

    @transaction
    def follow_up(self, delivery: Delivery, state: OutboxState, now: datetime) -> Statements[None]:
        if state in {OutboxState.DEAD, OutboxState.UNCLEAR}:
            yield from self.handoffs.fail(delivery.outbound, now)
        if state is OutboxState.UNCLEAR:
            yield from self._report_unclear(delivery, now)

    @transaction
    def settle_gone(
        self, delivery: Delivery, step: Transaction[OutboxState], error: str, now: datetime
    ) -> Statements[bool]:
        """Settle a send to a chat that is gone. Return False if the chat only has a new id."""
        if (yield from self.settle(delivery, step, now)) is not OutboxState.DEAD:
            return False
        # Event subscribers have no chat: for them it is the account that is switched off.
        if delivery.outbound.is_news or (yield from self.store.accounts.mark_chat_gone(delivery.outbound, now, error)):
            yield from self._report_gone(delivery, now)
        return True

    def _report_gone(self, delivery: Delivery, now: datetime) -> Statements[None]:
        outbound = delivery.outbound
        gone = outbound.account if outbound.is_news else outbound.chat_id
        _, others = yield from self._homes(outbound)
        notice = texts.gone_notice(f"{outbound.platform}:{gone}")
        yield from self._notify_first(others, notice, SendCause(CauseKind.CHAT_GONE, delivery.number), now)

    def _report_unclear(self, delivery: Delivery, now: datetime) -> Statements[None]:
        """Report at most once an hour: one outage makes many sends unclear, and lost reports make no further ones."""
        homes, others = yield from self._homes(delivery.outbound)
        notice = texts.unclear_notice(f"out:{delivery.number}")
        yield from self._notify_first(others or homes, notice, SendCause(CauseKind.UNCLEAR, f"{now:%Y-%m-%dT%H}"), now)

    def _homes(self, outbound: Outbound) -> Statements[tuple[list[Source], list[Source]]]:
        """Return all home channels, and those that are not the target of this message."""
        homes = yield from self.store.accounts.list_all_homes()
        target = (outbound.platform, outbound.account, outbound.scope_id, outbound.chat_id)
        return list(homes), [home for home in homes if home.address[:-1] != target]

    def _notify_first(self, homes: list[Source], text: str, cause: SendCause, now: datetime) -> Statements[None]:
        for home in homes[:1]:
            notice = self.replies.to(home, text)
            yield from self.store.outbox.enqueue(notice[0], cause, now)
