"""Show in the chat which tools the agent uses, and for how long."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context

from palaver.model.text import as_code, listed, one_line

DELAY_SECONDS = 2.0
"""Tools that take less are not worth a message."""
INTERVAL_SECONDS = 5.0
_MAX_NAMED = 3
_NAME_LENGTH = 40


class ToolProgress:
    """Reports the tools that run, from a moment after they began until they end; then nothing, once.

    The chat's pace may drop reports. `said` has what tools say about how far they are.
    """

    def __init__(self, report: Callable[[str], None], said: Mapping[str, str]) -> None:
        self._report = report
        self._said = said
        self._names: tuple[str, ...] = ()
        self._has_reported = False
        self._task: asyncio.Task[None] | None = None
        self._context = copy_context()

    def update(self, names: Sequence[str]) -> None:
        """Report these tools, with the time since the first of them began."""
        self._names = tuple(names)
        if not names:
            self.end()
        elif self._task is None:
            self._task = asyncio.create_task(self._run(), context=self._context)

    def end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._has_reported:
            self._has_reported = False
            self._report("")

    async def _run(self) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        await asyncio.sleep(DELAY_SECONDS)
        while True:
            self._has_reported = True
            said = [*self._said.values()]
            self._report(describe_tools(self._names, clock() - began, said[-1] if said else ""))
            await asyncio.sleep(INTERVAL_SECONDS)


def describe_tools(names: Sequence[str], seconds: float, said: str = "") -> str:
    """Return one line: Using `search`, `terminal` (1 min 5 s): `page 3 of 9`."""
    named = [as_code(one_line(name, _NAME_LENGTH)) for name in dict.fromkeys(names)]
    minutes, rest = divmod(int(seconds), 60)
    took = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    return f"Using {listed(named, _MAX_NAMED)} ({took}){f': {as_code(said)}' if said else ''}"
