"""What does not arrive: what follows from it, in the step that writes it down, and who is told of it."""

from datetime import datetime

from palaver.domain.lifecycle import OutboxState
from palaver.domain.source import Source
from palaver.domain.turn import Delivery, Outbound
from palaver.domain.value import value
from palaver.engine import words
from palaver.engine.ground import Ground
from palaver.engine.handing import Handoffs
from palaver.ports.work import Steps, Work, work

__all__ = ["Undelivered"]


@value
class Undelivered:
    on: Ground
    handoffs: Handoffs

    @work
    def settles(self, delivery: Delivery, step: Work[OutboxState], now: datetime) -> Steps[OutboxState]:
        """The step that settles a send, and what follows from its result."""
        state = yield from step
        yield from self.follows(delivery, state, now)
        return state

    @work
    def follows(self, delivery: Delivery, state: OutboxState, now: datetime) -> Steps[None]:
        """What was to come with a send that does not arrive does not come either."""
        if state in {OutboxState.DEAD, OutboxState.UNCLEAR}:
            yield from self.handoffs.failed(delivery.outbound, now)
        if state is OutboxState.UNCLEAR:
            yield from self._tell_unclear(delivery, now)

    @work
    def bury(self, delivery: Delivery, step: Work[OutboxState], error: str, now: datetime) -> Steps[bool]:
        """False where the chat is not gone but has another id."""
        if (yield from self.settles(delivery, step, now)) is not OutboxState.DEAD:
            return False
        # Where we only tell what happens there is no chat: the account itself says that it is switched off.
        if delivery.outbound.is_news or (yield from self.on.store.places.chat_gone(delivery.outbound, now, error)):
            yield from self._tell_gone(delivery, now)
        return True

    def _tell_gone(self, delivery: Delivery, now: datetime) -> Steps[None]:
        outbound = delivery.outbound
        gone = outbound.account if outbound.is_news else outbound.chat_id
        _, others = yield from self._homes(outbound)
        yield from self._tell(others, words.gone_notice(f"{outbound.platform}:{gone}"), f"gone:{delivery.number}", now)

    def _tell_unclear(self, delivery: Delivery, now: datetime) -> Steps[None]:
        """Once an hour: the first stands for all that an outage loses, and a notice that is lost calls for no other."""
        homes, others = yield from self._homes(delivery.outbound)
        notice = words.unclear_notice(f"out:{delivery.number}")
        yield from self._tell(others or homes, notice, f"unclear:{now:%Y-%m-%dT%H}", now)

    def _homes(self, outbound: Outbound) -> Steps[tuple[list[Source], list[Source]]]:
        """All there are, and those that are not where this was to go."""
        homes = yield from self.on.store.places.all_homes()
        there = (outbound.platform, outbound.account, outbound.chat_id)
        return list(homes), [home for home in homes if (home.platform, home.account, home.chat) != there]

    def _tell(self, homes: list[Source], text: str, name: str, now: datetime) -> Steps[None]:
        for home in homes[:1]:
            notice = self.on.replies.to(home, text)
            yield from self.on.store.outbox.owe(notice[0], name, now)
