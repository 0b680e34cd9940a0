"""The protocol between the fake platform and adapters in other processes: JSON lines over a local socket.

A connection carries one request. `send`, `open-thread`, `edit`, `show-menu`, `typing` and the file requests get one
answer; to leave the sender in doubt, the platform closes the connection without one:

    → {"do": "send", "account": "bot", "key": "7.0", "outbound": {"platform": "fake", "chat_id": "c1", "text": "hi"}}
    ← {"receipt": "12"}
    → {"do": "fetch", "account": "bot", "handle": "c1/3/0"}
    ← {"content": "aGk="}
    → {"do": "edit", "account": "bot", "receipt": "12", "outbound": {…}}
    ← {"error": "busy", "words": "…", "after": 1.5}

The errors are `down`, `busy` and `away` (both with `after`), `refused`, `gone`, and `moved`, whose `words` are the new
id of the chat. `open` streams updates and takes the numbers of those that are stored:

    → {"do": "open", "account": "bot"}
    ← {"number": 1, "chat": "c1", "kind": "dm", "title": "alice", "person": {…}, "message": {…}}
    → 1
"""

import asyncio
import json
import re
from typing import TypeVar

import msgspec

from palaver.protocols import (
    ChatMoved,
    Label,
    MenuCommand,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    SendRefused,
    TargetAway,
    TargetGone,
)

__all__ = [
    "MAX_LINE_BYTES",
    "Answer",
    "Edit",
    "Fetch",
    "Open",
    "OpenThread",
    "Request",
    "Send",
    "SendFile",
    "ShowMenu",
    "Typing",
    "read",
    "read_request",
    "write",
]

MAX_LINE_BYTES = 1 << 24
_T = TypeVar("_T")


def _kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


class _Request(msgspec.Struct, frozen=True, tag_field="do", tag=_kebab):
    account: str


class Open(_Request, frozen=True): ...


class Send(_Request, frozen=True):
    outbound: Outbound
    key: str


class OpenThread(_Request, frozen=True):
    outbound: Outbound
    key: str


class Edit(_Request, frozen=True):
    outbound: Outbound
    receipt: str


class Fetch(_Request, frozen=True):
    handle: str


class SendFile(_Request, frozen=True):
    outbound: Outbound
    content: bytes
    key: str


class Typing(_Request, frozen=True):
    outbound: Outbound


class ShowMenu(_Request, frozen=True):
    commands: tuple[MenuCommand, ...]


Request = Open | Send | OpenThread | Edit | Typing | Fetch | SendFile | ShowMenu


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    receipt: str = ""
    error: str = ""
    words: str = ""
    after: float = 0.0
    content: bytes = b""

    @classmethod
    def of(cls, error: PlatformError) -> "Answer":
        """Encode an error. SendUnclear has no encoding: the connection is closed instead."""
        name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
        after = error.after if isinstance(error, PlatformBusy) else 0.0
        return cls(error=name, words=error.new if isinstance(error, ChatMoved) else str(error), after=after)

    def result(self) -> "Answer":
        """Return itself, or raise the encoded error."""
        if not self.error:
            return self
        kind = _ERRORS[self.error]
        raise kind(self.after) if issubclass(kind, PlatformBusy) else kind(self.words)


# Subclasses first.
_ERRORS: dict[str, type[PlatformDown | PlatformBusy | SendRefused]] = {
    "down": PlatformDown,
    "away": TargetAway,
    "busy": PlatformBusy,
    "gone": TargetGone,
    "moved": ChatMoved,
    "refused": SendRefused,
}


def _encode_label(value: object) -> object:
    if isinstance(value, Label):
        return value.stored()
    raise NotImplementedError(type(value))


def _decode_label(kind: type, value: object) -> object:
    if kind is Label:
        return Label(str(value))
    raise NotImplementedError(kind)


async def write(writer: asyncio.StreamWriter, value: object) -> None:
    # ASCII only: lone surrogates get across, too.
    writer.write(json.dumps(msgspec.to_builtins(value, enc_hook=_encode_label)).encode() + b"\n")
    await writer.drain()


async def read(reader: asyncio.StreamReader, kind: type[_T]) -> _T | None:
    """Return the next value, or None if the other side has closed the connection, even in the middle of a line."""
    value = await _value(reader)
    return None if value is None else msgspec.convert(value, kind, dec_hook=_decode_label)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    value = await _value(reader)
    return None if value is None else msgspec.convert(value, Request, dec_hook=_decode_label)


async def _value(reader: asyncio.StreamReader) -> object:
    line = await reader.readline()
    return json.loads(line) if line.endswith(b"\n") else None
