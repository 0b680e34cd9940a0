"""The wire between a world and adapters in other processes: one JSON value per line over a local socket.

A connection carries one request. `send`, `open-thread`, which is like it, `edit`, `show-menu` and `typing` get one
answer; the platform ends the connection without an answer where the sender is not to know what became of it:

    → {"do": "send", "account": "bot", "key": "7.0", "outbound": {"platform": "fake", "chat_id": "c1", "text": "hi"}}
    ← {"receipt": "12"}
    → {"do": "fetch", "account": "bot", "handle": "c1/3/0"}
    ← {"content": "aGk="}
    → {"do": "edit", "account": "bot", "receipt": "12", "outbound": {…}}
    ← {"error": "busy", "words": "…", "after": 1.5}

The errors are `down`, `busy` and `away` (both with `after`), `refused`, `gone`, and `moved`, whose words are the new id
of the chat. `open` gets updates for as long as the connection lasts, and takes the numbers of those that are safe:

    → {"do": "open", "account": "bot"}
    ← {"number": 1, "chat": "c1", "kind": "dm", "title": "alice", "person": {…}, "message": {…}}
    → 1
"""

import asyncio
import json
from typing import TypeVar

import msgspec

from palaver.model.label import Label
from palaver.model.turn import Outbound
from palaver.protocols.adapter import (
    ChatMoved,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    SendRefused,
    TargetAway,
    TargetGone,
)
from palaver.protocols.capabilities import MenuCommand

__all__ = [
    "LONGEST_LINE",
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

LONGEST_LINE = 1 << 24
_T = TypeVar("_T")


class Open(msgspec.Struct, frozen=True, tag_field="do", tag="open"):
    account: str


class Send(msgspec.Struct, frozen=True, tag_field="do", tag="send"):
    account: str
    outbound: Outbound
    key: str


class OpenThread(msgspec.Struct, frozen=True, tag_field="do", tag="open-thread"):
    account: str
    outbound: Outbound
    key: str


class Edit(msgspec.Struct, frozen=True, tag_field="do", tag="edit"):
    account: str
    outbound: Outbound
    receipt: str


class Fetch(msgspec.Struct, frozen=True, tag_field="do", tag="fetch"):
    account: str
    handle: str


class SendFile(msgspec.Struct, frozen=True, tag_field="do", tag="send-file"):
    account: str
    outbound: Outbound
    content: bytes
    key: str


class Typing(msgspec.Struct, frozen=True, tag_field="do", tag="typing"):
    account: str
    outbound: Outbound


class ShowMenu(msgspec.Struct, frozen=True, tag_field="do", tag="show-menu"):
    account: str
    lines: tuple[MenuCommand, ...]


Request = Open | Send | OpenThread | Edit | Typing | Fetch | SendFile | ShowMenu


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    receipt: str = ""
    error: str = ""
    words: str = ""
    after: float = 0.0
    content: bytes = b""

    @classmethod
    def of(cls, error: PlatformError) -> "Answer":
        """An error as it is told; there is none for SendUnclear, which is told by silence."""
        name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
        after = error.after if isinstance(error, PlatformBusy) else 0.0
        return cls(error=name, words=error.new if isinstance(error, ChatMoved) else str(error), after=after)

    def result(self) -> "Answer":
        """Itself, or the error raised again."""
        if not self.error:
            return self
        kind = _ERRORS[self.error]
        raise kind(self.after) if issubclass(kind, PlatformBusy) else kind(self.words)


# The more special ones first.
_ERRORS: dict[str, type[PlatformDown | PlatformBusy | SendRefused]] = {
    "down": PlatformDown,
    "away": TargetAway,
    "busy": PlatformBusy,
    "gone": TargetGone,
    "moved": ChatMoved,
    "refused": SendRefused,
}


def _plain(value: object) -> object:
    if isinstance(value, Label):
        return value.stored()
    raise NotImplementedError(type(value))


def _typed(kind: type, value: object) -> object:
    if kind is Label:
        return Label(str(value))
    raise NotImplementedError(kind)


async def write(writer: asyncio.StreamWriter, value: object) -> None:
    # ASCII only: text that cannot be encoded gets across, too.
    writer.write(json.dumps(msgspec.to_builtins(value, enc_hook=_plain)).encode() + b"\n")
    await writer.drain()


async def read(reader: asyncio.StreamReader, kind: type[_T]) -> _T | None:
    """The next value, or None where the other side has ended the connection, be it in the middle of a line."""
    value = await _value(reader)
    return None if value is None else msgspec.convert(value, kind, dec_hook=_typed)


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    value = await _value(reader)
    return None if value is None else msgspec.convert(value, Request, dec_hook=_typed)


async def _value(reader: asyncio.StreamReader) -> object:
    line = await reader.readline()
    return json.loads(line) if line.endswith(b"\n") else None
