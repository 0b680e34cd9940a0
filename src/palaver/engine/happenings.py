"""Telling hooks what happened, without letting them hold anything up."""

import asyncio
import logging
from collections.abc import Sequence

from palaver.ports.hooks import Happening, Hook

__all__ = ["Happenings"]

log = logging.getLogger(__name__)

_LIMIT = 10.0


class Happenings:
    def __init__(self, hooks: Sequence[Hook] = ()) -> None:
        self._hooks = tuple(hooks)
        self._telling: set[asyncio.Task[bool]] = set()

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
                await hook(happening)
        except Exception:
            log.exception("a hook failed on %s", happening.kind, extra={"action": "hook.failed"})
            return False
        return True

    async def drain(self) -> None:
        await asyncio.gather(*self._telling)
