"""How often a chat may be written to: one budget for answers and drafts, of which drafts are dropped first."""

import asyncio

__all__ = ["Budget"]


class Budget:
    """Per chat, when the next message may go, and the next draft. A chat that was quiet for long is not remembered."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        self._draft_at: dict[str, float] = {}
        """Drafts keep a slower pace than the chat has, so that there is room for answers."""
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

    def take_for_draft(self, chat: str, interval: float, draft_interval: float) -> bool:
        """Only if the chat is free, no answer waits for it and no draft was just shown; else the draft is dropped."""
        if chat in self._owed or self.wait(chat) > 0 or _left(self._draft_at, chat) > 0:
            return False
        self._spend(chat, interval)
        if draft_interval > 0:
            _block(self._draft_at, chat, draft_interval)
        return True

    def hold(self, chat: str, seconds: float) -> None:
        """The platform asked to wait. Drafts wait twice as long, so that answers come first."""
        _block(self._free_at, chat, max(seconds, self.wait(chat)))
        _block(self._draft_at, chat, max(2 * seconds, _left(self._draft_at, chat)))

    def wait(self, chat: str) -> float:
        """In how many seconds the chat may be written to."""
        return _left(self._free_at, chat)

    def _spend(self, chat: str, interval: float) -> None:
        if interval > 0:
            _block(self._free_at, chat, interval)


def _left(times: dict[str, float], chat: str) -> float:
    until = times.get(chat)
    return 0.0 if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _block(times: dict[str, float], chat: str, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    times[chat] = until = loop.time() + seconds
    loop.call_at(until, _forget, times, chat, until)


def _forget(times: dict[str, float], chat: str, until: float) -> None:
    if times.get(chat) == until:
        del times[chat]
