"""Caps: a turn that would go over one ends in the step that begins it, with a sentence instead of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from zoneinfo import ZoneInfo

from palaver.domain.caps import Cap, Measure, Spent, beginning, decide_cap
from palaver.domain.lifecycle import TurnState
from palaver.domain.session import identity_of
from palaver.domain.transcript import Entry, Role
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.ports.repositories import Store
from palaver.ports.store import Begun, Held
from palaver.ports.work import Steps, Work, work

__all__ = ["Capping"]


@dataclass(frozen=True, slots=True)
class Capping:
    on: Ground

    def within(self, begin: Work[Begun | Held | None], now: datetime) -> Work[Begun | Held | None]:
        """What was said stands in the transcript either way; over a cap the turn that is given has failed already."""
        return _within(self.on, begin, now)


@work
def _within(on: Ground, begin: Work[Begun | Held | None], now: datetime) -> Steps[Begun | Held | None]:
    begun = yield from begin
    if not isinstance(begun, Begun) or all(message.inbound.observed for message in begun.messages):
        return begun
    last = begun.messages[-1]
    source, caps = last.inbound.source, on.options.caps.of(last.role)
    zone = on.options.zones.find(source).value
    used = yield from _used(on.store, begun, caps, now, zone)
    reached = decide_cap(caps, used, now, zone)
    if reached is None:
        return begun
    note = Entry(seq=0, role=Role.NOTE, at=now, text=words.CAPPED_NOTE)
    replies = on.replies.to(source, words.cap_notice(reached, zone))
    error = words.cap_error(reached)
    yield from on.store.turns.settle(begun.turn, [note], replies, now, error=error)
    return replace(begun, turn=replace(begun.turn, state=TurnState.FAILED, error=error))


def _used(
    store: Store, begun: Begun, caps: Mapping[Measure, Cap], now: datetime, zone: ZoneInfo
) -> Steps[dict[Measure, Spent]]:
    """Only what a cap asks for is looked up."""
    used: dict[Measure, Spent] = {}
    identity = identity_of(begun.messages[-1].inbound.source)
    for measure in caps:
        since = beginning(measure, now, zone)
        match measure:
            case Measure.SESSION:
                counters = begun.opened.session.counters
                used[measure] = Spent(
                    turns=counters.turns,
                    input_tokens=counters.input_tokens,
                    output_tokens=counters.output_tokens,
                    cost_micros=counters.cost_micros,
                )
            case Measure.DAY:
                used[measure] = yield from store.uses.spent(since)
            case _ if identity is not None:
                person = yield from store.people.principal_of(identity)
                used[measure] = yield from store.uses.spent(since, person.identities)
            case _:
                pass
    return used
