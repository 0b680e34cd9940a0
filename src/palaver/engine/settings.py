"""What the configuration says to the engine, read once and passed in; settings follow chats to new ids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast

from palaver.model.access import Grant
from palaver.model.addressing import ConversationRules
from palaver.model.key import ProfileRule, Scope, ScopedSetting
from palaver.model.quotas import QuotaRules
from palaver.model.retention import RetentionRules
from palaver.model.revision import RevisionPolicy
from palaver.model.source import Source, account_text, decode_id
from palaver.model.tools import ToolRules
from palaver.model.turn import QuoteMode
from palaver.model.value import FieldPath, value
from palaver.protocols.agent import Agent
from palaver.settings.engine import EngineConfig
from palaver.settings.limits import LimitsConfig

Instructions = Callable[[], str]
"""Returns the text as it is now: a file can have changed."""


@dataclass(frozen=True, kw_only=True)
class Settings(ConversationRules):
    """The sections of the configuration that the engine takes, and the rules that the others stand for."""

    config: EngineConfig = field(default_factory=EngineConfig)
    scopes: ScopedSetting[Scope] = field(default_factory=lambda: ScopedSetting(default=Scope()))
    revisions: ScopedSetting[RevisionPolicy] = field(default_factory=lambda: ScopedSetting(default=RevisionPolicy.NOTE))
    quotes: ScopedSetting[QuoteMode] = field(default_factory=lambda: ScopedSetting(default=QuoteMode.GROUPS))
    pairing: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    memory: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    instructions: ScopedSetting[Instructions | None] = field(default_factory=lambda: ScopedSetting(default=None))
    """What agents are asked to heed in a place. All that match add up, the widest first."""
    profiles: tuple[ProfileRule, ...] = ()
    tenants: tuple[ProfileRule, ...] = ()
    """Which messages this connector hands to which gateway. `profile` names the tenant."""
    grants: tuple[Grant, ...] = ()
    """Grants from the configuration, in addition to those in the store."""
    caps: QuotaRules = field(default_factory=QuotaRules)
    tools: ToolRules = field(default_factory=ToolRules)
    retention: RetentionRules = field(default_factory=RetentionRules)
    unclear_notice_every: timedelta = timedelta(hours=1)
    """How often at most the owner gets a notice of sends of which nobody knows whether they arrived."""
    written_at: Callable[[FieldPath], str] = field(default=lambda _: "", compare=False)
    """Returns where a setting was written: file and line, or nothing if it has its default."""

    @property
    def limits(self) -> LimitsConfig:
        return self.config.limits

    def instructions_for(self, source: Source) -> list[str]:
        """Return the instructions of a place, from general to specific."""
        texts = (found() for _, found in self.instructions.matching(source) if found)
        return [text for text in texts if text]


ChatMoves = Mapping[tuple[str, str | None], Mapping[str, str]]
"""By account and server: the earlier ids of chats, each with its current id."""
T = TypeVar("T")
Rule = TypeVar("Rule", Grant, ProfileRule)


class _Move(NamedTuple):
    platform: str
    account: str
    server: str | None
    old: str
    new: str


def follow_moves(settings: Settings, chat_moves: ChatMoves) -> Settings:
    """Apply the settings of moved chats to their new ids, unless the new id has its own."""
    moves = [
        _Move(account.partition(":")[0], decode_id(account.partition(":")[2]), server, old, new)
        for (account, server), chats in chat_moves.items()
        for old, new in chats.items()
    ]
    if not moves:
        return settings
    layers: dict[str, Any] = {
        name: _moved_settings(cast("ScopedSetting[object]", value), moves)
        for name, value in vars(settings).items()
        if isinstance(value, ScopedSetting)
    }
    rules = {
        "profiles": _moved_rules(settings.profiles, moves),
        "tenants": _moved_rules(settings.tenants, moves),
        "grants": _moved_rules(settings.grants, moves),
    }
    return replace(settings, **rules, **layers)


def follow_move(source: Source, moves: ChatMoves) -> Source:
    """Return the source with the current id of its chat."""
    chats = moves.get((account_text(source.platform, source.account), source.scope_id))
    chat = chats and source.chat and chats.get(source.chat)
    return replace(source, chat_id=chat) if chat else source


def _moved_settings(layers: ScopedSetting[T], moves: list[_Move]) -> ScopedSetting[T]:
    # The narrower of two settings of a chat is the last.
    moved = {
        chat._replace(chat_id=move.new, scope_id=move.server): chat
        for chat in sorted(layers.chats, key=lambda chat: chat.scope_id is not None)
        for move in moves
        if (chat.platform, chat.chat_id) == (move.platform, move.old)
        and chat.scope_id in {None, move.server}
        and chat._replace(chat_id=move.new, scope_id=None) not in layers.chats
    }
    chats = {new: layers.chats[old] for new, old in moved.items()}
    given = {new.section: layers.given[old.section] for new, old in moved.items() if old.section in layers.given}
    return replace(layers, chats={**chats, **layers.chats}, given={**given, **layers.given})


def _moved_rules(rules: tuple[Rule, ...], moves: list[_Move]) -> tuple[Rule, ...]:
    moved = [
        replace(rule, chat_id=move.new, scope_id=move.server)
        for rule in rules
        for move in moves
        if rule.chat_id == move.old
        and rule.platform in {None, move.platform}
        and (rule.account or move.account) == move.account
        and rule.scope_id in {None, move.server}
    ]
    return (*rules, *(rule for rule in dict.fromkeys(moved) if rule not in rules))


@value(kw_only=False)
class Agents:
    """The agent of each profile that has its own, and the default agent for the others."""

    usual: Agent
    profiles: Mapping[str, Agent] = field(default_factory=dict[str, Agent])

    def of(self, profile: str) -> Agent:
        return self.profiles.get(profile, self.usual)
