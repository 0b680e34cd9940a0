"""The protocol between the fake platform and adapters in other processes: JSON lines over a local socket.

A connection carries one call of `PlatformClient` and gets one answer; to leave the sender in doubt, the platform closes
the connection without one:

    → {"do": "send", "arguments": ["bot", {"platform": "fake", "chat_id": "c1", "text": "hi"}, "7.0"]}
    ← {"receipt": "12"}
    → {"do": "fetch", "arguments": ["bot", "c1/3/0"]}
    ← {"content": "aGk="}
    → {"do": "edit", "arguments": ["bot", "12", {…}]}
    ← {"error": "busy", "words": "…", "after": 1.5}

The errors are `down`, `busy` and `away` (both with `after`), `refused`, `gone`, and `moved`, whose `words` are the new
id of the chat. `open` streams updates and takes the numbers of those that are stored:

    → {"do": "open", "arguments": ["bot"]}
    ← {"number": 1, "chat": "c1", "kind": "dm", "title": "alice", "person": {…}, "message": {…}}
    → 1
"""

import asyncio
import json
from typing import Any, TypeVar

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

__all__ = ["MAX_LINE_BYTES", "Answer", "Request", "read", "write"]

MAX_LINE_BYTES = 1 << 24
_T = TypeVar("_T")
_ARGUMENTS: dict[str, Any] = {
    "open": tuple[str],
    "send": tuple[str, Outbound, str],
    "open_thread": tuple[str, Outbound, str],
    "edit": tuple[str, str, Outbound],
    "typing": tuple[str, Outbound],
    "show_menu": tuple[str, tuple[MenuCommand, ...]],
    "fetch": tuple[str, str],
    "send_file": tuple[str, Outbound, bytes, str],
}


class Request(msgspec.Struct, frozen=True):
    do: str
    """A method of `PlatformClient`."""
    arguments: tuple[Any, ...]

    def decoded(self) -> tuple[Any, ...]:
        return msgspec.convert(self.arguments, _ARGUMENTS[self.do], dec_hook=_decode_label)


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
    line = await reader.readline()
    return msgspec.convert(json.loads(line), kind, dec_hook=_decode_label) if line.endswith(b"\n") else None
