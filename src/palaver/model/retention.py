"""Retention: how long what is stored stays, by class."""

from datetime import datetime, timedelta
from enum import StrEnum

from palaver.model.value import value

SAFE_AGE = timedelta(days=1)
"""What was used within this time stays, even over a count or a size."""
_DEFAULT_AGE = timedelta(days=90)


class RetentionClass(StrEnum):
    CHAT = "chat"
    """Conversations with people."""
    CRON = "cron"
    """Conversations of scheduled jobs."""
    API = "api"
    """Conversations of programs."""
    OBSERVED = "observed"
    """What the agent overheard in groups."""
    ATTACHMENTS = "attachments"
    """The contents of files."""
    SETTLED = "settled"
    """The contents of messages that were answered and of answers that were sent; the transcript has them too."""
    OUTPUT = "output"
    """The files that the target `local` made."""


@value
class RetentionLimit:
    """What stays of a class: what is within every limit. None limits nothing."""

    age: timedelta | None = None
    """Since it was last used."""
    count: int | None = None
    size: int | None = None
    """In bytes."""

    @property
    def is_set(self) -> bool:
        return self != _NO_LIMIT


_NO_LIMIT = RetentionLimit()


@value
class RetentionRules:
    chat: RetentionLimit = _NO_LIMIT
    cron: RetentionLimit = _NO_LIMIT
    api: RetentionLimit = _NO_LIMIT
    observed: RetentionLimit = RetentionLimit(age=_DEFAULT_AGE)
    attachments: RetentionLimit = _NO_LIMIT
    settled: RetentionLimit = RetentionLimit(age=_DEFAULT_AGE)
    output: RetentionLimit = _NO_LIMIT

    def of(self, kind: RetentionClass) -> RetentionLimit:
        return getattr(self, kind.value)

    def of_one_machine(self) -> "RetentionRules":
        """Return only what each machine has for itself: files."""
        return RetentionRules(observed=_NO_LIMIT, settled=_NO_LIMIT, attachments=self.attachments, output=self.output)


def latest_cutoff(limit: RetentionLimit, now: datetime, *others: datetime | None) -> datetime | None:
    """Return the time before which everything goes; None if nothing does.

    `others` are the times that the count and the size lead to.
    """
    by_age = now - limit.age if limit.age is not None else None
    found = [each for each in (by_age, *others) if each is not None]
    return min(max(found), now - SAFE_AGE) if found else None
