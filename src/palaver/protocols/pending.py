"""Requests over a connection that brings their answers later, among other things."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Generic, TypeVar

from palaver.protocols.adapter import SendUnclear

__all__ = ["PendingAnswers"]

K = TypeVar("K")
T = TypeVar("T")


class PendingAnswers(Generic[K, T]):
    """The answers that requests wait for, by what names a request on the wire."""

    def __init__(self) -> None:
        self._waiting: dict[K, asyncio.Future[T]] = {}

    @contextmanager
    def expect(self, key: K) -> Generator["asyncio.Future[T]"]:
        """Yield the answer to a request: send that within, and await it."""
        answer = self._waiting[key] = asyncio.get_running_loop().create_future()
        try:
            yield answer
        finally:
            self._waiting.pop(key, None)

    def settle(self, key: K, answer: T) -> None:
        """Take an answer; one that nothing waits for is left out."""
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def fail(self, words: str) -> None:
        """Raise SendUnclear in every request that waits: with the connection, its answer is lost."""
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(SendUnclear(words))
