"""What a model file in GGUF says of itself."""

import struct
from pathlib import Path
from typing import BinaryIO

__all__ = ["context_length"]

_MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_UNSIGNED = {4: "<I", 10: "<Q"}
_LONGEST = 1 << 20
_MOST = 100_000


def context_length(file: Path) -> int | None:
    """How many tokens the model was made for; None where the file does not say, or is no such file."""
    try:
        with file.open("rb") as stream:
            return _found(stream)
    except (OSError, struct.error, ValueError):
        return None


def _found(stream: BinaryIO) -> int | None:
    if stream.read(4) != _MAGIC:
        return None
    _, _, count = _read(stream, "<IQQ")
    for _ in range(min(count, _MOST)):
        name = _text(stream)
        (kind,) = _read(stream, "<I")
        if name.endswith(b".context_length") and kind in _UNSIGNED:
            return int(_read(stream, _UNSIGNED[kind])[0])
        _skip(stream, kind)
    return None


def _read(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def _text(stream: BinaryIO) -> bytes:
    (length,) = _read(stream, "<Q")
    if length > _LONGEST:
        raise ValueError(length)
    return stream.read(length)


def _skip(stream: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        _text(stream)
    elif kind == _ARRAY:
        inner, count = _read(stream, "<IQ")
        if inner in _SIZES:
            stream.seek(_SIZES[inner] * count, 1)
        else:
            for _ in range(min(count, 10 * _MOST)):
                _skip(stream, inner)
    elif kind in _SIZES:
        stream.seek(_SIZES[kind], 1)
    else:
        raise ValueError(kind)
