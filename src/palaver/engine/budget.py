"""How often a chat may be written to: one budget for answers and drafts, of which drafts are dropped first."""

import asyncio

__all__ = ["Budget"]


class Budget:
    """Per chat, when the next message may go. A chat that was quiet for long enough is not remembered."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        self._owed: dict[str, int] = {}

    async def take(self, chat: str, interval: float) -> None:
        """For an answer: wait until the chat may be written to."""
        self._owed[chat] = self._owed.get(chat, 0) + 1
        try:
            while (wait := self._wait(chat)) > 0:  # noqa: ASYNC110 - it may be put off while waiting
                await asyncio.sleep(wait)
            self._spend(chat, interval)
        finally:
            self._owed[chat] -= 1
            if not self._owed[chat]:
                del self._owed[chat]

    def take_for_draft(self, chat: str, interval: float) -> bool:
        """Only if the chat is free and no answer waits for it; else the draft is dropped."""
        if chat in self._owed or self._wait(chat) > 0:
            return False
        self._spend(chat, interval)
        return True

    def hold(self, chat: str, seconds: float) -> None:
        """The platform asked to wait."""
        now = asyncio.get_running_loop().time()
        self._free_at[chat] = max(self._free_at.get(chat, 0.0), now + seconds)

    def _wait(self, chat: str) -> float:
        return self._free_at.get(chat, 0.0) - asyncio.get_running_loop().time()

    def _spend(self, chat: str, interval: float) -> None:
        now = asyncio.get_running_loop().time()
        self._free_at = {name: free for name, free in self._free_at.items() if free > now}
        if interval > 0:
            self._free_at[chat] = now + interval
