"""Addressing: whether a group message is for the agent, only overheard by it, or ignored."""

from collections.abc import Iterable
from enum import StrEnum

from palaver.model.reset import Cause
from palaver.model.source import DM
from palaver.model.text import one_line
from palaver.model.turn import Inbound
from palaver.model.value import value


class AnswerMode(StrEnum):
    """Which messages the agent answers in a group."""

    AUTO = "auto"
    """`addressed` if the platform has mentions, else `everything`."""
    ADDRESSED = "addressed"
    EVERYTHING = "everything"


@value
class AddressingRules:
    answers: AnswerMode = AnswerMode.AUTO
    wake_words: frozenset[str] = frozenset()
    """Names that address the agent when a message starts with one."""
    observes: bool = False
    """Show the agent, with its next turn, what people said to each other."""


class Addressing(StrEnum):
    ADDRESSED = "addressed"
    OVERHEARD = "overheard"
    IGNORED = "ignored"


def classify_addressing(
    inbound: Inbound, attention: AddressingRules, *, has_mentions: bool, commands: bool
) -> Addressing:
    """Classify a message; `commands` says that its text is one of our commands and names no other bot."""
    if inbound.observed:
        return Addressing.OVERHEARD
    if inbound.cause is not Cause.HUMAN:
        return Addressing.ADDRESSED
    if not inbound.files and not inbound.text.strip():
        return Addressing.IGNORED
    if inbound.source.chat_kind == DM:
        return Addressing.ADDRESSED
    everything = attention.answers is AnswerMode.EVERYTHING or (
        attention.answers is AnswerMode.AUTO and not has_mentions
    )
    if everything or inbound.mentions_us or commands or calls_by_name(inbound.text, attention.wake_words):
        return Addressing.ADDRESSED
    return Addressing.OVERHEARD if attention.observes or inbound.burst else Addressing.IGNORED


def is_undecided(inbound: Inbound, attention: AddressingRules) -> bool:
    """Return whether to keep an overheard part of a burst only until another part turns out to address us."""
    return inbound.observed and inbound.burst is not None and not attention.observes


_MAX_OPENING_LENGTH = 200
_OPENING_PUNCTUATION = "@¿¡\"'«„“([ "
_FIRST_UNSPACED = "\u2e80"  # Scripts from here on put no spaces between words, so anything can follow a name.


def calls_by_name(text: str, names: Iterable[str]) -> bool:
    """Return whether the text starts with one of the names: `Palaver, what …`, but not `palaverous`."""
    opening = one_line(text[: 2 * _MAX_OPENING_LENGTH], _MAX_OPENING_LENGTH).casefold().lstrip(_OPENING_PUNCTUATION)
    for name in (one_line(name, _MAX_OPENING_LENGTH).casefold() for name in names):
        rest = opening[len(name) :]
        if name and opening.startswith(name) and (not rest[:1].isalnum() or name[-1] >= _FIRST_UNSPACED):
            return True
    return False
