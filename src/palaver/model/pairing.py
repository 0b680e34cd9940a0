"""Pairing: how a stranger gets access, and how often they can ask for it."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from palaver.model.value import value

CODE_LIFETIME = timedelta(hours=1)
REQUEST_INTERVAL = timedelta(minutes=10)
"""How long a stranger who got a code waits for the next one."""
MAX_PENDING = 3
"""Strangers with a valid code on one platform at the same time."""
MAX_KEPT_MESSAGES = 10
"""Messages of one stranger that are kept until they are approved."""
MAX_FAILURES = 5
LOCKOUT = timedelta(hours=1)


@value
class PairingRequest:
    """A stranger's last request for access."""

    identity: str
    at: datetime
    expires: datetime
    kept: int = 0


class Reception(StrEnum):
    """What happens to a stranger's message. The value is the reason why it is not answered."""

    CODE = "a stranger: got a code; the message waits until the owner approves it"
    WAITS = "a stranger: the message waits until the owner approves their code"
    TOO_OFTEN = "a stranger: asked for access only a short while ago"
    TOO_MANY = "a stranger: too many others wait for access on this platform"

    @property
    def keeps(self) -> bool:
        """Whether the message is kept, to be answered after approval."""
        return self in {Reception.CODE, Reception.WAITS}


def receive_stranger(identity: str, requests: Iterable[PairingRequest], now: datetime) -> Reception:
    """Decide about a stranger's message, given all requests on their platform."""
    known = {request.identity: request for request in requests}
    mine = known.pop(identity, None)
    # abs(): a clock that was set back must not keep anyone waiting.
    if mine and abs(now - mine.at) < REQUEST_INTERVAL:
        return Reception.WAITS if now < mine.expires and mine.kept < MAX_KEPT_MESSAGES else Reception.TOO_OFTEN
    pending = [each for each in known.values() if each.at - REQUEST_INTERVAL < now < each.expires]
    return Reception.CODE if len(pending) < MAX_PENDING else Reception.TOO_MANY


def locked_until(failures: Sequence[datetime]) -> datetime | None:
    """Return until when codes are refused, given the times of wrong codes since the last right one, newest first."""
    if len(failures) < MAX_FAILURES or failures[0] - failures[MAX_FAILURES - 1] > LOCKOUT:
        return None
    return failures[0] + LOCKOUT
