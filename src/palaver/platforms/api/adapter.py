"""The API's adapter: what is sent is in the outbox, where the program that asked reads it, now or later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from palaver.model.attachment import Attachment
from palaver.model.turn import Outbound
from palaver.platforms.catalog import PLATFORMS
from palaver.protocols.adapter import Blobs, Limits, Receiver, SendRefused

__all__ = ["LONGEST_TEXT", "ApiAdapter"]

LONGEST_TEXT = 200_000
_PIECE = 1 << 16


class ApiAdapter:
    """Messages come in through the engine itself, at whichever gateway was asked."""

    platform = PLATFORMS["api"]
    account: str | None = None
    limits = Limits(text=LONGEST_TEXT, repeats_safely=True)

    def __init__(self, shelf: Blobs | None = None) -> None:
        self._shelf = shelf

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """There is nobody to be told: whoever waits reads the row."""
        del outbound
        return idempotency_key

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """The content stays where it is, and is read from there."""
        del outbound, content
        return idempotency_key

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        found = self._shelf.place(file.handle or "") if self._shelf else None
        if found is None:
            raise SendRefused("it is not here any more")
        with found.open("rb") as content:
            while piece := content.read(_PIECE):
                yield piece
