"""Yuanbao's frames: a head and data, both Protocol Buffers. Only the fields that we use."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import TypeAlias, cast

from palaver.protocols import value
from palaver.protocols.protobuf import decode, encode, messages_of, number_of, text_of

Names: TypeAlias = Mapping[str, "int | tuple[int, Names]"]
CONNECTION = "conn_access"
MESSAGES = "yuanbao_openclaw_proxy"


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
