"""Pairing: how a stranger comes to be let in, and how often and how long they may ask."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from palaver.model.value import value

__all__ = [
    "LOCKED_FOR",
    "MOST_FAILURES",
    "MOST_KEPT",
    "MOST_PENDING",
    "PAUSE",
    "VALID_FOR",
    "Asked",
    "Reception",
    "locked_until",
    "receive_stranger",
]

VALID_FOR = timedelta(hours=1)
PAUSE = timedelta(minutes=10)
"""How long somebody who was given a code waits for another."""
MOST_PENDING = 3
"""So many strangers wait on a platform at once."""
MOST_KEPT = 10
"""So many messages of one stranger are kept until they are let in."""
MOST_FAILURES = 5
LOCKED_FOR = timedelta(hours=1)


@value
class Asked:
    """The last request of a stranger."""

    identity: str
    at: datetime
    expires: datetime
    kept: int = 0


class Reception(StrEnum):
    """What becomes of a stranger's message. The words say why it is not answered."""

    CODE = "a stranger: was given a code, and the message waits until the owner approves it"
    WAITS = "a stranger: the message waits until the owner approves the code they were given"
    TOO_OFTEN = "a stranger: has asked to be let in a short while ago"
    TOO_MANY = "a stranger: too many others wait to be let in on this platform"

    @property
    def keeps(self) -> bool:
        """Whether what they said is kept, to be answered once they are let in."""
        return self in {Reception.CODE, Reception.WAITS}


def receive_stranger(identity: str, requests: Iterable[Asked], now: datetime) -> Reception:
    """Given all requests on the platform of a stranger who has just written."""
    known = {asked.identity: asked for asked in requests}
    mine = known.pop(identity, None)
    # Either way: a clock that was set back far keeps nobody waiting.
    if mine and abs(now - mine.at) < PAUSE:
        return Reception.WAITS if now < mine.expires and mine.kept < MOST_KEPT else Reception.TOO_OFTEN
    pending = [asked for asked in known.values() if asked.at - PAUSE < now < asked.expires]
    return Reception.CODE if len(pending) < MOST_PENDING else Reception.TOO_MANY


def locked_until(failures: Sequence[datetime]) -> datetime | None:
    """Given the times of wrong codes since the last right one, the newest first: until when no code is looked at."""
    if len(failures) < MOST_FAILURES or failures[0] - failures[MOST_FAILURES - 1] > LOCKED_FOR:
        return None
    return failures[0] + LOCKED_FOR
