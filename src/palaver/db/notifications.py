"""Notifications inside a process: wake everyone who waits for a topic."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager


class Notifier:
    """Listen first, then read, then wait: a notification between reading and waiting is not lost."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[Callable[[], None]]] = {}

    @contextmanager
    def listen(self, topic: str) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        with self.hear(topic, event.set):
            yield event

    @contextmanager
    def hear(self, topic: str, call: Callable[[], None]) -> Generator[None]:
        self._listeners.setdefault(topic, []).append(call)
        try:
            yield
        finally:
            self._listeners[topic].remove(call)
            if not self._listeners[topic]:
                del self._listeners[topic]

    def wake(self, topic: str) -> None:
        for call in tuple(self._listeners.get(topic, ())):
            call()

    def wake_all(self) -> None:
        """Wake everyone, because a notification may have been missed."""
        for topic in tuple(self._listeners):
            self.wake(topic)
