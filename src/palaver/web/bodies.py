"""Bodies: what requests bring, read as far as it may go; all together take no more memory than two of the largest."""

from collections.abc import AsyncIterable
from dataclasses import dataclass

from palaver.domain.errors import PalaverError
from palaver.engine.options import Options
from palaver.ports.files import TooLarge

__all__ = ["SMALL", "Bodies", "TooMuchAtOnce", "largest"]

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
    """Bytes of bodies that are not here as a whole yet."""

    async def read(self, pieces: AsyncIterable[bytes], options: Options, *, with_files: bool) -> bytes:
        limit, room = largest(options) if with_files else SMALL, _AT_ONCE * largest(options)
        content = bytearray()
        try:
            async for piece in pieces:
                content += piece
                self.held += len(piece)
                if len(content) > limit:
                    raise TooLarge(f"The body is larger than {limit} bytes.")
                if self.held > room:
                    raise TooMuchAtOnce("Others send much just now: try again later.")
            # In JSON every value but the first stands behind one of these: so much for what it takes when it is read.
            if sum(map(content.count, (b",", b"[", b"{"))) > _MOST_VALUES:
                raise TooLarge(f"The body has more than {_MOST_VALUES:,} commas and brackets.")
            return bytes(content)
        finally:
            self.held -= len(content)
