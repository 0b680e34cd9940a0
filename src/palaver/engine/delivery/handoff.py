"""Handoffs: what becomes of a conversation whose announcement has arrived in another place, or never will."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Outbound, outbound_to
from palaver.model.value import value
from palaver.store.queue.cause import CauseKind, SendCause

__all__ = [
    "Handoffs",
]


@transaction
def _nothing() -> Statements[None]:
    yield from ()


@value(kw_only=False)
class Handoffs:
    ctx: EngineContext
    place_of: Callable[[Source], Awaitable[SessionKey]]
    """The key of a place, whatever it is attached to."""

    async def arrival(self, announced: Outbound, thread: str | None, now: datetime) -> Transaction[None]:
        """What is to be done in the step that records the arrival. The thread is the one that was opened for it."""
        number = announced.handoff
        course = None if number is None else await self.ctx.store.read(self.ctx.store.handoff.course(number))
        if number is None or course is None:
            return _nothing()
        origin, home = course
        address = replace(home, thread_id=thread or home.thread_id)
        return self._arrive(number, await self.place_of(address), origin, address, now)

    @transaction
    def _arrive(
        self, number: int, place: SessionKey, origin: Source, address: Source, now: datetime
    ) -> Statements[None]:
        store, returned = self.ctx.store, outbound_to(origin, texts.RETURNED)
        recalled = outbound_to(address, texts.RECALLED)
        session = yield from store.handoff.arrive(number, place, address, now, recalled=recalled, returned=returned)
        if session is None:
            yield from store.outbox.enqueue(recalled, SendCause(CauseKind.HANDOFF_RECALLED, number), now)
            return
        note = texts.handoff_note(origin.platform, address.platform)
        yield from store.transcript.append_outside_turn(place, Entry(seq=0, role=Role.NOTE, at=now, text=note))
        told = outbound_to(origin, texts.handed_off(address.platform))
        yield from store.outbox.enqueue(told, SendCause(CauseKind.HANDOFF_DONE, number), now)

    @transaction
    def failed(self, announced: Outbound, now: datetime) -> Statements[None]:
        """It will not arrive, or nobody knows whether it did."""
        number, store = announced.handoff, self.ctx.store
        course = None if number is None else (yield from store.handoff.course(number))
        if number is None or course is None:
            return
        is_here = yield from store.handoff.stay(number, now)
        if is_here is not None:
            told = outbound_to(course[0], texts.not_handed_off(announced.platform, is_here=is_here))
            yield from store.outbox.enqueue(told, SendCause(CauseKind.HANDOFF_FAILED, number), now)
