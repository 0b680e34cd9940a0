"""The event loop that a gateway runs on: libuv's, which hands over between threads in half the time."""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

if sys.platform != "win32":
    from uvloop import new_event_loop
else:
    new_event_loop = None

__all__ = ["run"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = 2.0
"""Seconds in which whatever is still at work may end when it is told to."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """As asyncio would, but an agent or adapter that does not heed its end is not waited for."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(main)
    finally:
        loop = runner.get_loop()
        if loop.run_until_complete(_end_all()):
            # What goes on in threads is not waited for either.
            loop.close()
        asyncio.set_event_loop(None)


async def _end_all() -> bool:
    """Whether everything has ended."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_PATIENCE)
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            await asyncio.get_running_loop().shutdown_asyncgens()
    if left:
        log.error("something does not stop; it is left to itself", extra={"action": "gateway.task_left"})
    return not left
