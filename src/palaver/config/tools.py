"""Tools: who may have what used where, what a person is asked, and which MCP servers there are."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SecretStr,
    field_validator,
    model_validator,
)

from palaver.config.types import Duration, MaybeName, Section, Syntax, as_pydantic_error, words_text
from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument
from palaver.model.tools import ApprovalMode, ToolRules

_USUAL = ToolRules()
_OFF = "off"
_SERVER = re.compile(r"[a-z0-9][a-z0-9-]{0,19}", re.ASCII)
_PATTERN = re.compile(r"[A-Za-z0-9_*-]{1,64}", re.ASCII)
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def _pattern(name: str) -> str:
    if not _PATTERN.fullmatch(name):
        raise ValueError(name)
    return name


def _names(value: object) -> object:
    if not isinstance(value, str):
        return value
    names = frozenset[str]() if value == _OFF else frozenset(name.strip() for name in value.split(","))
    return frozenset(map(_pattern, names))


ToolNames = Annotated[
    frozenset[str],
    BeforeValidator(_names),
    PlainSerializer(words_text),
    Syntax(f"names of tools with commas, * standing for anything, or all, or {_OFF}", "search, notes__*"),
]
Variables = Annotated[
    Mapping[str, SecretStr], Syntax("a section of variables with their values", "{TOKEN: '${AGENT_TOKEN}'}")
]
Headers = Annotated[
    Mapping[str, SecretStr],
    Syntax("a section of headers with their values", "{Authorization: 'Bearer ${AGENT_TOKEN}'}"),
]
Words = Annotated[tuple[str, ...], Syntax("a list of texts", '["serve"]')]
Leaves = Annotated[
    Mapping[Annotated[str, AfterValidator(_pattern)], ApprovalMode],
    Syntax(f"a section of tools, * standing for anything, each with one of {', '.join(ApprovalMode)}", "{search: ask}"),
]


class McpServerConfig(Section):
    command: MaybeName = Field(default=None, description="The program that is the server, if it is one.")
    args: Words = Field(default=(), description="What the program is called with.")
    environment: Variables = Field(
        default={}, repr=False, description="The variables it gets, besides a few harmless ones."
    )
    url: Annotated[str | None, Syntax("a web address", "https://tools.example.org/mcp")] = Field(
        default=None, description="Where the server is, if it is reached by HTTP."
    )
    headers: Headers = Field(default={}, repr=False, description="What every request to it carries.")
    timeout: Duration = Field(
        default=timedelta(minutes=1), ge=_SECOND, le=_DAY, description="How long one call may take."
    )

    @model_validator(mode="after")
    def _is_in_one_place(self) -> Self:
        is_web = (self.url or "").startswith(("http://", "https://"))
        if (self.command is None) == (self.url is None) or (self.url and not is_web):
            raise as_pydantic_error(
                BadArgument(
                    "a server is a program or has a web address, not",
                    found="both" if self.command and self.url else self.url or "neither",
                    allowed="command, or url with http:// or https://",
                    example="{command: notes-server, args: [serve]}",
                )
            )
        return self

    def facts(self) -> dict[str, Any]:
        """Where the server is, with what was secret in it."""
        limit = self.timeout.total_seconds()
        if self.command is not None:
            return {"command": self.command, "args": self.args, "env": _revealed(self.environment), "limit": limit}
        return {"url": self.url, "headers": _revealed(self.headers), "limit": limit}


def _revealed(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: secret.get_secret_value() for name, secret in secrets.items()}


class ToolsConfig(Section):
    guest: ToolNames = Field(default=_USUAL.roles[AccessRole.GUEST], description="What guests may have used.")
    member: ToolNames = Field(default=_USUAL.roles[AccessRole.MEMBER], description="What members may have used.")
    admin: ToolNames = Field(default=_USUAL.roles[AccessRole.ADMIN], description="What admins may have used.")
    owner: ToolNames = Field(default=_USUAL.roles[AccessRole.OWNER], description="What owners may have used.")
    allowed: Leaves = Field(default={}, description="Whether a person is asked before a tool is used.")
    servers: Mapping[str, McpServerConfig] = Field(default={}, description="MCP servers by their names.")

    @field_validator("servers")
    @classmethod
    def _has_names_for_tools(cls, servers: Mapping[str, McpServerConfig]) -> Mapping[str, McpServerConfig]:
        for name in servers:
            if not _SERVER.fullmatch(name):
                raise as_pydantic_error(
                    BadArgument(
                        "a server cannot be called",
                        found=name,
                        allowed="up to 20 small letters, digits and hyphens",
                        example="notes",
                    )
                )
        return servers

    def rules(self, platforms: Mapping[str, frozenset[str]]) -> ToolRules:
        roles = {role: getattr(self, role.text) for role in AccessRole}
        return ToolRules(roles=roles, platforms=platforms, allowed=self.allowed)
