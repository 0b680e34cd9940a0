"""The question whether to connect what the gateway found: what the next line answers."""

import asyncio

from palaver.platforms.terminal.wire import Offer

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})


class PendingOffer:
    """An offer until it is answered. Any line that is no answer leaves it for later."""

    def __init__(self, *, is_accepted: bool = False) -> None:
        self.is_accepted = is_accepted
        """Whether the answer is yes before it is asked."""
        self._offer: Offer | None = None
        self._known = asyncio.Event()
        self.unanswered = ""
        """What to say to use the offer after all, if the last line left it unanswered."""

    def made(self, offer: Offer | None) -> None:
        """Take what the gateway offers, for the first time or again after a reconnect."""
        if not self._known.is_set():
            self._offer = offer
        self._known.set()

    async def accepted(self) -> str | None:
        """Wait for the gateway; return what to say first if the answer was yes from the start."""
        await self._known.wait()
        return self._answer(accepts=True) if self.is_accepted else None

    def read(self, line: str, *, default: bool = False) -> str:
        """Return what a typed line says to the gateway. With `default`, an empty line is a yes."""
        said, self.unanswered = line.strip().lower(), ""
        if self._offer is None:
            return line
        if said in _YES or (default and not said):
            return self._answer(accepts=True) or line
        if said in _NO:
            return self._answer(accepts=False) or line
        self.unanswered, self._offer = self._offer.accept, None
        return line

    def is_answer(self, line: str) -> bool:
        """Return whether a line can be an answer, so that the offer has to be known before it is said."""
        return line.strip().lower() in _YES | _NO

    async def read_first(self, line: str) -> str:
        """Read the first line of a pipe, which nobody was asked for."""
        if not self.is_answer(line):
            return line
        await self._known.wait()
        return self.read(line)

    def _answer(self, *, accepts: bool) -> str | None:
        offer, self._offer = self._offer, None
        return offer and (offer.accept if accepts else offer.decline)
