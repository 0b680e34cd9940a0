"""The configuration as a typed value, and what it says to the engine."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import AfterValidator, Field, PrivateAttr

from palaver.config.accounts import Accounts, Hooks
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.instructions import PlaceInstructions
from palaver.config.nodes import Node, Positions
from palaver.config.paths import expand_home
from palaver.engine.settings import Settings
from palaver.model.access import AccessRole
from palaver.model.addressing import AddressingRules
from palaver.model.errors import BadArgument, InvalidInput
from palaver.model.key import ChatSelector, Scope, ScopedSetting
from palaver.model.reset import ResetPolicy
from palaver.model.tools import ALL_TOOLS
from palaver.model.value import FieldPath
from palaver.protocols.entry_points import find_plugins
from palaver.settings.agents import AgentConfig, GuideAgentConfig
from palaver.settings.chats import ChatConfig, OneChatConfig, ServerConfig
from palaver.settings.engine import EngineConfig
from palaver.settings.gateway import (
    BackupConfig,
    EncryptionConfig,
    JobsConfig,
    LogConfig,
    MetricsConfig,
    TracesConfig,
)
from palaver.settings.quotas import API_OWNER, TERMINAL_OWNER, WEB_OWNER, CapsConfig, GrantConfig, RouteConfig
from palaver.settings.relay import RelayConfig
from palaver.settings.retention import RetentionConfig
from palaver.settings.tools import ToolNames, ToolsConfig
from palaver.settings.types import Role, Section, Syntax, Url, as_pydantic_error, from_text
from palaver.settings.voice import VoiceConfig
from palaver.settings.web import WebConfig

T = TypeVar("T")


def _folder(text: str) -> Path:
    if not text.strip():
        raise ValueError(text)
    return expand_home(text)


Folder = Annotated[Path, from_text(_folder), Syntax("a folder, absolute or relative to this file", "~/palaver")]


def _known(roles: Mapping[str, AccessRole]) -> Mapping[str, AccessRole]:
    """Where plugins are installed, any name may be one of theirs."""
    from palaver.commands.builtin import BUILTIN_NAMES  # noqa: PLC0415 - slow to import, and often not needed
    from palaver.commands.plugins import GROUP  # noqa: PLC0415 - as above

    for name in () if find_plugins(GROUP) else roles:
        if name not in BUILTIN_NAMES:
            close = get_close_matches(name, BUILTIN_NAMES, n=1)
            raise as_pydantic_error(
                BadArgument(
                    "there is no command",
                    found=name,
                    allowed=", ".join(sorted(BUILTIN_NAMES)),
                    example=f"{{{(close or ['model'])[0]}: admin}}",
                    fix=f"Did you mean {close[0]}?" if close else None,
                )
            )
    return roles


CommandRoles = Annotated[
    Mapping[str, Role],
    AfterValidator(_known),
    Syntax("a section of commands, each with a role", "{model: admin}"),
]


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


class Config(EngineConfig, ChatConfig):
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
    retention: RetentionConfig = Field(default=RetentionConfig(), description="How long what is stored stays.")
    backup: BackupConfig = Field(default=BackupConfig(), description="Backups on a schedule.")
    encryption: EncryptionConfig = Field(
        default=EncryptionConfig(), description="Encryption of what is stored. Set one of its keys to switch it on."
    )
    web: WebConfig = Field(default=WebConfig(), description="The web server: dashboard, web chat and API.")
    relay: RelayConfig = Field(default=RelayConfig(), description="Hold accounts for gateways that nobody can reach.")
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
    _positions: Positions = PrivateAttr(default=Positions())

    def settings(self) -> Settings:
        rules = (
            route.rule(name, number)
            for name, profile in self.profiles.items()
            for number, route in enumerate(profile.serves)
        )
        grants = (choice.grant(number) for number, choice in enumerate(self.grants))
        return Settings(
            config=self,
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
            process_limit=self.limits.process_limit,
            burst_window=self.limits.burst_window,
            command_roles=self.commands,
            caps=self.caps.rules(),
            retention=self.retention.rules(),
            tools=self.tools.rules({name: platform.tools for name, platform in self.platforms.items()}),
            written_at=self._positions.find,
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
