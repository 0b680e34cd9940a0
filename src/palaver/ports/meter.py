"""Meters: how often each step is taken, how long it takes, how much waits. Numbers only, never content."""

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

__all__ = ["Meter", "NoMeter"]


class Meter(Protocol):
    def step(self, name: str) -> AbstractContextManager[None]:
        """Counts a step and times it."""
        ...

    def count(self, name: str, amount: int = 1) -> None: ...

    def level(self, name: str, value: float) -> None:
        """How much there is of something right now."""
        ...


class NoMeter:
    def step(self, name: str) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def count(self, name: str, amount: int = 1) -> None: ...

    def level(self, name: str, value: float) -> None: ...
