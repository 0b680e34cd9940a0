"""Cause: why a message that is no reply of a turn is sent. One cause sends each of its parts once."""

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from palaver.db.transaction import Value


class CauseKind(StrEnum):
    BUSY = "busy"
    """A message came while a turn was running."""
    PARKED = "parked"
    """A message came while a turn waited for an approval."""
    WITHDRAWN = "withdrawn"
    """A message came while a turn waited for an approval, and withdrew the question."""
    HALT = "halt"
    """A turn asks for an approval, or was interrupted. The detail is the turn's fence."""
    TOOL = "tool"
    """A tool sends something. The detail identifies the call."""
    DELIVERED = "told"
    """An event about a delivery of a turn, for a webhook."""
    COMMAND = "command"
    REVISION = "revision"
    PAIRING_CODE = "pair"
    PAIRED = "paired"
    ACCESS_LOST = "lost"
    """Somebody lost access while a message of theirs waited."""
    ACCESS_ASKED = "asked"
    """The owner learns that a stranger asks for access."""
    PROCESS = "process"
    """A process whose conversation is over. The id is the turn that started it; the detail names the notice."""
    WELCOME = "welcome"
    EVENT = "news"
    """An event about a session, for a webhook."""
    HANDOFF = "handoff"
    HANDOFF_RECALLED = "recalled"
    HANDOFF_DONE = "handed-off"
    HANDOFF_FAILED = "not-handed-off"
    UNDONE = "taken-back"
    CHAT_GONE = "gone"
    """A message cannot be delivered. The id is that of its outbox row."""
    UNCLEAR = "unclear"
    """Nobody knows whether a message was delivered. The id is the hour: one notice is enough for all of them."""

    REFUSED = "refused"
    """A platform does not take a message. The id is the hour, as of `UNCLEAR`."""
    RELAY = "relay"
    """A gateway behind this connector sends something. The id is the tenant, the detail its idempotency key."""
    PROBLEM = "problem"
    """The agent of a profile fails, or an account has no connection. The id names it; the detail says which time."""
    JOB = "job"
    """A job could not run, or failed. The detail is the hour: one notice is enough for all of it. Of a job that was
    paused, it is the time of the pause."""


K = CauseKind
# What the id of a cause refers to: a row of `turns`, `inbox`, `sessions` (by its public id), `operations`, `schedules`.
OF_TURN = frozenset({K.BUSY, K.PARKED, K.WITHDRAWN, K.HALT, K.TOOL, K.DELIVERED, K.PROCESS})
OF_MESSAGE = frozenset({K.COMMAND, K.REVISION, K.PAIRING_CODE, K.PAIRED, K.ACCESS_ASKED, K.ACCESS_LOST})
OF_SESSION = frozenset({K.WELCOME, K.EVENT})
OF_JOB = frozenset({K.JOB})
OF_OPERATION = frozenset({K.HANDOFF, K.HANDOFF_RECALLED, K.HANDOFF_DONE, K.HANDOFF_FAILED, K.UNDONE})


def kinds_in(kinds: Iterable[CauseKind]) -> str:
    """Return the inside of `IN (…)`."""
    return ", ".join(f"'{kind.value}'" for kind in sorted(kinds))


CAUSE_COLUMNS = "cause_kind, cause_id, cause_detail, part"


class SendCause(NamedTuple):
    kind: CauseKind
    id: int | str
    """Of what `kind` says it is caused by."""
    detail: str = ""
    """Tells apart what the same row causes at different times."""
    part: int = 0

    @property
    def columns(self) -> tuple[Value, ...]:
        return self.kind.value, str(self.id), self.detail, self.part

    @property
    def number(self) -> int | None:
        """The id as the number of a row; None for one that is a text."""
        text = str(self.id)
        return int(text) if text.removeprefix("-").isdecimal() else None


def cause_of(kind: str | None, id_: str, detail: str, part: int) -> SendCause | None:
    """Return the cause that stands in `CAUSE_COLUMNS`; None for a reply of a turn."""
    return SendCause(CauseKind(kind), id_, detail, part) if kind else None
