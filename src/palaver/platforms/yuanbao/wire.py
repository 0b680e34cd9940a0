"""Yuanbao's frames: a head and data, both Protocol Buffers. Only the fields that we use."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeAlias, cast

from palaver.protocols import value

Fields: TypeAlias = Mapping[int, list[int | bytes]]
Names: TypeAlias = Mapping[str, "int | tuple[int, Names]"]
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10
CONNECTION = "conn_access"
MESSAGES = "yuanbao_openclaw_proxy"


def encode(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode numbers, texts and messages. As usual, those that are zero or empty are left out."""
    return b"".join(_field(number, content) for number, content in fields if content)


def from_json(found: Mapping[str, object], names: Names) -> bytes:
    """Encode a JSON object, whose names stand for these numbers; a pair has the names within."""
    parts: list[tuple[int, int | str | bytes]] = []
    for name, meaning in names.items():
        content = found.get(name)
        for each in cast("list[object]", content) if isinstance(content, list) else [content]:
            if isinstance(meaning, int) and isinstance(each, int | str):
                parts.append((meaning, each))
            elif isinstance(meaning, tuple) and isinstance(each, dict):
                parts.append((meaning[0], from_json(cast("Mapping[str, object]", each), meaning[1])))
    return encode(*parts)


def _field(number: int, content: int | str | bytes) -> bytes:
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


class Kind(IntEnum):
    REQUEST = 0
    RESPONSE = 1
    PUSH = 2
    ACK = 3


@value
class Frame:
    kind: Kind
    command: str
    id: str
    module: str
    number: int = 0
    needs_ack: bool = False
    status: int = 0
    data: bytes = b""

    def encode(self) -> bytes:
        head = encode(
            (1, self.kind),
            (2, self.command),
            (3, self.number),
            (4, self.id),
            (5, self.module),
            (6, int(self.needs_ack)),
            (10, self.status),
        )
        return encode((1, head), (2, self.data))

    @classmethod
    def decode(cls, raw: bytes) -> "Frame":
        outer = decode(raw)
        head = messages_of(outer, 1)[0]
        data = outer.get(2, [b""])[-1]
        return cls(
            kind=Kind(number_of(head, 1)),
            command=text_of(head, 2),
            number=number_of(head, 3),
            id=text_of(head, 4),
            module=text_of(head, 5),
            needs_ack=bool(number_of(head, 6)),
            status=number_of(head, 10),
            data=data if isinstance(data, bytes) else b"",
        )


def elements(parts: Iterable[tuple[str, bytes]]) -> list[bytes]:
    """Encode the parts of a message body: their type and content."""
    return [encode((1, kind), (2, content)) for kind, content in parts]
