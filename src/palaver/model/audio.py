"""Recordings: how long one is, as far as its container says."""

import math
import re
import struct
from collections import Counter
from collections.abc import Iterator
from functools import partial

BYTES_PER_SECOND_AT_LEAST = 1_000
"""What a recording of unknown length takes: less than any usual format, so that it counts as long rather than short."""
_OPUS_RATE = 48_000
_BYTES_PER_SECOND_AT_MOST = 64_000
"""What Opus, Vorbis and AAC take at their best quality."""
_LOSSLESS_BYTES_PER_SECOND_AT_MOST = 192_000
_ID3_BYTES = 10
_ID3V1_BYTES = 128
_MP3_RATES = (44_100, 48_000, 32_000)
_MP3_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MP3_KBITS_OF_LOW_RATES = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)
_FULL_RATE = 3
_LAYER_3 = 1
_SIZES = 127
_SEGMENT, _INFO, _CLUSTER, _BLOCK_GROUP = 0x18538067, 0x1549A966, 0x1F43B675, 0xA0
_TICK_NANOSECONDS, _DURATION, _CLUSTER_TIME, _BLOCKS = 0x2AD7B1, 0x4489, 0xE7, (0xA3, 0xA1)
_OPENED = frozenset({_SEGMENT, _INFO, _CLUSTER, _BLOCK_GROUP})
"""The elements of Matroska that are read; the others are skipped."""
_MAX_ELEMENTS = 1_000_000
"""More than a recording of five hours has; reading them takes about a second."""
_HAS_OFFSET, _HAS_DESCRIPTION, _HAS_USUAL_LENGTH, _HAS_LENGTHS = 0x1, 0x2, 0x8, 0x100
_PAGE, _POSITION, _FLAGS, _FIRST, _HEADER_BYTES = b"OggS", slice(6, 14), 5, 2, 27
_VORBIS, _VORBIS_RATE = b"\x01vorbis", slice(12, 16)
_RIFF_BYTES, _CHUNK_BYTES = 12, 8
_BYTE_RATE = slice(8, 12)


def recording_seconds(content: bytes) -> float:
    """Return the length of a recording; if its format is unknown, at most what its size allows."""
    read = next((reader for signature, reader in _READERS if signature.match(content)), None)
    try:
        seconds = read(content) if read else None
    except (IndexError, OverflowError, struct.error):  # it is cut off, or says nonsense
        seconds = None
    return len(content) / BYTES_PER_SECOND_AT_LEAST if seconds is None else seconds


def _believed(seconds: float, size: int, bytes_per_second: int = _BYTES_PER_SECOND_AT_MOST) -> float | None:
    """Return what a header says, which anybody can write there, but never less than the size allows."""
    return max(seconds, size / bytes_per_second) if 0 < seconds < math.inf else None


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
    return _believed((samples + position) / rate if rate else 0.0, len(content))


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


def _mp3_seconds(content: bytes) -> float | None:
    """Count the frames. What is no frame counts as if the format was unknown, apart from the tags at both ends."""
    place, seconds = _after_id3(content), 0.0
    end = len(content) - (_ID3V1_BYTES if content[-_ID3V1_BYTES:].startswith(b"TAG") else 0)
    while place < end:
        size, length = _mp3_frame(content[place : place + 4])
        if not size:
            break
        place, seconds = place + size, seconds + length
    return seconds + max(end - place, 0) / BYTES_PER_SECOND_AT_LEAST if seconds else None


def _after_id3(content: bytes) -> int:
    """Return where the sound begins: a tag before it, with the cover for example, has its size in 7 bits a byte."""
    if not content.startswith(b"ID3"):
        return 0
    return _ID3_BYTES + sum((byte & _SIZES) << shift for byte, shift in zip(content[6:10], (21, 14, 7, 0), strict=True))


def _mp3_frame(header: bytes) -> tuple[int, float]:
    """Return the bytes and seconds of a frame; zeros if none begins here."""
    if len(header) < 4 or header[0] != 0xFF or header[1] < 0xE0:  # noqa: PLR2004 - eleven set bits
        return 0, 0.0
    version, layer = header[1] >> 3 & 3, header[1] >> 1 & 3
    kbits, rate, padding = header[2] >> 4, header[2] >> 2 & 3, header[2] >> 1 & 1
    if version == 1 or layer != _LAYER_3 or not 0 < kbits < len(_MP3_KBITS) or rate >= len(_MP3_RATES):
        return 0, 0.0
    is_full = version == _FULL_RATE
    hertz = _MP3_RATES[rate] >> (0 if is_full else 1 if version else 2)
    samples = 1152 if is_full else 576
    bits = 1000 * (_MP3_KBITS if is_full else _MP3_KBITS_OF_LOW_RATES)[kbits]
    return samples // 8 * bits // hertz + padding, samples / hertz


def _flac_seconds(content: bytes) -> float | None:
    """Read the first block: 20 bits of it are the sample rate, 36 the number of samples."""
    facts = int.from_bytes(content[18:26], "big")
    rate, samples = facts >> 44, facts & 0xFFFFFFFFF
    return _believed(samples / rate if rate else 0.0, len(content), _LOSSLESS_BYTES_PER_SECOND_AT_MOST)


def _mp4_seconds(content: bytes) -> float | None:
    """Read the header of the movie, which is in front of the sound or behind it, or add up its fragments."""
    for header, _ in _find_boxes(content, 0, len(content), b"moov", b"mvhd"):
        is_long = content[header] == 1
        rate, length = struct.unpack_from(">IQ" if is_long else ">II", content, header + (20 if is_long else 12))
        seconds = length / rate if rate and length else _seconds_of_fragments(content)
        return _believed(seconds, len(content))
    return None


def _seconds_of_fragments(content: bytes) -> float:
    """Return what the samples of the longest track take: who writes while recording knows no length beforehand."""
    find = partial(_find_boxes, content, 0, len(content))
    rates, usual, lengths = dict[int, int](), dict[int, int](), Counter[int]()
    tracks, media = find(b"moov", b"trak", b"tkhd"), find(b"moov", b"trak", b"mdia", b"mdhd")
    for (track, _), (about, _) in zip(tracks, media, strict=False):
        rate = _word(content, about + (20 if content[about] == 1 else 12))
        rates[_word(content, track + (20 if content[track] == 1 else 12))] = rate
    for extends, _ in find(b"moov", b"mvex", b"trex"):
        usual[_word(content, extends + 4)] = _word(content, extends + 12)
    for start, end in find(b"moof", b"traf"):
        for head, _ in _find_boxes(content, start, end, b"tfhd"):
            flags, number = _word(content, head), _word(content, head + 4)
            place = head + 8 + 8 * bool(flags & _HAS_OFFSET) + 4 * bool(flags & _HAS_DESCRIPTION)
            each = _word(content, place) if flags & _HAS_USUAL_LENGTH else usual.get(number, 0)
            runs = _find_boxes(content, start, end, b"trun")
            lengths[number] += sum(_length_of_run(content, *run, each) for run in runs)
    return max((lengths[number] / rate for number, rate in rates.items() if rate), default=0.0)


def _length_of_run(content: bytes, place: int, end: int, each: int) -> int:
    """Add up a run of samples, each of which has a length of its own or the usual one."""
    flags, count = _word(content, place), _word(content, place + 4)
    if not flags & _HAS_LENGTHS:
        return count * each
    first, step = place + 8 + 4 * bool(flags & 1) + 4 * bool(flags & 4), 4 * (flags >> 8 & 15).bit_count()
    return sum(_word(content, at) for at in range(first, min(first + count * step, end - 3), step))


def _word(content: bytes, place: int) -> int:
    return int(struct.unpack_from(">I", content, place)[0])


def _find_boxes(content: bytes, start: int, end: int, name: bytes, *inside: bytes) -> Iterator[tuple[int, int]]:
    """Yield where the content of each box at this path begins and ends."""
    for kind, first, last in _boxes(content, start, end):
        if kind == name and inside:
            yield from _find_boxes(content, first, last, *inside)
        elif kind == name:
            yield first, last


def _boxes(content: bytes, place: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the name of each box, and where its content begins and ends."""
    while place + 8 <= end:
        size, head = int.from_bytes(content[place : place + 4], "big"), 8
        if size == 1:
            size, head = int.from_bytes(content[place + 8 : place + 16], "big"), 16
        after = place + size if size else end
        if after < place + head:
            return
        yield content[place + 4 : place + 8], place + head, min(after, end)
        place = after


def _webm_seconds(content: bytes) -> float | None:
    """Return the time of the last block or the length that the header says, which browsers leave out."""
    tick, cluster, last = 1_000_000, 0, 0.0
    for count, (name, start, end) in enumerate(_elements(content)):
        if count > _MAX_ELEMENTS:
            return None
        if name == _TICK_NANOSECONDS:
            tick = int.from_bytes(content[start:end], "big")
        elif name == _DURATION:
            last = max(last, struct.unpack(">d" if end - start == 8 else ">f", content[start:end])[0])  # noqa: PLR2004
        elif name == _CLUSTER_TIME:
            cluster = int.from_bytes(content[start:end], "big")
        elif name in _BLOCKS:  # the number of the track comes first
            track = 9 - content[start].bit_length()
            last = max(last, cluster + int.from_bytes(content[start + track : start + track + 2], "big", signed=True))
    return _believed(last * tick / 1e9, len(content))


def _elements(content: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the number of each element of Matroska, and where its content begins and ends."""
    place = 0
    while place < len(content):
        width = 9 - content[place].bit_length()
        name, place = int.from_bytes(content[place : place + width], "big"), place + width
        width = 9 - content[place].bit_length()
        size = int.from_bytes(content[place : place + width], "big") & ((1 << 7 * width) - 1)
        place += width
        if name not in _OPENED:
            yield name, place, place + size
            place += size


_READERS = (
    (re.compile(_PAGE), _ogg_seconds),
    (re.compile(b"RIFF"), _wave_seconds),
    (re.compile(b"fLaC"), _flac_seconds),
    (re.compile(b"....ftyp", re.DOTALL), _mp4_seconds),
    (re.compile(b"\x1aE\xdf\xa3"), _webm_seconds),
    (re.compile(b"ID3|\xff[\xe0-\xff]"), _mp3_seconds),
)
