"""Faults: what can go wrong on a chat platform, and how often."""

import random
from collections import deque
from collections.abc import Mapping
from enum import StrEnum

from palaver.model.value import value
from palaver.protocols.adapter import PlatformBusy, SendRefused, SendUnclear, TargetGone

__all__ = [
    "Faults",
    "Luck",
    "Mishap",
]


class Mishap(StrEnum):
    """What can become of a send, besides that it works."""

    REFUSED = "refused"
    GONE = "gone"
    BUSY = "busy"
    LOST_BEFORE = "lost-before"
    """The connection breaks before the message is shown; the sender cannot know."""
    LOST_AFTER = "lost-after"
    """The message is shown and the connection breaks before the receipt is back; the sender cannot know."""


@value
class Faults:
    """How often things go wrong, from 0 (never) to 1 (always)."""

    duplicate: float = 0.0
    """An update comes again although it was acknowledged, maybe on another connection."""
    reorder: float = 0.0
    """An update comes before an older one."""
    disconnect: float = 0.0
    """The connection for updates breaks: before an update, or before or after its acknowledgement has arrived."""
    refused: float = 0.0
    gone: float = 0.0
    busy: float = 0.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    delay: float = 0.0
    """Everything takes a random time up to so many seconds."""
    busy_for: float = 1.0
    """How many seconds a busy platform asks to wait."""

    @property
    def risks(self) -> Mapping[Mishap, float]:
        """What may become of a send, and how often."""
        chances = {
            Mishap.REFUSED: self.refused,
            Mishap.GONE: self.gone,
            Mishap.BUSY: self.busy,
            Mishap.LOST_BEFORE: self.lost_before,
            Mishap.LOST_AFTER: self.lost_after,
        }
        return {mishap: chance for mishap, chance in chances.items() if chance > 0}


class Luck:
    """Decides what goes wrong. The same seed and the same calls give the same faults."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.faults = faults
        self._risks = faults.risks
        self.next: deque[Mishap] = deque()
        """What becomes of the next sends for certain, before chance has a say."""
        self._random = random.Random(seed)  # noqa: S311 - no secret depends on it

    def strikes(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def pick(self, count: int) -> int:
        """Which of so many waiting updates comes next: the first, unless they are reordered."""
        return self._random.randrange(count) if self.strikes(self.faults.reorder) else 0

    def delay(self) -> float:
        return self._random.uniform(0, self.faults.delay) if self.faults.delay else 0.0

    def mishap(self) -> Mishap | None:
        if self.next:
            return self.next.popleft()
        return next((mishap for mishap, chance in self._risks.items() if self.strikes(chance)), None)

    def error(self, mishap: Mishap) -> PlatformBusy | SendRefused | SendUnclear:
        match mishap:
            case Mishap.REFUSED:
                return SendRefused("the platform does not like the message")
            case Mishap.GONE:
                return TargetGone("the chat is not there any more")
            case Mishap.BUSY:
                return PlatformBusy(self.faults.busy_for)
            case Mishap.LOST_BEFORE | Mishap.LOST_AFTER:
                return SendUnclear("the connection was lost while sending")
