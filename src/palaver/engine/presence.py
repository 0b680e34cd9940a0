"""Presence: while a turn runs, its chat sees that somebody is writing."""

import asyncio
import logging
from contextvars import copy_context

from palaver.domain.source import Source
from palaver.engine.ground import Ground
from palaver.engine.traces import trace
from palaver.ports.ability import able
from palaver.ports.adapter import Typing

__all__ = ["Presence"]

log = logging.getLogger(__name__)

_AFTER = 0.5
"""What is answered sooner needs no sign."""
_EVERY = 4.0
"""Platforms let the sign go out after about five seconds."""


class Presence:
    """The sign that somebody is writing, from a moment after it is made until its end."""

    def __init__(self, on: Ground, source: Source) -> None:
        self._replies = on.replies
        self._source = source
        self._shows: asyncio.Task[None] | None = None
        self._context = copy_context()
        self._soon = on.limits.after(_AFTER)
        self._soon.join(self._begin)

    def end(self) -> None:
        self._soon.leave(self._begin)
        if self._shows is not None:
            self._shows.cancel()

    def _begin(self) -> None:
        self._shows = asyncio.create_task(self._show(), context=self._context)

    async def _show(self) -> None:
        """Until cancelled, or until the platform does not want it: a sign is worth no second try."""
        adapter = self._replies.adapter_for(self._source.platform, self._source.account)
        try:
            there = self._replies.to(self._source, "…")
            while there and able(adapter, Typing):
                async with asyncio.timeout(_EVERY):
                    await adapter.typing(there[0])
                await asyncio.sleep(_EVERY)
        except Exception as error:  # noqa: BLE001 - the answer comes without it
            log.info("typing is not shown: %s", trace(error), extra={"action": "typing.dropped"})
