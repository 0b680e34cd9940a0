"""Bodies: what requests bring, read as far as it may go; all together take no more memory than two of the largest."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import Message, Receive

from palaver.engine.options import Options
from palaver.model.attachment import TooLarge
from palaver.model.errors import PalaverError

__all__ = ["SMALL", "Bodies", "TooMuchAtOnce", "again", "largest"]

SMALL = 1_000_000
"""Bytes of a body without files."""
_AT_ONCE = 2
_MOST_VALUES = 1_000_000


def largest(options: Options) -> int:
    """As much as a message with its files may take, in base64."""
    return SMALL + options.files_per_message * options.file_size * 4 // 3


class TooMuchAtOnce(PalaverError):
    """Others bring much just now; later there is room."""


@dataclass
class Bodies:
    held: int = 0
    """Bytes of bodies that come in, or that somebody still works with."""

    @asynccontextmanager
    async def read(
        self, pieces: AsyncIterable[bytes], options: Options, *, with_files: bool
    ) -> AsyncGenerator[bytearray]:
        """It counts, with what was made of it, until the end of the block: nobody waits for anything in there."""
        limit, room = largest(options) if with_files else SMALL, _AT_ONCE * largest(options)
        content, held = bytearray(), 0
        try:
            async for piece in pieces:
                content += piece
                held += len(piece)
                self.held += len(piece)
                if len(content) > limit:
                    raise TooLarge(f"The body is larger than {limit} bytes.")
                if self.held > room:
                    raise TooMuchAtOnce("Others send much just now: try again later.")
            # In JSON every value but the first stands behind one of these: so much for what it takes when it is read.
            if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
                raise TooLarge(f"The body has more than {_MOST_VALUES:,} commas and brackets.")
            yield content
        finally:
            self.held -= held
            content.clear()


def again(body: bytes, receive: Receive) -> Receive:
    """The body is there once more for whoever reads it next."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return waiting.pop() if waiting else await receive()

    return replay
