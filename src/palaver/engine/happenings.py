"""Telling hooks what happened, without letting them hold anything up."""

import asyncio
import inspect
import logging
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from palaver.domain.errors import BadArgument
from palaver.engine.traces import log_broken
from palaver.engine.waiting import contained
from palaver.ports.hooks import Happening, Hook, Watch
from palaver.ports.meter import Meter, NoMeter

__all__ = ["Happenings", "hook_named"]

log = logging.getLogger(__name__)

_LIMIT = 10.0


class Happenings:
    def __init__(self, hooks: Sequence[Hook] = (), meter: Meter | None = None, watch: Watch | None = None) -> None:
        self._hooks = tuple(hooks)
        self.watch = watch
        self._meter = meter or NoMeter()
        self._telling: set[asyncio.Task[bool]] = set()

    @property
    def are_wanted(self) -> bool:
        return bool(self._hooks)

    def tell(self, happening: Happening) -> None:
        """In the background: a slow hook delays nothing."""
        if self._hooks:
            task = asyncio.create_task(self.told(happening))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def told(self, happening: Happening) -> bool:
        """Whether every hook took it."""
        return all([await self._call(hook, happening) for hook in self._hooks])

    async def _call(self, hook: Hook, happening: Happening) -> bool:
        try:
            async with asyncio.timeout(_LIMIT):
                with contained():
                    await hook(happening)
        except Exception as error:  # noqa: BLE001 - hooks are not ours
            log_broken(log, "a hook failed", error, {"action": "hook.failed", "kind": happening.kind.value})
            self._meter.count("hooks_failed")
            return False
        return True

    async def drain(self) -> None:
        await asyncio.gather(*self._telling)

    def abandon(self) -> None:
        for task in self._telling:
            task.cancel()


def hook_named(name: str) -> Hook:
    """The hook that `package.module:function` names, imported."""
    module, _, path = name.partition(":")
    try:
        found: Any = import_module(module)
        for step in path.split("."):
            found = getattr(found, step)
    except Exception as error:
        raise _no_hook(name, f"{type(error).__name__}: {error}") from error
    if not inspect.iscoroutinefunction(found) and not inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise _no_hook(name, f"{type(found).__name__} {path}, which cannot be awaited")
    return found


def _no_hook(name: str, found: str) -> BadArgument:
    return BadArgument(
        f"There is no hook {name}:",
        found=found,
        allowed="async def function(happening), in a module that is installed, as package.module:function",
        example="my_hooks:tell",
    )
