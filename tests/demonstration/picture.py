"""Pictures without a library."""

import struct
import zlib

__all__ = ["COLOURS", "circle"]

COLOURS = {"red": (220, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 220), "yellow": (240, 200, 40)}
_SIZE = 64


def circle(colour: tuple[int, int, int]) -> bytes:
    """Return a PNG of a circle on white."""
    middle, radius = _SIZE / 2, _SIZE / 2 - 4
    rows = b"".join(
        b"\0"
        + b"".join(
            bytes(colour if (x - middle) ** 2 + (y - middle) ** 2 <= radius**2 else (255, 255, 255))
            for x in range(_SIZE)
        )
        for y in range(_SIZE)
    )
    head = struct.pack(">IIBBBBB", _SIZE, _SIZE, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        for kind, content in parts
    )
