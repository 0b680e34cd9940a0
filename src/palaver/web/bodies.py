"""Read request bodies within limits: each has a maximum size, and all together at most twice the largest."""

from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from palaver.engine.options import Options
from palaver.model.attachment import TooLarge
from palaver.model.errors import PalaverError

MAX_PLAIN_BYTES = 1_000_000
"""Size limit of a body without files."""
_MAX_LARGE_BODIES = 2
_MAX_JSON_VALUES = 1_000_000

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""As ASGI has it. Written out, since Starlette is an extra and the gateway imports this module without it."""


def max_body_bytes(options: Options) -> int:
    """Return the size of the largest message with its files, in base64."""
    return MAX_PLAIN_BYTES + options.files_per_message * options.file_size * 4 // 3


class ServerBusy(PalaverError):
    """Other requests hold all the memory set aside for bodies."""


@dataclass
class BodyReader:
    held: int = 0
    """Bytes of all bodies being received or worked with."""

    @asynccontextmanager
    async def read(
        self, pieces: AsyncIterable[bytes], options: Options, *, with_files: bool
    ) -> AsyncGenerator[bytearray]:
        """Yield the whole body. It counts towards the limit until the block ends, so do not wait inside it."""
        largest = max_body_bytes(options)
        limit = largest if with_files else MAX_PLAIN_BYTES
        content, held = bytearray(), 0
        try:
            async for piece in pieces:
                content += piece
                held += len(piece)
                self.held += len(piece)
                if len(content) > limit:
                    raise TooLarge(f"The body is larger than {limit} bytes.")
                if self.held > _MAX_LARGE_BODIES * largest:
                    raise ServerBusy("The server is busy. Try again later.")
            # Every JSON value but the first follows one of these, so this bounds the memory that decoding takes.
            if sum(map(content.count, (b",", b"[", b"{"))) > _MAX_JSON_VALUES:
                raise TooLarge(f"The body has more than {_MAX_JSON_VALUES:,} commas and brackets.")
            yield content
        finally:
            self.held -= held
            content.clear()


async def read_at_most(pieces: AsyncIterable[bytes], limit: int) -> bytes:
    """Read a small body. Raises TooLarge."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > limit:
            raise TooLarge(f"The form is larger than {limit} bytes.")
    return bytes(body)


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that delivers the body once more to the next reader."""
    pending: list[MutableMapping[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> MutableMapping[str, Any]:
        return pending.pop() if pending else await receive()

    return replay
