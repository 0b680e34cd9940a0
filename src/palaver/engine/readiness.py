"""Readiness: a turn takes what is said to us, once its files are here; of an album that is known when it is whole."""

from collections.abc import Sequence
from datetime import datetime
from itertools import takewhile

from palaver.domain.busy import Choice
from palaver.domain.turn import Received
from palaver.domain.value import value
from palaver.engine.filing import Filing
from palaver.engine.ground import Ground

__all__ = ["Readiness"]


@value(kw_only=False)
class Readiness:
    on: Ground

    def of(self, choice: Choice, waiting: Sequence[Received]) -> Choice:
        """As much of it as is said to us, or nothing yet."""
        if not choice.take:
            return choice
        known = list(takewhile(self._is_known, waiting[: choice.take]))
        return Choice(take=len(known)) if all(each.inbound.is_whole for each in known) else Choice()

    def _is_known(self, received: Received) -> bool:
        return not self.on.options.is_undecided(received.inbound)

    async def further(self, head: Received) -> datetime | None:
        """One step for what waits in front; gives when to look again, where it is too early for that."""
        if self._is_known(head):
            return await Filing(self.on).fetch(head.key)
        until = head.received + self.on.options.burst_window
        if self.on.clock.now() < until:
            return until
        await self.on.store.transact(self.on.store.parts.decide(head))
        return None
