"""Options of the engine, read once and passed in."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast
from zoneinfo import ZoneInfo

from palaver.model.access import AccessRole, Grant
from palaver.model.addressing import AddressingRules, is_undecided
from palaver.model.ids import decode_id
from palaver.model.quotas import QuotaRules
from palaver.model.reset import ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.scope import ProfileRule, Scope
from palaver.model.scoped_setting import ChatSelector, ScopedSetting
from palaver.model.source import Source
from palaver.model.tools import ToolRules
from palaver.model.turn import BusyMode, Inbound, account_text
from palaver.store.results import ResetRule

__all__ = [
    "Moved",
    "Options",
    "following",
    "where_now",
]


@dataclass(frozen=True, kw_only=True)
class Options:
    # Rules of conversations
    scopes: ScopedSetting[Scope] = field(default_factory=lambda: ScopedSetting(default=Scope()))
    resets: ScopedSetting[ResetPolicy] = field(default_factory=lambda: ScopedSetting(default=ResetPolicy()))
    zones: ScopedSetting[ZoneInfo] = field(default_factory=lambda: ScopedSetting(default=ZoneInfo("UTC")))
    busy: ScopedSetting[BusyMode] = field(default_factory=lambda: ScopedSetting(default=BusyMode.QUEUE))
    reset_notices: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    revisions: ScopedSetting[RevisionPolicy] = field(default_factory=lambda: ScopedSetting(default=RevisionPolicy.NOTE))
    attention: ScopedSetting[AddressingRules] = field(default_factory=lambda: ScopedSetting(default=AddressingRules()))
    pairing: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    """Whether strangers in direct chats are given a code with which the owner may let them in."""
    profiles: tuple[ProfileRule, ...] = ()
    grants: tuple[Grant, ...] = ()
    """Grants from the configuration; those in the store come on top."""
    caps: QuotaRules = field(default_factory=QuotaRules)
    command_roles: Mapping[str, AccessRole] = field(default_factory=dict[str, AccessRole])
    """Which role commands need, where it is not the usual one."""

    # Turns
    concurrent_turns: int = 16
    burst_window: timedelta = timedelta(seconds=1)
    acknowledges: bool = True
    """Whoever writes into a running turn is told, once per turn, what becomes of it."""
    quiet_limit: timedelta = timedelta(minutes=5)
    """How long an agent may say nothing."""
    turn_limit: timedelta = timedelta(minutes=30)
    attempts: int = 3
    """How often a turn is begun, counting restarts."""
    fresh_for: timedelta | None = timedelta(hours=1)
    """How long after it was cut off a turn is still taken up again; None for ever."""
    agent_tries: int = 3
    """How often an agent is asked in one attempt while its failures look transient."""
    drain_limit: timedelta = timedelta(seconds=30)
    context_window: int = 128_000
    """How many tokens a model takes whose agent does not say so."""
    context_percent: int = 85
    """How full the model's context may be before a conversation is summarised."""
    message_limit: int = 400
    """How many entries of a conversation are shown to the agent before it is summarised."""
    tools: ToolRules = field(default_factory=ToolRules)
    """Which tools an agent may use, for whom and where."""
    tool_limit: timedelta = timedelta(minutes=2)
    """How long one use of a tool may take."""
    titles: bool = True
    """Conversations without a title are given one by their agent."""

    # Sends
    concurrent_sends: int = 32
    """How many sends of each account run at once."""
    send_limit: timedelta = timedelta(seconds=30)
    """How long one send may take."""
    upload_limit: timedelta = timedelta(minutes=10)
    """How long the send of a file may take."""
    send_patience: timedelta = timedelta(hours=24)
    """How long a send is tried again before it is given up."""
    repeat_after: timedelta = timedelta(seconds=30)
    """How long after a send that may have arrived it is repeated, marked: once, so not in the outage that it met."""

    # Files
    file_size: int = 20_000_000
    """The largest file, in bytes."""
    files_per_message: int = 10
    fetch_limit: timedelta = timedelta(minutes=2)
    """How long fetching one file may take."""
    fetch_patience: timedelta = timedelta(minutes=10)
    """How long a message waits for files that its platform does not give."""

    # Upkeep
    lease: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=5)
    """The safety net under wake-ups."""
    sweep_every: timedelta = timedelta(minutes=1)
    route_limit: timedelta = timedelta(days=90)
    crash_window: timedelta = timedelta(minutes=5)
    """Starts within this time of each other count as one crash loop."""
    crash_limit: int = 3

    def busy_mode(self, inbound: Inbound) -> BusyMode:
        """As its sender has said, else as the chat does."""
        return inbound.busy or self.busy.find(inbound.source).value

    def is_undecided(self, inbound: Inbound) -> bool:
        return is_undecided(inbound, self.attention.find(inbound.source).value)

    def reset_rule(self, source: Source) -> ResetRule:
        return ResetRule(policy=self.resets.find(source).value, zone=self.zones.find(source).value)


Moved = Mapping[str, Mapping[str, str]]
"""Of every account, the ids that chats had before, each with the one it has now."""
T = TypeVar("T")
Rule = TypeVar("Rule", Grant, ProfileRule)


class _Move(NamedTuple):
    platform: str
    account: str
    old: str
    new: str


def following(options: Options, moved: Moved) -> Options:
    """What is set under the new id already stays as it is set there."""
    moves = [
        _Move(account.partition(":")[0], decode_id(account.partition(":")[2]), old, new)
        for account, chats in moved.items()
        for old, new in chats.items()
    ]
    if not moves:
        return options
    layers: dict[str, Any] = {
        name: _set_for(cast("ScopedSetting[object]", value), moves)
        for name, value in vars(options).items()
        if isinstance(value, ScopedSetting)
    }
    profiles, grants = _ruled(options.profiles, moves), _ruled(options.grants, moves)
    return replace(options, profiles=profiles, grants=grants, **layers)


def where_now(source: Source, moved: Moved) -> Source:
    """With its chat under the id it has now."""
    chats = moved.get(account_text(source.platform, source.account))
    chat = chats and source.chat and chats.get(source.chat)
    return replace(source, chat_id=chat) if chat else source


def _set_for(layers: ScopedSetting[T], moves: list[_Move]) -> ScopedSetting[T]:
    led = {
        ChatSelector(chat.platform, move.new, chat.scope_id): value
        for chat, value in layers.chats.items()
        for move in moves
        if (chat.platform, chat.chat_id) == (move.platform, move.old)
    }
    return replace(layers, chats={**led, **layers.chats})


def _ruled(rules: tuple[Rule, ...], moves: list[_Move]) -> tuple[Rule, ...]:
    led = [
        replace(rule, chat_id=move.new)
        for rule in rules
        for move in moves
        if rule.chat_id == move.old
        and rule.platform in {None, move.platform}
        and (rule.account or move.account) == move.account
    ]
    return (*rules, *(each for each in dict.fromkeys(led) if each not in rules))
