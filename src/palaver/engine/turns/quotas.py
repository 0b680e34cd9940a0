"""Usage limits: a turn that would exceed one is not run; a notice says so instead of an answer."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from zoneinfo import ZoneInfo

from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine import texts
from palaver.engine.context import EngineContext
from palaver.model.quotas import QuotaKind, QuotaReached, check_quotas, period_start
from palaver.model.session import Session, UsageTotal
from palaver.model.source import Source, identity_of
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Received, TurnState
from palaver.model.value import value
from palaver.store.results import Begun, Held
from palaver.store.store import Store

UNSUMMED_TURNS = 64
"""Sum up usage once so many turns are not in the sums: adding up fewer on each check is cheaper than writing."""


@value(kw_only=False)
class QuotaCheck:
    ctx: EngineContext

    @transaction
    def begin_within(self, begin: Transaction[Begun | Held | None], now: datetime) -> Statements[Begun | Held | None]:
        """Begin a turn. Over a limit, its messages are stored but the returned turn has already failed."""
        begun = yield from begin
        if not isinstance(begun, Begun) or all(message.inbound.observed for message in begun.messages):
            return begun
        last = begun.messages[-1]
        if not self.ctx.options.caps.of(last.role):
            return begun
        yield from self.ctx.store.usage.sum_ended_turns(least=UNSUMMED_TURNS)
        reached = yield from self.reached(last, begun.opened.session, now)
        if reached is None:
            return begun
        note = Entry(seq=0, role=Role.NOTE, at=now, text=texts.CAPPED_NOTE)
        source, error = last.inbound.source, texts.cap_error(reached)
        replies = self.ctx.replies.to(source, texts.cap_notice(reached, self._zone(source)))
        yield from self.ctx.store.turns.settle(
            begun.turn, [note], replies, now, error=error, quota=reached.measure.value
        )
        return replace(begun, turn=replace(begun.turn, state=TurnState.FAILED, error=error))

    @transaction
    def reached(self, last: Received, session: Session, now: datetime) -> Statements[QuotaReached | None]:
        """Return the limit that the sender of the last message has reached, if any."""
        source, caps = last.inbound.source, self.ctx.options.caps.of(last.role)
        zone = self._zone(source)
        since = {measure: period_start(measure, now, zone) for measure in caps}
        used = yield from _load_usage(self.ctx.store, identity_of(source), session, since)
        return check_quotas(caps, used, now, zone)

    def _zone(self, source: Source) -> ZoneInfo:
        return self.ctx.options.zones.find(source)


def _load_usage(
    store: Store, identity: str | None, session: Session, since: Mapping[QuotaKind, datetime]
) -> Statements[dict[QuotaKind, UsageTotal]]:
    """Load only the usage that some limit needs."""
    used: dict[QuotaKind, UsageTotal] = {}
    for measure, start in since.items():
        match measure:
            case QuotaKind.SESSION:
                used[measure] = session.counters
            case QuotaKind.DAY:
                used[measure] = yield from store.usage.total(start)
            case _ if identity is not None:
                person = yield from store.people.principal_of(identity)
                used[measure] = yield from store.usage.total(start, person.identities)
            case _:
                pass
    return used
