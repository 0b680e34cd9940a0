"""Protocol Buffers without a schema, for platforms that send frames of a few fields."""

from collections.abc import Mapping
from typing import TypeAlias

__all__ = ["Fields", "decode", "encode", "encode_field", "messages_of", "number_of", "text_of"]

Fields: TypeAlias = Mapping[int, list[int | bytes]]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


def encode(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode numbers, texts and messages. As usual, those that are zero or empty are left out."""
    return b"".join(encode_field(number, content) for number, content in fields if content)


def encode_field(number: int, content: int | str | bytes) -> bytes:
    """Encode one field, zero and empty ones, too: some are required."""
    if isinstance(content, int):
        return _varint(number << 3 | _VARINT) + _varint(content % (1 << 64))
    body = content.encode("utf-8", "replace") if isinstance(content, str) else content
    return _varint(number << 3 | _BYTES) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits in each byte
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def decode(data: bytes) -> dict[int, list[int | bytes]]:
    """Decode a message into its fields. Raise ValueError if it is none."""
    found: dict[int, list[int | bytes]] = {}
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            content, at = _read_varint(data, at)
        elif kind in {_BYTES, _FIXED32, _FIXED64}:
            size = {_FIXED32: 4, _FIXED64: 8}.get(kind)
            if size is None:
                size, at = _read_varint(data, at)
            content, at = data[at : at + size], at + size
        else:
            raise ValueError("an unknown kind of field")
        if at > len(data) or not number:
            raise ValueError("a field without its end")
        found.setdefault(number, []).append(content)
    return found


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = 0
    for index, byte in enumerate(data[at : at + _MAX_VARINT_BYTES]):
        number |= (byte & 0x7F) << 7 * index
        if byte <= 0x7F:  # noqa: PLR2004
            return number, at + index + 1
    raise ValueError("a number without its end")


def text_of(fields: Fields, number: int) -> str:
    content = fields.get(number, [b""])[-1]
    return content.decode() if isinstance(content, bytes) else str(content)


def number_of(fields: Fields, number: int) -> int:
    """Return a whole number. A negative one, such as an error code, comes as a 64-bit complement."""
    content = fields.get(number, [0])[-1]
    if not isinstance(content, int):
        raise ValueError("not a number")  # noqa: TRY004 - it is the data that is wrong
    return content - (1 << 64) if content >> 63 else content


def messages_of(fields: Fields, number: int) -> list[dict[int, list[int | bytes]]]:
    return [decode(content) for content in fields.get(number, []) if isinstance(content, bytes)]
