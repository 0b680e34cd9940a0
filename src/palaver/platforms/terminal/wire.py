"""The protocol between terminals and the gateway: JSON lines over a local socket.

A terminal first names its chat and, after a reconnect, the messages it has shown. Then it says things and confirms
what it has shown; it repeats each message until it is settled. With `alone` it gets no answers to other terminals:

    → {"do": "hello", "chat": "main", "known": []}
    ← {"do": "welcome", "commands": [{"name": "new", "help": "start a fresh conversation"}], "recap": []}
    → {"do": "say", "id": "6f1c", "text": "hi", "name": "alice"}
    ← {"do": "show", "number": 1, "id": "palaver:7", "text": "You said: hi", "growing": false}
    → {"do": "shown", "number": 1}
    ← {"do": "settled", "id": "6f1c", "refused": null, "failed": false}

Instead of a chat, the owner can ask the gateway to read its configuration again:

    → {"do": "reload"}
    ← {"do": "reloaded", "refused": null}
"""

import asyncio
import json
from typing import Annotated

import msgspec

MAX_TEXT = 200_000
MAX_LINE_BYTES = 1 << 24
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Hello(msgspec.Struct, frozen=True, tag_field="do", tag="hello"):
    chat: _Id
    known: tuple[str, ...] = ()
    alone: bool = False


class Say(msgspec.Struct, frozen=True, tag_field="do", tag="say"):
    id: _Id
    text: Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
    name: str = ""


class Shown(msgspec.Struct, frozen=True, tag_field="do", tag="shown"):
    number: int


class Reload(msgspec.Struct, frozen=True, tag_field="do", tag="reload"):
    """Read the configuration again."""


class Reloaded(msgspec.Struct, frozen=True, tag_field="do", tag="reloaded"):
    """The gateway uses the configuration as it is now, as far as it can without a restart."""

    refused: str | None = None
    """Why it keeps the one that it has."""


class MenuEntry(msgspec.Struct, frozen=True):
    name: str
    help: str


class RecapLine(msgspec.Struct, frozen=True):
    """An earlier message of a person or the agent."""

    by_person: bool
    text: str


class Offer(msgspec.Struct, frozen=True):
    """Something on this machine to connect a model with."""

    found: str
    """A sentence."""
    accept: str
    """What to say to use it."""
    decline: str
    """What to say to hear of it no more."""


class Welcome(msgspec.Struct, frozen=True, tag_field="do", tag="welcome"):
    commands: tuple[MenuEntry, ...] = ()
    recap: tuple[RecapLine, ...] = ()
    offer: Offer | None = None
    suggestions: tuple[str, ...] = ()
    """What a person can say, for a chat in which nothing was said."""


class File(msgspec.Struct, frozen=True):
    """A file for the terminal to save. The gateway is on the same machine."""

    name: str
    """Untrusted: not a path."""
    path: str
    id: str


class Show(msgspec.Struct, frozen=True, tag_field="do", tag="show"):
    number: int
    id: str
    """The same for every state of a message."""
    text: str
    growing: bool = False
    """The message is unfinished."""
    file: File | None = None


class Typing(msgspec.Struct, frozen=True, tag_field="do", tag="typing"):
    """The agent is working."""

    model: str | None = None
    doing: str = ""
    """What it is doing, for people."""


class Recap(msgspec.Struct, frozen=True, tag_field="do", tag="recap"):
    """The last messages of the conversation that a command has changed to."""

    lines: tuple[RecapLine, ...]


class OtherSaid(msgspec.Struct, frozen=True, tag_field="do", tag="heard"):
    """Said at another terminal in the same chat."""

    id: str
    text: str


class Settled(msgspec.Struct, frozen=True, tag_field="do", tag="settled"):
    """Nothing more will follow in answer to a message."""

    id: str
    refused: str | None = None
    """Why the message was not admitted."""
    failed: bool = False
    """The command or the agent failed; a shown message says so."""


class Failed(msgspec.Struct, frozen=True, tag_field="do", tag="failed"):
    """The gateway failed and disconnects."""

    why: str
    passes: bool
    """Whether it is likely to pass."""
    lasts: bool = False
    """Whether the gateway has retried for a while already."""


FromTerminal = Hello | Say | Shown | Reload
FromGateway = Welcome | Reloaded | Show | Typing | Recap | OtherSaid | Settled | Failed


def encode(value: FromTerminal | FromGateway) -> bytes:
    """Encode as ASCII JSON, so that lone surrogates get across."""
    return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


async def read_terminal(reader: asyncio.StreamReader) -> FromTerminal | None:
    """Return the next message; None at the end of the connection. Raises ValueError for a malformed one."""
    line = await reader.readline()
    return msgspec.convert(_value(line), FromTerminal) if line.endswith(b"\n") else None


async def read_gateway(reader: asyncio.StreamReader) -> FromGateway | None:
    line = await reader.readline()
    return msgspec.convert(_value(line), FromGateway) if line.endswith(b"\n") else None


def _value(line: bytes) -> object:
    try:
        return json.loads(line)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
