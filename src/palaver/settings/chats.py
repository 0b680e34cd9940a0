"""What can be chosen for all chats, and again for a profile, a kind of chat, a platform, a chat, a thread."""

from collections.abc import Mapping
from zoneinfo import ZoneInfo

from pydantic import Field

from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.key import DmScope, GroupScope, Scope
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.turn import BusyMode, QuestionMode, QuoteMode
from palaver.settings.agents import MaybeFile, MaybeText
from palaver.settings.types import Section, WakeWords, Zone

_RESET = ResetPolicy()
_SCOPE = Scope()
_ATTENTION = AddressingRules()


class ResetConfig(Section):
    mode: ResetMode = Field(default=_RESET.mode, description="What resets a conversation.")
    idle_minutes: int = Field(
        default=_RESET.idle_minutes,
        ge=1,
        le=5_256_000,
        description="With idle and both: minutes without a message from a person.",
    )
    at_hour: int = Field(
        default=_RESET.at_hour, ge=0, le=23, description="With daily and both: the local hour of the reset."
    )


class ScopeConfig(Section):
    dm: DmScope = Field(default=_SCOPE.dm, description="Which direct chats share a conversation.")
    group: GroupScope = Field(default=_SCOPE.group, description="Who shares a conversation in a group.")
    thread: GroupScope = Field(default=_SCOPE.thread, description="Who shares a conversation in a thread.")


class AttentionConfig(Section):
    answers: AnswerMode = Field(default=_ATTENTION.answers, description="Which messages the agent answers in a group.")
    wake_words: WakeWords = Field(
        default=_ATTENTION.wake_words, description="Names that address the agent at the start of a message."
    )
    observes: bool = Field(
        default=_ATTENTION.observes, description="Whether the agent later sees messages that were for others."
    )


class ChatConfig(Section):
    """What can be chosen for all, and again for a profile, a kind of chat, a platform, a chat."""

    timezone: Zone = Field(default=ZoneInfo("UTC"), description="The time zone for daily resets and displayed times.")
    busy: BusyMode = Field(default=BusyMode.QUEUE, description="What to do with messages that arrive during a turn.")
    questions: QuestionMode = Field(
        default=QuestionMode.WITHDRAW, description="What a message does while the agent is waiting for approval."
    )
    reset: ResetConfig = Field(default=ResetConfig(), description="When conversations reset.")
    reset_notices: bool = Field(default=True, description="Whether to tell a chat that its conversation was reset.")
    progress: bool = Field(default=True, description="Whether the chat shows which tools run, until the answer comes.")
    quotes: QuoteMode = Field(
        default=QuoteMode.GROUPS, description="Where an answer is a reply to the message that it answers."
    )
    revisions: RevisionPolicy = Field(
        default=RevisionPolicy.NOTE, description="What to do when somebody edits or deletes a message."
    )
    scope: ScopeConfig = Field(default=ScopeConfig(), description="Which messages share a conversation.")
    attention: AttentionConfig = Field(default=AttentionConfig(), description="Which group messages are for the agent.")
    pairing: bool = Field(default=True, description="Whether strangers in direct chats can ask for access.")
    memory: bool = Field(default=True, description="Whether the agent keeps notes about people and chats.")
    instructions: MaybeText = Field(default=None, description="What the agent should know and heed here.")
    instructions_file: MaybeFile = Field(
        default=None, description="Read more instructions from this file, again whenever it changes."
    )


class OneChatConfig(ChatConfig):
    threads: Mapping[str, ChatConfig] = Field(default={}, description="Settings by thread id: a topic can differ.")


class ServerConfig(Section):
    chats: Mapping[str, OneChatConfig] = Field(default={}, description="Settings by chat id.")
