"""Faults: what can go wrong on a chat platform, by chance or by script."""

import random
from collections import deque
from enum import StrEnum

from palaver.protocols import PlatformBusy, SendRefused, SendUnclear, TargetGone, value

__all__ = ["FaultInjector", "Faults", "SendFault"]


class SendFault(StrEnum):
    """How a send can fail."""

    REFUSED = "refused"
    GONE = "gone"
    BUSY = "busy"
    LOST_BEFORE = "lost-before"
    """The connection breaks before the message is shown; the sender cannot know."""
    LOST_AFTER = "lost-after"
    """The message is shown, and the connection breaks before the receipt is back; the sender cannot know."""


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
    """Everything takes a random time of up to this many seconds."""
    busy_for: float = 1.0
    """How many seconds a busy platform asks to wait."""


class FaultInjector:
    """Decides what goes wrong. The same seed and the same calls give the same faults."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self.faults = faults
        chances: dict[SendFault, float] = {fault: getattr(faults, fault.name.lower()) for fault in SendFault}
        self._chances = {fault: chance for fault, chance in chances.items() if chance > 0}
        self.script: deque[SendFault] = deque()
        """How the next sends fail, one by one, before chance decides."""
        self._random = random.Random(seed)  # noqa: S311 - no secret depends on it

    def strikes(self, chance: float) -> bool:
        return chance > 0 and self._random.random() < chance

    def pick(self, count: int) -> int:
        """Return which of the waiting updates comes next: the first, unless they are reordered."""
        return self._random.randrange(count) if self.strikes(self.faults.reorder) else 0

    def delay(self) -> float:
        return self._random.uniform(0, self.faults.delay) if self.faults.delay else 0.0

    def next_fault(self) -> SendFault | None:
        if self.script:
            return self.script.popleft()
        return next((fault for fault, chance in self._chances.items() if self.strikes(chance)), None)

    def error(self, fault: SendFault) -> PlatformBusy | SendRefused | SendUnclear:
        match fault:
            case SendFault.REFUSED:
                return SendRefused("The platform rejects the message.")
            case SendFault.GONE:
                return TargetGone("The chat is gone.")
            case SendFault.BUSY:
                return PlatformBusy(self.faults.busy_for)
            case SendFault.LOST_BEFORE | SendFault.LOST_AFTER:
                return SendUnclear("The connection was lost while sending.")
