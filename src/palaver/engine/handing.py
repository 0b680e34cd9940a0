"""Handoffs: what becomes of a conversation whose announcement has arrived in another place, or never will."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime

from palaver.domain.key import SessionKey
from palaver.domain.source import Source
from palaver.domain.transcript import Entry, Role
from palaver.domain.turn import Outbound, outbound_to
from palaver.domain.value import value
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.ports.work import Steps, Work, work

__all__ = ["Handoffs"]


@work
def _nothing() -> Steps[None]:
    yield from ()


@value(kw_only=False)
class Handoffs:
    on: Ground
    place_of: Callable[[Source], Awaitable[SessionKey]]
    """The key of a place, whatever it is attached to."""

    async def arrival(self, announced: Outbound, thread: str | None, now: datetime) -> Work[None]:
        """What is to be done in the step that records the arrival. The thread is the one that was opened for it."""
        number = announced.handoff
        course = None if number is None else await self.on.store.read(self.on.store.handing.course(number))
        if number is None or course is None:
            return _nothing()
        origin, home = course
        address = replace(home, thread_id=thread or home.thread_id)
        return self._arrive(number, await self.place_of(address), origin, address, now)

    @work
    def _arrive(self, number: int, place: SessionKey, origin: Source, address: Source, now: datetime) -> Steps[None]:
        store, returned = self.on.store, outbound_to(origin, words.RETURNED)
        recalled = outbound_to(address, words.RECALLED)
        session = yield from store.handing.arrive(number, place, address, now, recalled=recalled, returned=returned)
        if session is None:
            yield from store.outbox.owe(recalled, f"recalled:{number}", now)
            return
        note = words.handoff_note(origin.platform, address.platform)
        yield from store.transcripts.add(place, Entry(seq=0, role=Role.NOTE, at=now, text=note))
        told = outbound_to(origin, words.handed_off(address.platform))
        yield from store.outbox.owe(told, f"handed-off:{number}", now)

    @work
    def failed(self, announced: Outbound, now: datetime) -> Steps[None]:
        """It will not arrive, or nobody knows whether it did."""
        number, store = announced.handoff, self.on.store
        course = None if number is None else (yield from store.handing.course(number))
        if number is None or course is None:
            return
        is_here = yield from store.handing.stay(number, now)
        if is_here is not None:
            told = outbound_to(course[0], words.not_handed_off(announced.platform, is_here=is_here))
            yield from store.outbox.owe(told, f"not-handed-off:{number}", now)
