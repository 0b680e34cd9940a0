"""The configuration as a typed value, and the options of the engine that it stands for."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, TypeVar
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field

from palaver.config.forms import Duration, Folder, Name, Role, Url, Zone
from palaver.domain.access import AccessRole, Basis, Effect, Grant
from palaver.domain.busy import BusyMode
from palaver.domain.layers import Chat, Layers
from palaver.domain.reset import ResetMode, ResetPolicy
from palaver.domain.scope import DmScope, GroupScope, ProfileRule, Scope, ThreadScope
from palaver.engine.options import Options

__all__ = [
    "TERMINAL_OWNER",
    "Config",
    "EchoChoice",
    "GrantChoice",
    "LimitChoice",
    "LogChoice",
    "LogFormat",
    "LogLevel",
    "MetricsChoice",
    "PlaceChoice",
    "PlatformChoice",
    "ProfileChoice",
    "ResetChoice",
    "RouteChoice",
    "ScopeChoice",
    "ServerChoice",
]

T = TypeVar("T")
_USUAL = Options()
_RESET = ResetPolicy()
_SCOPE = Scope()
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)

TERMINAL_OWNER = Grant(platform="terminal", role=AccessRole.OWNER)
"""Whoever sits at the terminal owns the gateway."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LogFormat(StrEnum):
    HUMAN = "human"
    JSON = "json"


class EchoChoice(_Part):
    name: Annotated[Literal["echo"], Field(description="Which agent answers.")] = "echo"
    delay: Annotated[Duration, Field(ge=timedelta(), le=_DAY, description="How long it waits before it answers.")] = (
        timedelta()
    )
    streams: Annotated[bool, Field(description="Whether it answers word by word.")] = False


class LogChoice(_Part):
    level: Annotated[LogLevel, Field(description="The least that is worth a line.")] = LogLevel.INFO
    format: Annotated[LogFormat, Field(description="For people, or one JSON object per line.")] = LogFormat.HUMAN


class MetricsChoice(_Part):
    port: Annotated[
        int | None, Field(ge=1, le=65535, description="Where Prometheus finds the figures; without it nowhere.")
    ] = None


class ResetChoice(_Part):
    mode: Annotated[ResetMode, Field(description="When a conversation starts fresh.")] = _RESET.mode
    idle_minutes: Annotated[
        int, Field(ge=1, le=5_256_000, description="For idle and both: after so many minutes without a person.")
    ] = _RESET.idle_minutes
    at_hour: Annotated[int, Field(ge=0, le=23, description="For daily and both: the hour, in the chat's zone.")] = (
        _RESET.at_hour
    )


class ScopeChoice(_Part):
    dm: Annotated[DmScope, Field(description="Which direct chats are one conversation.")] = _SCOPE.dm
    group: Annotated[GroupScope, Field(description="Who shares a conversation in a group.")] = _SCOPE.group
    thread: Annotated[ThreadScope, Field(description="Who shares a conversation in a thread.")] = _SCOPE.thread


class PlaceChoice(_Part):
    """What can be chosen for everything, and again for a profile, a kind of chat, a platform, a chat."""

    timezone: Annotated[Zone, Field(description="Whose clock counts for daily resets.")] = ZoneInfo("UTC")
    busy: Annotated[BusyMode, Field(description="What becomes of messages that arrive while a turn runs.")] = (
        BusyMode.QUEUE
    )
    reset: Annotated[ResetChoice, Field(description="When conversations start fresh.")] = ResetChoice()
    reset_notices: Annotated[bool, Field(description="Whether a chat is told that it was reset.")] = True
    scope: Annotated[ScopeChoice, Field(description="Which messages share a conversation.")] = ScopeChoice()


class ServerChoice(_Part):
    chats: Annotated[Mapping[Name, PlaceChoice], Field(description="Chats of this server by their ids.")] = {}


class PlatformChoice(PlaceChoice):
    chats: Annotated[Mapping[Name, PlaceChoice], Field(description="Chats by their ids, with their threads.")] = {}
    servers: Annotated[Mapping[Name, ServerChoice], Field(description="Servers by ids, where chat ids repeat.")] = {}


class RouteChoice(_Part):
    platform: Annotated[Name | None, Field(description="Only there.")] = None
    scope_id: Annotated[Name | None, Field(description="Only on this server or workspace.")] = None
    chat_id: Annotated[Name | None, Field(description="Only in this chat and its threads.")] = None
    thread_id: Annotated[Name | None, Field(description="Only in this thread.")] = None


class ProfileChoice(PlaceChoice):
    serves: Annotated[tuple[RouteChoice, ...], Field(description="What goes to this profile.")] = ()


class GrantChoice(_Part):
    effect: Annotated[Effect, Field(description="Lets in or keeps out.")] = Effect.ALLOW
    role: Annotated[Role, Field(description="As what.")] = AccessRole.MEMBER
    basis: Annotated[Basis, Field(description="What a sender must show.")] = Basis.IDENTITY
    platform: Annotated[Name | None, Field(description="Only there.")] = None
    account: Annotated[Name | None, Field(description="Only to this bot of yours.")] = None
    scope_id: Annotated[Name | None, Field(description="Only on this server or workspace.")] = None
    chat_id: Annotated[Name | None, Field(description="Only in this chat and its threads.")] = None
    user_id: Annotated[Name | None, Field(description="Only this user.")] = None

    def grant(self) -> Grant:
        return Grant(**dict(self))


class LimitChoice(_Part):
    """Named as in the engine's options."""

    concurrent_turns: Annotated[int, Field(ge=1, le=10_000)] = _USUAL.concurrent_turns
    burst_window: Annotated[Duration, Field(ge=timedelta(), le=_DAY)] = _USUAL.burst_window
    quiet_limit: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.quiet_limit
    turn_limit: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.turn_limit
    attempts: Annotated[int, Field(ge=1, le=100)] = _USUAL.attempts
    fresh_for: Annotated[Duration | None, Field(ge=_SECOND)] = _USUAL.fresh_for
    agent_tries: Annotated[int, Field(ge=1, le=100)] = _USUAL.agent_tries
    drain_limit: Annotated[Duration, Field(ge=timedelta())] = _USUAL.drain_limit
    concurrent_sends: Annotated[int, Field(ge=1, le=10_000)] = _USUAL.concurrent_sends
    send_limit: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.send_limit
    send_patience: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.send_patience
    lease: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.lease
    poll: Annotated[Duration, Field(ge=timedelta(milliseconds=10))] = _USUAL.poll
    sweep_every: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.sweep_every
    route_limit: Annotated[Duration, Field(ge=_DAY)] = _USUAL.route_limit
    crash_window: Annotated[Duration, Field(ge=_SECOND)] = _USUAL.crash_window
    crash_limit: Annotated[int, Field(ge=1, le=1_000)] = _USUAL.crash_limit


class Config(PlaceChoice):
    data_dir: Annotated[Folder, Field(description="Where Palaver keeps what it knows.")]
    store: Annotated[Url, Field(repr=False, description="The database.")]
    agent: Annotated[EchoChoice, Field(description="Who answers.")] = EchoChoice()
    log: Annotated[LogChoice, Field(description="What is written about the work.")] = LogChoice()
    metrics: Annotated[MetricsChoice, Field(description="Figures for Prometheus.")] = MetricsChoice()
    acknowledges: Annotated[bool, Field(description="Whether somebody who writes into a running turn is told.")] = (
        _USUAL.acknowledges
    )
    platforms: Annotated[Mapping[Name, PlatformChoice], Field(description="Choices for a platform.")] = {}
    kinds: Annotated[Mapping[Name, PlaceChoice], Field(description="Choices for a kind of chat.")] = {}
    profiles: Annotated[Mapping[Name, ProfileChoice], Field(description="Choices for a profile.")] = {}
    grants: Annotated[tuple[GrantChoice, ...], Field(description="Who may talk.")] = ()
    limits: Annotated[LimitChoice, Field(description="How much, how long, how often.")] = LimitChoice()

    def options(self) -> Options:
        rules = (
            ProfileRule(profile=name, **dict(route))
            for name, profile in self.profiles.items()
            for route in profile.serves
        )
        return Options(
            scopes=self._layers("scope", lambda place: replace(self._scope(), **_chosen(place.scope))),
            resets=self._layers("reset", lambda place: replace(self._reset(), **_chosen(place.reset))),
            zones=self._layers("timezone", lambda place: place.timezone),
            busy=self._layers("busy", lambda place: place.busy),
            reset_notices=self._layers("reset_notices", lambda place: place.reset_notices),
            profiles=tuple(rules),
            grants=(TERMINAL_OWNER, *(choice.grant() for choice in self.grants)),
            acknowledges=self.acknowledges,
            **dict(self.limits),
        )

    def _scope(self) -> Scope:
        return Scope(**dict(self.scope))

    def _reset(self) -> ResetPolicy:
        return ResetPolicy(**dict(self.reset))

    def _layers(self, name: str, value: Callable[[PlaceChoice], T]) -> Layers[T]:
        def those(places: Mapping[str, PlaceChoice]) -> dict[str, T]:
            return {key: value(place) for key, place in places.items() if name in place.model_fields_set}

        return Layers(
            default=value(self),
            chats={chat: value(place) for chat, place in self._chats() if name in place.model_fields_set},
            platforms=those(self.platforms),
            kinds=those(self.kinds),
            profiles=those(self.profiles),
        )

    def _chats(self) -> Iterator[tuple[Chat, PlaceChoice]]:
        for name, platform in self.platforms.items():
            for chat, place in platform.chats.items():
                yield Chat(name, chat), place
            for server, choice in platform.servers.items():
                for chat, place in choice.chats.items():
                    yield Chat(name, chat, server), place


def _chosen(part: _Part) -> dict[str, object]:
    """What was said of it; the rest is as outside."""
    return {name: getattr(part, name) for name in part.model_fields_set}
