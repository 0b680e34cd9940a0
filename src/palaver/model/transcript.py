"""Transcripts: append-only entries. Only `hidden_by` ever changes."""

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.value import value


class Role(StrEnum):
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    NOTE = "note"
    SUMMARY = "summary"


class ToolCall(NamedTuple):
    id: str
    name: str
    arguments: str = "{}"
    """JSON text, exactly as the provider sent it."""


class Sender(NamedTuple):
    id: str | None = None
    name: Label | None = None


QUOTE_LIMIT = 1000
"""How many characters of a quoted message the model sees."""
KEPT_QUOTE_LIMIT = 100_000
"""How many are kept: of a mail this is the whole history that it quotes."""


@value
class Quote:
    """The message that a message replies to, as the platform showed it."""

    text: str
    author: str | None = None
    """The account that wrote it, as `identity_of` returns it."""
    name: Label | None = None
    is_ours: bool = False
    """The gateway's account wrote it."""


class Entry(NamedTuple):
    """One line of a transcript. A named tuple, because every turn loads hundreds."""

    seq: int
    role: Role
    at: datetime
    text: str = ""
    turn: str | None = None
    sender: Sender | None = None
    message_id: str | None = None
    """The platform's id of the message, if it has one."""
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    """The id of the tool call whose result this is."""
    reasoning: str = ""
    blob: bytes = b""
    """What the provider needs back byte for byte."""
    tokens: int = 0
    observed: bool = False
    """Overheard: said in the chat, but not to the agent."""
    covers: tuple[int, int] | None = None
    """The first and last seq that a summary replaces."""
    files: tuple[Attachment, ...] = ()
    """Files that came with the message or went out with the answer."""
    quote: Quote | None = None
    """The message that it replies to."""
    cost_micros: int | None = None
    """What the model's answer cost with its prompt, in millionths of the price table's currency; None if unknown."""
    cut: bool = False
    """The answer reached the model's limit of tokens and ends in the middle."""
    hidden_by: str | None = None
    """The operation that removed it from the view."""

    @property
    def position(self) -> int:
        """Its place in the view: a summary takes the place of the last entry it covers."""
        return self.covers[1] if self.covers else self.seq


class UnreadableEntry(Entry):
    """Stands where an entry cannot be read, so that the rest of its conversation can."""

    __slots__ = ()


UNREADABLE_TEXT = "An entry of this conversation cannot be read."


def is_addressed_to_agent(entry: Entry) -> bool:
    """Return whether a person said it to the agent, not only to others."""
    return entry.role is Role.USER and not entry.observed


def is_answer(entry: Entry) -> bool:
    """Return whether the agent said it to people, not to call tools."""
    return entry.role is Role.ASSISTANT and not entry.calls


def turn_starts(entries: Iterable[Entry]) -> list[int]:
    """Return the seqs where turns with a person's words begin. Entries without a turn count singly."""
    firsts: dict[str, int] = {}
    for entry in filter(is_addressed_to_agent, entries):
        firsts.setdefault(entry.turn or f"seq {entry.seq}", entry.seq)
    return list(firsts.values())


def start_of_last_turns(entries: Iterable[Entry], count: int) -> int | None:
    """Return the seq where the last `count` turns with a person's words begin."""
    starts = turn_starts(entries)[-max(count, 1) :]
    return starts[0] if starts else None
