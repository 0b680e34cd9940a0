"""The wire between terminals and the gateway: one JSON object per line over a local socket.

A terminal begins with the chat it wants, and with what it has shown before, should the connection have been lost. Then
it says things and confirms what it has shown; it repeats what it said until that is settled. One that is `alone`
is not shown what answers another terminal that is there:

    → {"do": "hello", "chat": "main", "known": []}
    ← {"do": "welcome", "commands": [{"name": "new", "help": "start a fresh conversation"}], "recap": []}
    → {"do": "say", "id": "6f1c", "text": "hi", "name": "alice"}
    ← {"do": "show", "number": 1, "id": "palaver:7", "text": "You said: hi", "growing": false}
    → {"do": "shown", "number": 1}
    ← {"do": "settled", "id": "6f1c", "refused": null, "failed": false}
"""

import asyncio
import json
from typing import Annotated

import msgspec

__all__ = [
    "LONGEST_LINE",
    "LONGEST_TEXT",
    "CommandLine",
    "Failed",
    "FromGateway",
    "FromTerminal",
    "Heard",
    "Hello",
    "Said",
    "Say",
    "Settled",
    "Show",
    "Shown",
    "Typing",
    "Welcome",
    "encoded",
    "read_gateway",
    "read_terminal",
]

LONGEST_TEXT = 200_000
LONGEST_LINE = 1 << 24
_Id = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


class Hello(msgspec.Struct, frozen=True, tag_field="do", tag="hello"):
    chat: _Id
    known: tuple[str, ...] = ()
    alone: bool = False


class Say(msgspec.Struct, frozen=True, tag_field="do", tag="say"):
    id: _Id
    text: Annotated[str, msgspec.Meta(max_length=LONGEST_TEXT)]
    name: str = ""


class Shown(msgspec.Struct, frozen=True, tag_field="do", tag="shown"):
    number: int


class CommandLine(msgspec.Struct, frozen=True):
    name: str
    help: str


class Said(msgspec.Struct, frozen=True):
    """Something that was said before, by a person or by the agent."""

    by_person: bool
    text: str


class Welcome(msgspec.Struct, frozen=True, tag_field="do", tag="welcome"):
    commands: tuple[CommandLine, ...] = ()
    recap: tuple[Said, ...] = ()


class Show(msgspec.Struct, frozen=True, tag_field="do", tag="show"):
    number: int
    id: str
    """The same for every state of one message."""
    text: str
    growing: bool = False
    """More of it will come."""


class Typing(msgspec.Struct, frozen=True, tag_field="do", tag="typing"):
    """An answer is on its way."""


class Heard(msgspec.Struct, frozen=True, tag_field="do", tag="heard"):
    """Said at another terminal in the same chat."""

    id: str
    text: str


class Settled(msgspec.Struct, frozen=True, tag_field="do", tag="settled"):
    """Nothing more will come in answer to what was said."""

    id: str
    refused: str | None = None
    """Why it was not let in."""
    failed: bool = False
    """What it commanded could not be done, or the agent failed at it; what was shown says so."""


class Failed(msgspec.Struct, frozen=True, tag_field="do", tag="failed"):
    """The gateway could not go on, and hangs up; it may be able to later."""

    why: str
    passes: bool
    """It is likely to pass."""
    lasts: bool = False
    """It was tried for a while already."""


FromTerminal = Hello | Say | Shown
FromGateway = Welcome | Show | Typing | Heard | Settled | Failed


def encoded(value: FromTerminal | FromGateway) -> bytes:
    """ASCII only: text that cannot be encoded gets across, too."""
    return json.dumps(msgspec.to_builtins(value)).encode() + b"\n"


async def read_terminal(reader: asyncio.StreamReader) -> FromTerminal | None:
    """The next line; None where the connection has ended. Raises ValueError for what is none of ours."""
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
