"""The configuration as a typed value, and the options of the engine that it stands for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import TypeVar
from zoneinfo import ZoneInfo

from pydantic import Field

from palaver.config.accounts import Accounts, Hooks
from palaver.config.agents import AgentChoice, EchoChoice
from palaver.config.limits import LimitChoice
from palaver.config.quotas import (
    API_OWNER,
    TERMINAL_OWNER,
    WEB_OWNER,
    CapsChoice,
    CommandRoles,
    GrantChoice,
    RouteChoice,
)
from palaver.config.tools import ToolNames, ToolsChoice
from palaver.config.types import Folder, Part, Port, Url, WakeWords, Zone
from palaver.config.web import WebChoice
from palaver.engine.options import Options
from palaver.model.addressing import AddressingRules, AnswerMode
from palaver.model.busy import BusyMode
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.scope import DmScope, GroupScope, Scope, ThreadScope
from palaver.model.scoped_setting import ChatSelector, ScopedSetting
from palaver.model.tools import ALL_TOOLS

__all__ = [
    "AttentionChoice",
    "Config",
    "LogChoice",
    "LogFormat",
    "LogLevel",
    "MetricsChoice",
    "PlaceChoice",
    "PlatformChoice",
    "ProfileChoice",
    "ResetChoice",
    "ScopeChoice",
    "ServerChoice",
]

T = TypeVar("T")
_RESET = ResetPolicy()
_SCOPE = Scope()
_ATTENTION = AddressingRules()


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


class LogChoice(Part):
    level: LogLevel = Field(default=LogLevel.INFO, description="The least that is worth a line.")
    format: LogFormat = Field(default=LogFormat.HUMAN, description="For people, or one JSON object per line.")


class MetricsChoice(Part):
    port: Port = Field(default=None, description="Where Prometheus finds figures on this machine; by default nowhere.")


class ResetChoice(Part):
    mode: ResetMode = Field(default=_RESET.mode, description="What makes a conversation start fresh.")
    idle_minutes: int = Field(
        default=_RESET.idle_minutes, ge=1, le=5_256_000, description="With idle and both: minutes without a person."
    )
    at_hour: int = Field(
        default=_RESET.at_hour, ge=0, le=23, description="With daily and both: the hour on the chat's clock."
    )


class ScopeChoice(Part):
    dm: DmScope = Field(default=_SCOPE.dm, description="Which direct chats are one conversation.")
    group: GroupScope = Field(default=_SCOPE.group, description="Who shares a conversation in a group.")
    thread: ThreadScope = Field(default=_SCOPE.thread, description="Who shares a conversation in a thread.")


class AttentionChoice(Part):
    answers: AnswerMode = Field(default=_ATTENTION.answers, description="In a group: what the agent answers.")
    wake_words: WakeWords = Field(
        default=_ATTENTION.wake_words, description="Names that address it at the beginning of a message."
    )
    observes: bool = Field(
        default=_ATTENTION.observes, description="Whether it is shown later what was said to others."
    )


class PlaceChoice(Part):
    """What can be chosen for all, and again for a profile, a kind of chat, a platform, a chat."""

    timezone: Zone = Field(default=ZoneInfo("UTC"), description="Whose clock counts for daily resets.")
    busy: BusyMode = Field(default=BusyMode.QUEUE, description="What becomes of messages while a turn runs.")
    reset: ResetChoice = Field(default=ResetChoice(), description="When conversations start fresh.")
    reset_notices: bool = Field(default=True, description="Whether a chat is told that it was reset.")
    revisions: RevisionPolicy = Field(
        default=RevisionPolicy.NOTE, description="What becomes of messages that are changed or deleted later."
    )
    scope: ScopeChoice = Field(default=ScopeChoice(), description="Which messages share a conversation.")
    attention: AttentionChoice = Field(default=AttentionChoice(), description="Which words in a group are for it.")
    pairing: bool = Field(default=True, description="Whether strangers in direct chats may ask to be let in.")


class ServerChoice(Part):
    chats: Mapping[str, PlaceChoice] = Field(default={}, description="Chats of this server by their ids.")


class PlatformChoice(PlaceChoice):
    chats: Mapping[str, PlaceChoice] = Field(default={}, description="Chats by their ids; holds in their threads, too.")
    servers: Mapping[str, ServerChoice] = Field(default={}, description="Servers by their ids, where chat ids repeat.")
    accounts: Accounts = Field(default={}, repr=False, description="Bots of yours there by their names.")
    tools: ToolNames = Field(default=ALL_TOOLS, description="The only tools that the agent has there.")


class ProfileChoice(PlaceChoice):
    agent: AgentChoice = Field(default=EchoChoice(), description="Who answers here; else the one of the gateway.")
    serves: tuple[RouteChoice, ...] = Field(default=(), description="What this profile answers: any that matches.")


class Config(PlaceChoice):
    data_dir: Folder = Field(description="Where Palaver keeps what it knows.")
    store: Url = Field(repr=False, description="The database.")
    agent: AgentChoice = Field(default=EchoChoice(), description="Who answers.")
    log: LogChoice = Field(default=LogChoice(), description="What is written about the work.")
    metrics: MetricsChoice = Field(default=MetricsChoice(), description="Figures for Prometheus.")
    web: WebChoice = Field(default=WebChoice(), description="The window: dashboard, web chat and API.")
    acknowledges: bool = Field(default=True, description="Whether somebody who writes into a running turn is told.")
    titles: bool = Field(default=True, description="Whether agents give titles to conversations that have none.")
    platforms: Mapping[str, PlatformChoice] = Field(default={}, description="Choices for platforms by their names.")
    kinds: Mapping[str, PlaceChoice] = Field(default={}, description="Choices for dm, group, channel, thread.")
    profiles: Mapping[str, ProfileChoice] = Field(default={}, description="Choices for profiles by their names.")
    grants: tuple[GrantChoice, ...] = Field(default=(), description="Who may talk, besides the owner at the terminal.")
    commands: CommandRoles = Field(default={}, description="Which role commands need, where it is not the usual one.")
    caps: CapsChoice = Field(default=CapsChoice(), description="How much may be used.")
    hooks: Hooks = Field(default=(), description="Functions that are told what happens.")
    tools: ToolsChoice = Field(default=ToolsChoice(), description="What the agent may do besides talking.")
    limits: LimitChoice = Field(default=LimitChoice(), description="How much, how long, how often.")

    def options(self) -> Options:
        rules = (route.rule(name) for name, profile in self.profiles.items() for route in profile.serves)
        return Options(
            scopes=self._layers("scope", lambda place: replace(self._scope(), **_chosen(place.scope))),
            resets=self._layers("reset", lambda place: replace(self._reset(), **_chosen(place.reset))),
            zones=self._layers("timezone", lambda place: place.timezone),
            busy=self._layers("busy", lambda place: place.busy),
            reset_notices=self._layers("reset_notices", lambda place: place.reset_notices),
            revisions=self._layers("revisions", lambda place: place.revisions),
            attention=self._layers("attention", lambda place: replace(self._attention(), **_chosen(place.attention))),
            pairing=self._layers("pairing", lambda place: place.pairing),
            profiles=tuple(rules),
            grants=(TERMINAL_OWNER, WEB_OWNER, API_OWNER, *(choice.grant() for choice in self.grants)),
            command_roles=self.commands,
            caps=self.caps.rules(),
            acknowledges=self.acknowledges,
            titles=self.titles,
            tools=self.tools.rules({name: platform.tools for name, platform in self.platforms.items()}),
            **dict(self.limits),
        )

    def _scope(self) -> Scope:
        return Scope(**dict(self.scope))

    def _attention(self) -> AddressingRules:
        return AddressingRules(**dict(self.attention))

    def _reset(self) -> ResetPolicy:
        return ResetPolicy(**dict(self.reset))

    def _layers(self, name: str, value: Callable[[PlaceChoice], T]) -> ScopedSetting[T]:
        def those(places: Mapping[str, PlaceChoice]) -> dict[str, T]:
            return {key: value(place) for key, place in places.items() if name in place.model_fields_set}

        return ScopedSetting(
            default=value(self),
            chats={chat: value(place) for chat, place in self._chats() if name in place.model_fields_set},
            platforms=those(self.platforms),
            kinds=those(self.kinds),
            profiles=those(self.profiles),
        )

    def _chats(self) -> Iterator[tuple[ChatSelector, PlaceChoice]]:
        for name, platform in self.platforms.items():
            for chat, place in platform.chats.items():
                yield ChatSelector(name, chat), place
            for server, choice in platform.servers.items():
                for chat, place in choice.chats.items():
                    yield ChatSelector(name, chat, server), place


def _chosen(part: Part) -> dict[str, object]:
    """What was said of it; the rest is as outside."""
    return {name: getattr(part, name) for name in part.model_fields_set}
