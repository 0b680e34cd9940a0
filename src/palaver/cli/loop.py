"""Run the gateway on uvloop where it is installed: it halves the cost of switching between threads."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")

_CANCEL_TIMEOUT_S = 2.0
"""How long cancelled tasks have to end, in seconds."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run like `asyncio.run`, but do not wait for tasks that ignore cancellation."""
    runner = asyncio.Runner(loop_factory=_loop_factory())
    try:
        return runner.run(main)
    finally:
        loop = runner.get_loop()
        if loop.run_until_complete(_cancel_all()):
            # What goes on in threads is not waited for either.
            loop.close()
        asyncio.set_event_loop(None)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's, with the extra of that name; None for that of asyncio."""
    return import_module("uvloop").new_event_loop if find_spec("uvloop") else None


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
