"""Presence: while a turn runs, its chat sees that somebody is writing."""

import asyncio
import logging

from palaver.domain.turn import Outbound
from palaver.engine.traces import trace
from palaver.ports.adapter import Typing

__all__ = ["show_typing"]

log = logging.getLogger(__name__)

_AFTER = 0.5
"""What is answered sooner needs no sign."""
_EVERY = 4.0
"""Platforms let the sign go out after about five seconds."""


async def show_typing(adapter: Typing, outbound: Outbound) -> None:
    """Until cancelled, or until the platform does not want it: a sign is worth no second try."""
    await asyncio.sleep(_AFTER)
    try:
        while True:
            async with asyncio.timeout(_EVERY):
                await adapter.typing(outbound)
            await asyncio.sleep(_EVERY)
    except Exception as error:  # noqa: BLE001 - the answer comes without it
        log.info("typing is not shown: %s", trace(error), extra={"action": "typing.dropped"})
