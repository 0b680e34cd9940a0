"""Options of the engine, read once and passed in; settings follow chats to new ids."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple, TypeVar, cast

from palaver.model.access import Grant
from palaver.model.addressing import ConversationRules
from palaver.model.key import ProfileRule, Scope, ScopedSetting
from palaver.model.memory import MemoryLimits
from palaver.model.quotas import QuotaRules
from palaver.model.retention import RetentionRules
from palaver.model.revision import RevisionPolicy
from palaver.model.source import Source, account_text, decode_id
from palaver.model.tools import ToolRules
from palaver.model.turn import QuoteMode
from palaver.model.value import FieldPath, value
from palaver.protocols.agent import Agent

Instructions = Callable[[], str]
"""Returns the text as it is now: a file can have changed."""


@dataclass(frozen=True, kw_only=True)
class Options(ConversationRules):
    # Rules of conversations
    scopes: ScopedSetting[Scope] = field(default_factory=lambda: ScopedSetting(default=Scope()))
    revisions: ScopedSetting[RevisionPolicy] = field(default_factory=lambda: ScopedSetting(default=RevisionPolicy.NOTE))
    quotes: ScopedSetting[QuoteMode] = field(default_factory=lambda: ScopedSetting(default=QuoteMode.GROUPS))
    pairing: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    """Whether strangers in direct chats get a code with which the owner can approve them."""
    profiles: tuple[ProfileRule, ...] = ()
    tenants: tuple[ProfileRule, ...] = ()
    """Which messages this connector hands to which gateway. `profile` names the tenant."""
    grants: tuple[Grant, ...] = ()
    """Grants from the configuration, in addition to those in the store."""
    caps: QuotaRules = field(default_factory=QuotaRules)
    written_at: Callable[[FieldPath], str] = field(default=lambda _: "", compare=False)
    """Returns where a setting was written: file and line, or nothing if it has its default."""

    # Turns
    concurrent_turns: int = 16
    acknowledges: bool = True
    """Whether to say, once per turn, what happens to a message that arrives while the turn runs."""
    acknowledge_after: timedelta = timedelta(seconds=2)
    """How long a message waits before that is said."""
    quiet_limit: timedelta = timedelta(minutes=5)
    """How long an agent may be silent before its turn is stopped."""
    turn_limit: timedelta = timedelta(minutes=30)
    attempts: int = 3
    """How often to start a turn, including after restarts."""
    fresh_for: timedelta | None = timedelta(hours=1)
    """How long after an interruption a turn is still resumed; None means forever."""
    agent_tries: int = 3
    """How often to ask an agent in one attempt while its failures look transient."""
    drain_limit: timedelta = timedelta(seconds=30)
    context_window: int = 128_000
    """The context window of a model, in tokens, if its agent does not report it."""
    context_percent: int = 85
    """How full, in percent, the context may be before a conversation is summarised."""
    message_limit: int = 400
    """How many entries the agent sees before a conversation is summarised."""
    tools: ToolRules = field(default_factory=ToolRules)
    """Which tools an agent may use, for whom and where."""
    tool_limit: timedelta = timedelta(minutes=2)
    """How long one tool call may take."""
    pseudonyms: bool = False
    """Whether agents see pseudonyms instead of ids, where they need no ids."""
    instructions: ScopedSetting[Instructions | None] = field(default_factory=lambda: ScopedSetting(default=None))
    """What agents are asked to heed in a place. All that match add up, the widest first."""
    memory: ScopedSetting[bool] = field(default_factory=lambda: ScopedSetting(default=True))
    """Whether agents keep notes about people and chats."""
    memory_notes: int = MemoryLimits().notes
    memory_characters: int = MemoryLimits().characters
    titles: bool = True
    """Whether agents title conversations that have no title."""

    # Jobs
    jobs_per_person: int = 50
    """How many jobs of one person can be active."""
    job_grace: timedelta = timedelta(hours=6)
    """How late a job can still run that was due while no gateway ran."""

    # Sends
    concurrent_sends: int = 32
    """How many sends of each account may run at once."""
    send_limit: timedelta = timedelta(seconds=30)
    """How long one send may take."""
    upload_limit: timedelta = timedelta(minutes=10)
    """How long the send of a file may take."""
    send_patience: timedelta = timedelta(hours=24)
    """How long to retry a send before giving up."""
    repeat_after: timedelta = timedelta(seconds=30)
    """How long to wait before repeating a send that may have arrived: it is repeated once, so outlast the outage."""

    unclear_notice_every: timedelta = timedelta(hours=1)
    """How often at most the owner gets a notice of sends of which nobody knows whether they arrived."""

    # Files
    file_size: int = 20_000_000
    """The largest file, in bytes."""
    files_per_message: int = 10
    fetch_limit: timedelta = timedelta(minutes=2)
    """How long one download may take."""
    fetch_patience: timedelta = timedelta(minutes=10)
    """How long a message waits for files that its platform does not provide."""

    # Maintenance
    retention: RetentionRules = field(default_factory=RetentionRules)
    """How long what is stored stays."""
    lease: timedelta = timedelta(seconds=30)
    poll: timedelta = timedelta(seconds=5)
    """How often to look for work even without a notification."""
    sweep_every: timedelta = timedelta(minutes=1)
    crash_window: timedelta = timedelta(minutes=5)
    """Starts within this time of each other count as one crash loop."""
    crash_limit: int = 3

    def instructions_for(self, source: Source) -> list[str]:
        """Return the instructions of a place, from general to specific."""
        texts = (found() for _, found in self.instructions.matching(source) if found)
        return [text for text in texts if text]

    @property
    def memory_limits(self) -> MemoryLimits:
        return MemoryLimits(notes=self.memory_notes, characters=self.memory_characters)


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


def follow_moves(options: Options, chat_moves: ChatMoves) -> Options:
    """Apply the settings of moved chats to their new ids, unless the new id has its own."""
    moves = [
        _Move(account.partition(":")[0], decode_id(account.partition(":")[2]), server, old, new)
        for (account, server), chats in chat_moves.items()
        for old, new in chats.items()
    ]
    if not moves:
        return options
    layers: dict[str, Any] = {
        name: _moved_settings(cast("ScopedSetting[object]", value), moves)
        for name, value in vars(options).items()
        if isinstance(value, ScopedSetting)
    }
    rules = {
        "profiles": _moved_rules(options.profiles, moves),
        "tenants": _moved_rules(options.tenants, moves),
        "grants": _moved_rules(options.grants, moves),
    }
    return replace(options, **rules, **layers)


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
