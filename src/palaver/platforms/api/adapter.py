"""The API's adapter: an answer stays in the outbox, where the program that asked reads it, now or later."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from palaver.model.attachment import Attachment
from palaver.model.turn import Outbound
from palaver.platforms.catalog import PLATFORMS
from palaver.protocols.adapter import Blobs, Limits, Receiver, SendRefused

MAX_TEXT_LENGTH = 200_000
_CHUNK_BYTES = 1 << 16


class ApiAdapter:
    """Sends nothing itself: messages come in through the engine, at any gateway."""

    platform = PLATFORMS["api"]
    account: str | None = None
    limits = Limits(text=MAX_TEXT_LENGTH, repeats_safely=True)

    def __init__(self, shelf: Blobs | None = None) -> None:
        self._shelf = shelf

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        del outbound
        return idempotency_key

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        del outbound, content
        return idempotency_key

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        path = self._shelf.place(file.handle or "") if self._shelf else None
        if path is None:
            raise SendRefused("the file is no longer stored")
        with path.open("rb") as content:
            while chunk := content.read(_CHUNK_BYTES):
                yield chunk
