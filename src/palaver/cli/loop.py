"""Run the gateway on uvloop: it halves the cost of switching between threads."""

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

log = logging.getLogger(__name__)

T = TypeVar("T")

_CANCEL_TIMEOUT_S = 2.0
"""How long cancelled tasks have to end, in seconds."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, but do not wait for tasks that ignore cancellation."""
    runner = asyncio.Runner(loop_factory=new_event_loop)
    try:
        return runner.run(main)
    finally:
        loop = runner.get_loop()
        if loop.run_until_complete(_cancel_all()):
            # What goes on in threads is not waited for either.
            loop.close()
        asyncio.set_event_loop(None)


async def _cancel_all() -> bool:
    """Cancel all tasks; return whether they ended."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        _, left = await asyncio.wait(left, timeout=_CANCEL_TIMEOUT_S)
    with suppress(TimeoutError):
        async with asyncio.timeout(_CANCEL_TIMEOUT_S):
            await asyncio.get_running_loop().shutdown_asyncgens()
    if left:
        log.error("something does not stop; it is left to itself", extra={"action": "gateway.task_left"})
    return not left
