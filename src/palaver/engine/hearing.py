"""Hearing: what is said to a conversation rings a bell, under whatever key the conversation goes on."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from typing import Self

from palaver.domain.key import SessionKey
from palaver.engine.traces import log_broken
from palaver.ports.store import Database, key_topic

__all__ = ["Bell"]

log = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0


class Bell:
    """Rung when something is said to a conversation, also before there is a turn to hear it. A context manager."""

    def __init__(self, database: Database, key: SessionKey) -> None:
        self.key = key
        self._database = database
        self._heard = ExitStack()
        self._is_rung = False
        self._heed: Callable[[], Awaitable[None]] | None = None
        self._heeding: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self.ignore()
        self._heard.close()

    def ring(self) -> None:
        self._is_rung = True
        if self._heed is not None and (self._heeding is None or self._heeding.done()):
            self._heeding = asyncio.create_task(self._until_quiet(self._heed))

    def answer(self, heed: Callable[[], Awaitable[None]]) -> None:
        """From now on `heed` is called after every ring, and at once where it has rung already."""
        self._heed = heed
        if self._is_rung:
            self.ring()

    def ignore(self) -> None:
        """Nobody heeds it any more; what rings from now on is for whoever answers next."""
        self._heed = None
        if self._heeding is not None:
            self._heeding.cancel()
            self._heeding = None

    def follow(self, key: SessionKey) -> None:
        """The conversation has another key by now; what was said under it before it was heard counts."""
        self.key = key
        self._hear()
        self.ring()

    def _hear(self) -> None:
        self._heard.enter_context(self._database.hear(key_topic(self.key), self.ring))

    async def _until_quiet(self, heed: Callable[[], Awaitable[None]]) -> None:
        while self._is_rung:
            self._is_rung = False
            try:
                await heed()
            except Exception as error:  # noqa: BLE001 - whoever says stop later must still be heard
                log_broken(log, "a turn does not hear", error, {"action": "turn.deaf", "key": self.key.text})
                await asyncio.sleep(_LOOK_AGAIN)
                self._is_rung = True
