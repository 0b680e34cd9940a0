"""Caps: what would go over one is not begun, and a sentence says so instead of an answer."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from palaver.domain.caps import Measure, Reached, Spent, beginning, decide_cap
from palaver.domain.lifecycle import TurnState
from palaver.domain.session import Session, identity_of
from palaver.domain.source import Source
from palaver.domain.transcript import Entry, Role
from palaver.domain.turn import Received
from palaver.domain.value import value
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.ports.repositories import Store
from palaver.ports.store import Begun, Held
from palaver.ports.work import Steps, Work, work

__all__ = ["Capping"]

_MANY = 64
"""Turns that are not in the sums yet: to go through fewer than these at every look costs less than to write."""


@value(kw_only=False)
class Capping:
    on: Ground

    @work
    def within(self, begin: Work[Begun | Held | None], now: datetime) -> Steps[Begun | Held | None]:
        """What was said stands in the transcript either way; over a cap the turn that is given has failed already."""
        begun = yield from begin
        if not isinstance(begun, Begun) or all(message.inbound.observed for message in begun.messages):
            return begun
        last = begun.messages[-1]
        if not self.on.options.caps.of(last.role):
            return begun
        yield from self.on.store.uses.fold(least=_MANY)
        reached = yield from self.reached(last, begun.opened.session, now)
        if reached is None:
            return begun
        note = Entry(seq=0, role=Role.NOTE, at=now, text=words.CAPPED_NOTE)
        source, error = last.inbound.source, words.cap_error(reached)
        replies = self.on.replies.to(source, words.cap_notice(reached, self._zone(source)))
        yield from self.on.store.turns.settle(begun.turn, [note], replies, now, error=error)
        return replace(begun, turn=replace(begun.turn, state=TurnState.FAILED, error=error))

    @work
    def reached(self, last: Received, session: Session, now: datetime) -> Steps[Reached | None]:
        """The cap that leaves whoever spoke last in a session no room for more."""
        source, caps = last.inbound.source, self.on.options.caps.of(last.role)
        zone = self._zone(source)
        since = {measure: beginning(measure, now, zone) for measure in caps}
        used = yield from _used(self.on.store, identity_of(source), session, since)
        return decide_cap(caps, used, now, zone)

    def _zone(self, source: Source) -> ZoneInfo:
        return self.on.options.zones.find(source).value


def _used(
    store: Store, identity: str | None, session: Session, since: Mapping[Measure, datetime]
) -> Steps[dict[Measure, Spent]]:
    """Only what a cap asks for is looked up."""
    used: dict[Measure, Spent] = {}
    for measure, start in since.items():
        match measure:
            case Measure.SESSION:
                counters = session.counters
                used[measure] = Spent(
                    turns=counters.turns,
                    input_tokens=counters.input_tokens,
                    output_tokens=counters.output_tokens,
                    cost_micros=counters.cost_micros,
                )
            case Measure.DAY:
                used[measure] = yield from store.uses.spent(start)
            case _ if identity is not None:
                person = yield from store.people.principal_of(identity)
                used[measure] = yield from store.uses.spent(start, person.identities)
            case _:
                pass
    return used
