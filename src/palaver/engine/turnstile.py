"""A turnstile: whoever comes under the same name passes one after the other, in the order they came."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["Turnstile"]

T = TypeVar("T")


class Turnstile:
    """A name is known only while somebody stands there."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._last)

    async def passing(self, name: str, step: Callable[[], Awaitable[T]]) -> T:
        """Take a step once everybody who came before has passed or gone."""
        before = self._last.get(name)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last[name] = mine
        try:
            if before is not None:
                await asyncio.shield(before)
            return await step()
        finally:
            if before is None or before.done():
                self._let_by(name, mine)
            else:  # Gone before it was their turn: who comes next still waits for whoever is in front.
                before.add_done_callback(lambda _: self._let_by(name, mine))

    def _let_by(self, name: str, mine: "asyncio.Future[None]") -> None:
        mine.set_result(None)
        if self._last.get(name) is mine:
            del self._last[name]
