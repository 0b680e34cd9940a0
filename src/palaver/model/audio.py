"""Recordings: how long one is, as far as its container says."""

BYTES_PER_SECOND_AT_LEAST = 1_000
"""What a recording of unknown length takes: less than any usual format, so that it counts as long rather than short."""
_OPUS_RATE = 48_000
_BYTES_PER_SECOND_AT_MOST = 64_000
"""What Opus and Vorbis take at their best quality."""
_PAGE, _POSITION, _FLAGS, _FIRST, _HEADER_BYTES = b"OggS", slice(6, 14), 5, 2, 27
_VORBIS, _VORBIS_RATE = b"\x01vorbis", slice(12, 16)
_RIFF_BYTES, _CHUNK_BYTES = 12, 8
_BYTE_RATE = slice(8, 12)


def recording_seconds(content: bytes) -> float:
    """Return the length of a recording; if its format is unknown, at most what its size allows."""
    seconds = None
    if content.startswith(_PAGE):
        seconds = _ogg_seconds(content)
    elif content.startswith(b"RIFF"):
        seconds = _wave_seconds(content)
    return len(content) / BYTES_PER_SECOND_AT_LEAST if seconds is None else seconds


def _ogg_seconds(content: bytes) -> float | None:
    """Return the length in the samples that the first page counts by; None if the pages do not fill the file.

    Pages say how far they are, which anybody can write there, so no recording is shorter than its size allows.
    """
    place, samples, position = 0, 0, 0
    while place < len(content):
        header = content[place : place + _HEADER_BYTES]
        if not header.startswith(_PAGE) or len(header) < _HEADER_BYTES:
            return None
        if header[_FLAGS] & _FIRST:  # recordings can stand one behind the other
            samples, position = samples + position, 0
        position = max(position, int.from_bytes(header[_POSITION], "little", signed=True))
        place += _HEADER_BYTES + header[-1]
        place += sum(content[place - header[-1] : place])
    if place > len(content):
        return None
    vorbis = content.find(_VORBIS, 0, 256)
    rate = _OPUS_RATE if vorbis < 0 else _number(content[vorbis:][_VORBIS_RATE])
    seconds = (samples + position) / rate if rate else 0.0
    return max(seconds, len(content) / _BYTES_PER_SECOND_AT_MOST) if seconds > 0 else None


def _wave_seconds(content: bytes) -> float | None:
    place, rate = _RIFF_BYTES, 0
    while place + _CHUNK_BYTES <= len(content):
        name, size = content[place : place + 4], _number(content[place + 4 : place + 8])
        place += _CHUNK_BYTES
        if name == b"fmt ":
            rate = _number(content[place:][_BYTE_RATE])
        if name == b"data":
            # A program that writes to a pipe does not know the size beforehand.
            return min(size, len(content) - place) / rate if rate else None
        place += size + size % 2
    return None


def _number(piece: bytes) -> int:
    return int.from_bytes(piece, "little")
