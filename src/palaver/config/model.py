"""The configuration as a typed value, and the options of the engine that it stands for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self, TypeVar
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, Field, PrivateAttr

from palaver.config.accounts import Accounts, Hooks
from palaver.config.agents import AgentConfig, GuideAgentConfig, MaybeFile, MaybeText, web_address
from palaver.config.encryption import EncryptionConfig
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.instructions import PlaceInstructions
from palaver.config.limits import LimitsConfig
from palaver.config.nodes import Node, Positions
from palaver.config.quotas import (
    API_OWNER,
    TERMINAL_OWNER,
    WEB_OWNER,
    CapsConfig,
    CommandRoles,
    GrantConfig,
    RouteConfig,
)
from palaver.config.relay import RelayConfig
from palaver.config.retention import RetentionConfig
from palaver.config.tools import ToolNames, ToolsConfig
from palaver.config.types import Duration, DurationOrOff, Folder, Port, Section, Syntax, Url, WakeWords, Zone
from palaver.config.voice import VoiceConfig
from palaver.config.web import WebConfig
from palaver.engine.options import Options
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.errors import InvalidInput
from palaver.model.key import ChatSelector, DmScope, GroupScope, Scope, ScopedSetting
from palaver.model.log_line import LogLevel
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.tools import ALL_TOOLS
from palaver.model.turn import BusyMode, QuestionMode, QuoteMode
from palaver.model.value import FieldPath

T = TypeVar("T")
_RESET = ResetPolicy()
_SCOPE = Scope()
_ATTENTION = AddressingRules()


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


class LogConfig(Section):
    level: LogLevel = Field(default=LogLevel.INFO, description="Log this level and above.")
    format: LogFormat = Field(default=LogFormat.HUMAN, description="Lines for people, or one JSON object per line.")
    keep_megabytes: int = Field(
        default=10,
        ge=0,
        le=10_000,
        description="Keep this much of the log in the data directory, for `palaver logs`. 0 keeps none.",
    )


class MetricsConfig(Section):
    port: Port = Field(default=None, description="Serve metrics on this local port.")


class TracesConfig(Section):
    endpoint: Annotated[
        str | None,
        AfterValidator(lambda text: text and web_address(text)),
        Syntax("a web address", "http://127.0.0.1:4318"),
    ] = Field(default=None, description="Send traces to this OTLP/HTTP address.")


class JobsConfig(Section):
    scripts: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/palaver-scripts")] = Field(
        default=None, description="Jobs of admins can run the executable files in this folder. Default: none."
    )
    script_limit: Duration = Field(
        default=timedelta(minutes=2),
        ge=timedelta(seconds=1),
        le=timedelta(days=1),
        description="Stop a script after this long.",
    )


class BackupConfig(Section):
    every: DurationOrOff = Field(
        default=None,
        ge=timedelta(minutes=10),
        le=timedelta(days=365),
        description="Make a backup this often while the gateway runs.",
    )
    folder: Annotated[Path | None, Syntax("a folder, absolute or relative to this file", "~/palaver-backups")] = Field(
        default=None, description="Where backups go. Default: the folder backups in the data directory."
    )
    keep: int = Field(default=7, ge=1, le=10_000, description="Keep this many backups, the newest.")


class PrivacyConfig(Section):
    pseudonyms: bool = Field(
        default=False,
        description="Whether the agent sees pseudonyms instead of ids and phone numbers, where it needs no ids.",
    )


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


class PlatformConfig(ChatConfig):
    chats: Mapping[str, OneChatConfig] = Field(
        default={}, description="Settings by chat id. They also apply in the chat's threads."
    )
    servers: Mapping[str, ServerConfig] = Field(
        default={}, description="Settings by server id, for platforms where chat ids repeat."
    )
    accounts: Accounts = Field(default={}, repr=False, description="Your bots on this platform, by name.")
    tools: ToolNames = Field(default=ALL_TOOLS, description="The agent can use only these tools on this platform.")


class ProfileConfig(ChatConfig):
    agent: AgentConfig = Field(
        default=GuideAgentConfig(), description="The agent of this profile. Default: the gateway's."
    )
    serves: tuple[RouteConfig, ...] = Field(
        default=(), description="Which messages this profile answers: those that match any item."
    )


class Config(ChatConfig):
    data_dir: Folder = Field(description="Store data in this folder.")
    store: Url = Field(repr=False, description="The database.")
    agent: AgentConfig = Field(default=GuideAgentConfig(), description="The agent that answers.")
    offers: bool = Field(
        default=True,
        description="Whether to look for keys of models in the environment and for model servers on this machine while "
        "the guide answers, and to offer them.",
    )
    log: LogConfig = Field(default=LogConfig(), description="What the gateway logs.")
    metrics: MetricsConfig = Field(default=MetricsConfig(), description="Metrics for Prometheus.")
    traces: TracesConfig = Field(default=TracesConfig(), description="OpenTelemetry traces.")
    privacy: PrivacyConfig = Field(default=PrivacyConfig(), description="What the agent learns about people.")
    retention: RetentionConfig = Field(default=RetentionConfig(), description="How long what is stored stays.")
    backup: BackupConfig = Field(default=BackupConfig(), description="Backups on a schedule.")
    encryption: EncryptionConfig = Field(
        default=EncryptionConfig(), description="Encryption of what is stored. Set one of its keys to switch it on."
    )
    web: WebConfig = Field(default=WebConfig(), description="The web server: dashboard, web chat and API.")
    relay: RelayConfig = Field(default=RelayConfig(), description="Hold accounts for gateways that nobody can reach.")
    acknowledges: bool = Field(default=True, description="Whether to tell people that the agent is still answering.")
    titles: bool = Field(default=True, description="Whether agents title conversations that have no title.")
    platforms: Mapping[str, PlatformConfig] = Field(default={}, description="Settings by platform.")
    kinds: Mapping[str, ChatConfig] = Field(
        default={}, description="Settings by kind of chat: dm, group, channel or thread."
    )
    profiles: Mapping[str, ProfileConfig] = Field(default={}, description="Settings by profile.")
    grants: tuple[GrantConfig, ...] = Field(
        default=(), description="Who has access, besides the owner at the terminal."
    )
    commands: CommandRoles = Field(default={}, description="Roles that commands need, if not the default.")
    caps: CapsConfig = Field(default=CapsConfig(), description="Limits on usage.")
    hooks: Hooks = Field(default=(), description="Functions to call on events.")
    tools: ToolsConfig = Field(default=ToolsConfig(), description="Which tools the agent can use.")
    jobs: JobsConfig = Field(default=JobsConfig(), description="What scheduled jobs can do.")
    voice: VoiceConfig = Field(default=VoiceConfig(), description="Voice messages.")
    limits: LimitsConfig = Field(default=LimitsConfig(), description="Limits on time, number and size.")
    _positions: Positions = PrivateAttr(default=Positions())

    def options(self) -> Options:
        rules = (
            route.rule(name, number)
            for name, profile in self.profiles.items()
            for number, route in enumerate(profile.serves)
        )
        grants = (choice.grant(number) for number, choice in enumerate(self.grants))
        return Options(
            scopes=self._layers("scope", lambda place: replace(self._scope(), **_chosen(place.scope))),
            resets=self._layers("reset", lambda place: replace(self._reset(), **_chosen(place.reset))),
            zones=self._layers("timezone", lambda place: place.timezone),
            busy=self._layers("busy", lambda place: place.busy),
            questions=self._layers("questions", lambda place: place.questions),
            reset_notices=self._layers("reset_notices", lambda place: place.reset_notices),
            progress=self._layers("progress", lambda place: place.progress),
            quotes=self._layers("quotes", lambda place: place.quotes),
            revisions=self._layers("revisions", lambda place: place.revisions),
            attention=self._layers("attention", lambda place: replace(self._attention(), **_chosen(place.attention))),
            pairing=self._layers("pairing", lambda place: place.pairing),
            memory=self._layers("memory", lambda place: place.memory),
            instructions=self._layers("instructions", instructions_of, "instructions_file"),
            profiles=tuple(rules),
            tenants=self.relay.rules(),
            grants=(TERMINAL_OWNER, WEB_OWNER, API_OWNER, *grants),
            command_roles=self.commands,
            caps=self.caps.rules(),
            acknowledges=self.acknowledges,
            titles=self.titles,
            pseudonyms=self.privacy.pseudonyms,
            retention=self.retention.rules(),
            tools=self.tools.rules({name: platform.tools for name, platform in self.platforms.items()}),
            written_at=self._positions.find,
            **dict(self.limits),
        )

    @property
    def accounts(self) -> list[tuple[str, str, Mapping[str, object]]]:
        """Return platform, name and options of every account."""
        return [
            (name, account, options)
            for name, platform in self.platforms.items()
            for account, options in platform.accounts.items()
        ]

    def check_instructions(self) -> None:
        """Raise InvalidInput if a file with instructions cannot be read."""
        for _, refusal in self.unreadable_instructions():
            raise refusal

    def unreadable_instructions(self) -> Iterator[tuple[FieldPath, InvalidInput]]:
        """Yield the fields that name a file with instructions that cannot be read, and why."""
        everywhere: tuple[FieldPath, ChatConfig] = ((), self)
        for section, place in (everywhere, *self._places()):
            try:
                if found := instructions_of(place):
                    found.read()
            except InvalidInput as error:
                yield (*section, "instructions_file"), error

    def written_in(self, sources: Node) -> Self:
        """Keep the positions where the settings were written, and return this configuration."""
        self._positions = Positions(sources)
        return self

    def check_variables(self) -> None:
        """Raise MalformedConfig if a value refers to an environment variable that is not set."""
        if mistakes := list(self.find_unset()):
            raise MalformedConfig(mistakes)

    def find_unset(self) -> Iterator[Mistake]:
        """Yield the secrets whose environment variables are not set."""
        yield from (unset.mistake for unset in self._positions.find_unset())

    def _scope(self) -> Scope:
        return Scope(**dict(self.scope))

    def _attention(self) -> AddressingRules:
        return AddressingRules(**dict(self.attention))

    def _reset(self) -> ResetPolicy:
        return ResetPolicy(**dict(self.reset))

    def _layers(self, name: str, value: Callable[[ChatConfig], T], other_name: str = "") -> ScopedSetting[T]:
        def is_set(place: ChatConfig) -> bool:
            return not place.model_fields_set.isdisjoint({name, other_name})

        def those(places: Mapping[str, ChatConfig]) -> dict[str, T]:
            return {key: value(place) for key, place in places.items() if is_set(place)}

        return ScopedSetting(
            given={
                section: frozenset(part.model_fields_set)
                for section, place in self._places()
                if name in place.model_fields_set and isinstance(part := getattr(place, name), Section)
            },
            default=value(self),
            chats={chat: value(place) for chat, place in self._chats() if is_set(place)},
            platforms=those(self.platforms),
            kinds=those(self.kinds),
            profiles=those(self.profiles),
        )

    def _places(self) -> Iterator[tuple[FieldPath, ChatConfig]]:
        """Yield every section below the top level."""
        yield from ((chat.section, place) for chat, place in self._chats())
        layers = {"platforms": self.platforms, "kinds": self.kinds, "profiles": self.profiles}
        for layer, places in layers.items():
            yield from (((layer, name), place) for name, place in places.items())

    def _chats(self) -> Iterator[tuple[ChatSelector, ChatConfig]]:
        for name, platform in self.platforms.items():
            servers = {None: platform.chats, **{server: each.chats for server, each in platform.servers.items()}}
            for server, chats in servers.items():
                for chat, place in chats.items():
                    yield ChatSelector(name, chat, server), place
                    for thread, inner in place.threads.items():
                        yield ChatSelector(name, chat, server, thread), inner


def instructions_of(place: ChatConfig) -> PlaceInstructions | None:
    text, file = place.instructions or "", place.instructions_file
    return PlaceInstructions(text.strip(), file) if text.strip() or file else None


def _chosen(part: Section) -> dict[str, object]:
    """What was said of it; the rest is as outside."""
    return {name: getattr(part, name) for name in part.model_fields_set}
