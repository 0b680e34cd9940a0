"""Wake-ups: telling those who wait that there is something to look at."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager

__all__ = ["Wakeups"]


class Wakeups:
    """Listen first, then look, then wait: a wake-up between the look and the wait is not lost."""

    def __init__(self) -> None:
        self._listeners: dict[str, set[asyncio.Event]] = {}

    @contextmanager
    def listen(self, topic: str) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        self._listeners.setdefault(topic, set()).add(event)
        try:
            yield event
        finally:
            listeners = self._listeners[topic]
            listeners.discard(event)
            if not listeners:
                del self._listeners[topic]

    def wake(self, topic: str) -> None:
        for event in self._listeners.get(topic, ()):
            event.set()

    def wake_all(self) -> None:
        """Something may have been missed: everybody looks again."""
        for topic in self._listeners:
            self.wake(topic)
