"""Addressing: whether a message is for the agent, overheard or ignored, and which messages share a turn."""

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise, takewhile
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole
from palaver.model.command import can_answer, name_usable, runs_alone
from palaver.model.key import ScopedSetting
from palaver.model.reset import ResetPolicy, ResetRule
from palaver.model.source import DM, Source
from palaver.model.split import ReplyRoutes
from palaver.model.text import can_cut, one_line
from palaver.model.turn import BusyMode, Cause, Inbound, QuestionMode, Received
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
    """Return whether the text starts with one of the names: `Palaver, what …`, but not `palaverous`.

    A mark changes the letter before it, so `palaver` with an accent on its last letter is another word, too.
    """
    opening = _comparable(text[: 2 * _MAX_OPENING_LENGTH]).lstrip(_OPENING_PUNCTUATION)
    for name in map(_comparable, names):
        if name and opening.startswith(name) and can_cut(opening, len(name)):
            following = opening[len(name) : len(name) + 1]
            if not following.isalnum() or name[-1] >= _FIRST_UNSPACED:
                return True
    return False


def _comparable(text: str) -> str:
    """Return the opening of a text in one form, no matter in which case and composition it was written."""
    return unicodedata.normalize("NFC", one_line(text, _MAX_OPENING_LENGTH).casefold())


@value
class Batch:
    """How many waiting messages the next turn takes. With `until` set, take none yet and decide again then."""

    take: int = 0
    until: datetime | None = None


def in_same_burst(one: Received, other: Received) -> bool:
    """Return whether both messages belong to one burst, such as an album."""
    first, second = one.inbound, other.inbound
    is_same_place = first.source.address == second.source.address
    is_same_sender = first.source.participant == second.source.participant
    return first.burst is not None and first.burst == second.burst and is_same_place and is_same_sender


def address_whole_bursts(waiting: Sequence[Received]) -> list[Received]:
    """Treat every part of a burst as addressed to us if one part is."""
    addressed = [received for received in waiting if received.inbound.burst and not received.inbound.observed]
    return [
        replace(received, inbound=replace(received.inbound, observed=False))
        if received.inbound.observed and any(in_same_burst(received, other) for other in addressed)
        else received
        for received in waiting
    ]


@dataclass(frozen=True, kw_only=True)
class ConversationRules:
    """The settings that decide, for each chat, when a turn begins and in which session."""

    resets: ScopedSetting[ResetPolicy] = field(default_factory=lambda: ScopedSetting(default=ResetPolicy()))
    zones: ScopedSetting[ZoneInfo] = field(default_factory=lambda: ScopedSetting(default=ZoneInfo("UTC")))
    busy: ScopedSetting[BusyMode] = field(default_factory=lambda: ScopedSetting(default=BusyMode.QUEUE))
    questions: ScopedSetting[QuestionMode] = field(default_factory=lambda: ScopedSetting(default=QuestionMode.WITHDRAW))
    reset_notices: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    progress: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    """Whether the chat shows which tools the agent is using."""
    attention: ScopedSetting[AddressingRules] = field(default_factory=lambda: ScopedSetting(default=AddressingRules()))
    process_limit: timedelta = timedelta(hours=24)
    """How long a background process keeps its conversation from being reset."""
    burst_window: timedelta = timedelta(seconds=1)
    command_roles: Mapping[str, AccessRole] = field(default_factory=dict[str, AccessRole])
    """The role that a command needs, if it is not the usual one."""

    def busy_mode(self, inbound: Inbound) -> BusyMode:
        """Return the busy mode that the sender chose, or the chat's."""
        return inbound.busy or self.busy.find(inbound.source)

    def withdraws_question(self, inbound: Inbound) -> bool:
        """Tell whether a message to the agent withdraws the question of a parked turn. One with a busy mode waits."""
        return inbound.busy is None and self.questions.find(inbound.source) is QuestionMode.WITHDRAW

    def can_answer(self, inbound: Inbound, role: AccessRole | None) -> bool:
        """Tell whether the text of a message can answer a question of the agent. Files are for the agent to see."""
        is_plain = inbound.busy is None and inbound.revision is None and not inbound.files
        return is_plain and bool(inbound.text.strip()) and can_answer(role, self.command_roles)

    def is_undecided(self, inbound: Inbound) -> bool:
        return is_undecided(inbound, self.attention.find(inbound.source))

    def for_reader(self, notice: str, role: AccessRole | None) -> str:
        """Return a notice that names only commands which its reader can use."""
        return name_usable(notice, role, self.command_roles)

    def reset_rule(self, source: Source) -> ResetRule:
        return ResetRule(
            policy=self.resets.find(source), zone=self.zones.find(source), process_limit=self.process_limit
        )


ALMOST_FULL = 0.95
"""A text that fills so much of a message may continue in the next one."""


def choose_batch(waiting: Sequence[Received], rules: ConversationRules, routes: ReplyRoutes, now: datetime) -> Batch:
    """Choose the messages at the head of the queue that belong in one turn.

    All of them come from one place, because a turn answers in one place. A command ends the batch and is never part of
    one. A burst (an album, or a pasted text that the platform cut) stays together in every mode: while more may follow,
    the turn waits for the rest, at most one window after the last part. Take none while files are missing, or while it
    is not known whether an album is for us: its parts may arrive before their mention.
    """
    count = _run_length(waiting, rules, routes)
    if not count:
        return Batch()
    last = waiting[count - 1]
    until = last.received + rules.burst_window
    if _more_follows(last, routes) and count == len(waiting) and now < until:
        return Batch(until=until)
    decided = list(takewhile(lambda each: not rules.is_undecided(each.inbound), waiting[:count]))
    return Batch(take=len(decided)) if all(each.inbound.has_all_files for each in decided) else Batch()


def _run_length(waiting: Sequence[Received], rules: ConversationRules, routes: ReplyRoutes) -> int:
    if not waiting or runs_alone(head := waiting[0].inbound):
        return 0
    count = 1
    for earlier, later in pairwise(waiting):
        alone = BusyMode.QUEUE in {rules.busy_mode(head), later.inbound.busy}
        if alone and not _same_burst(earlier, later, rules, routes):
            break
        if runs_alone(later.inbound) or later.inbound.source.address != head.source.address:
            break
        count += 1
    return count


def _same_burst(earlier: Received, later: Received, rules: ConversationRules, routes: ReplyRoutes) -> bool:
    if earlier.inbound.burst or later.inbound.burst:
        return in_same_burst(earlier, later)
    is_same_sender = earlier.inbound.source.participant == later.inbound.source.participant
    return is_same_sender and _more_follows(earlier, routes) and later.received - earlier.received <= rules.burst_window


def _more_follows(received: Received, routes: ReplyRoutes) -> bool:
    """Tell whether a message is part of an album, or so long that the platform may have cut it."""
    inbound, account = received.inbound, routes.account(received.inbound.source)
    if inbound.job:
        return False
    return bool(inbound.burst) or account.unit.measure(inbound.text) > ALMOST_FULL * account.limit
