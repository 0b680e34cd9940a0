"""Attention: whether words in a group are for the agent, for others in its hearing, or none of its business."""

from collections.abc import Iterable
from enum import StrEnum

from palaver.model.reset import Cause
from palaver.model.source import DM
from palaver.model.text import one_line
from palaver.model.turn import Inbound
from palaver.model.value import value

__all__ = [
    "Addressing",
    "AddressingRules",
    "AnswerMode",
    "calls_by_name",
    "classify_addressing",
    "is_undecided",
]


class AnswerMode(StrEnum):
    """What the agent answers where several people talk."""

    AUTO = "auto"
    """`addressed` where the platform has mentions, else `everything`."""
    ADDRESSED = "addressed"
    EVERYTHING = "everything"


@value
class AddressingRules:
    answers: AnswerMode = AnswerMode.AUTO
    wake_words: frozenset[str] = frozenset()
    """Names by which the agent is called, at the beginning of what is said."""
    observes: bool = False
    """Whether it is shown, with the next answer, what was said to others meanwhile."""


class Addressing(StrEnum):
    ADDRESSED = "addressed"
    OVERHEARD = "overheard"
    IGNORED = "ignored"


def classify_addressing(
    inbound: Inbound, attention: AddressingRules, *, has_mentions: bool, commands: bool
) -> Addressing:
    """`commands` says that the text is a command of ours which names no other bot."""
    if inbound.observed:
        return Addressing.OVERHEARD
    if inbound.cause is not Cause.HUMAN:
        return Addressing.ADDRESSED
    if not inbound.files and not inbound.text.strip():
        return Addressing.IGNORED  # nothing was said
    if inbound.source.chat_kind == DM:
        return Addressing.ADDRESSED
    everything = attention.answers is AnswerMode.EVERYTHING or (
        attention.answers is AnswerMode.AUTO and not has_mentions
    )
    if everything or inbound.mentions_us or commands or calls_by_name(inbound.text, attention.wake_words):
        return Addressing.ADDRESSED
    return Addressing.OVERHEARD if attention.observes or inbound.burst else Addressing.IGNORED


def is_undecided(inbound: Inbound, attention: AddressingRules) -> bool:
    """A part of what was sent as one, which is kept only until it is known that no other part is for us."""
    return inbound.observed and inbound.burst is not None and not attention.observes


_ENOUGH = 200
_OPENINGS = "@¿¡\"'«„“([ "
_UNSPACED = "\u2e80"  # From here on scripts do without spaces, so a name may be followed by anything.


def calls_by_name(text: str, names: Iterable[str]) -> bool:
    """Whether somebody is called by one of these names: `Palaver, what …`, `hey palaver`, but not `palaverous`."""
    said = one_line(text[: 2 * _ENOUGH], _ENOUGH).casefold().lstrip(_OPENINGS)
    for name in (one_line(each, _ENOUGH).casefold() for each in names):
        rest = said[len(name) :]
        if name and said.startswith(name) and (not rest[:1].isalnum() or name[-1] >= _UNSPACED):
            return True
    return False
