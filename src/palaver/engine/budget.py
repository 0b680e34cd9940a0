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
            while (wait := self.wait(chat)) > 0:  # noqa: ASYNC110 - it may be put off while waiting
                await asyncio.sleep(wait)
            self._spend(chat, interval)
        finally:
            self._owed[chat] -= 1
            if not self._owed[chat]:
                del self._owed[chat]

    def take_for_draft(self, chat: str, interval: float) -> bool:
        """Only if the chat is free and no answer waits for it; else the draft is dropped."""
        if chat in self._owed or self.wait(chat) > 0:
            return False
        self._spend(chat, interval)
        return True

    def hold(self, chat: str, seconds: float) -> None:
        """The platform asked to wait."""
        self._block(chat, max(seconds, self.wait(chat)))

    def wait(self, chat: str) -> float:
        """In how many seconds the chat may be written to."""
        return max(0.0, self._free_at.get(chat, 0.0) - asyncio.get_running_loop().time())

    def _spend(self, chat: str, interval: float) -> None:
        if interval > 0:
            self._block(chat, interval)

    def _block(self, chat: str, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        self._free_at[chat] = until = loop.time() + seconds
        loop.call_at(until, self._forget, chat, until)

    def _forget(self, chat: str, until: float) -> None:
        if self._free_at.get(chat) == until:
            del self._free_at[chat]
