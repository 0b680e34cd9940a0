"""Metrics: how often each step runs, how long it takes, how much waits. Numbers only, never content."""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol, runtime_checkable

Step = Literal["accept", "begin", "turn", "settle", "send", "tool"]
Count = Literal[
    "messages_repeated",
    "messages_refused",
    "messages_ignored",
    "commands",
    "agent_retries",
    "agents_left",
    "compactions",
    "turns_failed",
    "turns_lost",
    "turns_reclaimed",
    "sends_dead",
    "sends_lost",
    "sends_unclear",
    "send_retries",
    "reconnects",
    "accounts_lost",
    "hooks_failed",
    "tools_failed",
]
Level = Literal["lanes", "leases", "accounts", "inbox_waiting", "outbox_due"]


class Meter(Protocol):
    def step(self, name: Step) -> AbstractContextManager[None]:
        """Count and time a step."""
        ...

    def count(self, name: Count, amount: int = 1) -> None: ...

    def level(self, name: Level, value: float) -> None:
        """Set how much there is of something now."""
        ...


@runtime_checkable
class Exposing(Protocol):
    """A meter whose figures can be read as text."""

    def exposed(self) -> bytes: ...


_NOTHING = nullcontext()


class NoMeter:
    def step(self, name: Step) -> AbstractContextManager[None]:  # noqa: ARG002
        return _NOTHING

    def count(self, name: Count, amount: int = 1) -> None: ...

    def level(self, name: Level, value: float) -> None: ...
