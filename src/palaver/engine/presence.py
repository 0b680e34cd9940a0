"""Presence: while a turn runs, its chat sees that somebody is writing."""

import asyncio
import logging

from palaver.domain.source import Source
from palaver.engine.replies import Replies
from palaver.engine.traces import trace
from palaver.ports.adapter import Typing

__all__ = ["show_typing"]

log = logging.getLogger(__name__)

_AFTER = 0.5
"""What is answered sooner needs no sign."""
_EVERY = 4.0
"""Platforms let the sign go out after about five seconds."""


async def show_typing(replies: Replies, source: Source) -> None:
    """Until cancelled, or until the platform does not want it: a sign is worth no second try."""
    await asyncio.sleep(_AFTER)
    adapter = replies.adapter_for(source.platform, source.account)
    try:
        there = replies.to(source, "…")
        while there and isinstance(adapter, Typing):
            async with asyncio.timeout(_EVERY):
                await adapter.typing(there[0])
            await asyncio.sleep(_EVERY)
    except Exception as error:  # noqa: BLE001 - the answer comes without it
        log.info("typing is not shown: %s", trace(error), extra={"action": "typing.dropped"})
