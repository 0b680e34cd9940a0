"""Tools: which ones the agent can use for whom, which need approval, and the MCP servers."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, Self

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    field_validator,
    model_validator,
)

from palaver.model.access import AccessRole
from palaver.model.errors import BadArgument
from palaver.model.tools import ALL_TOOLS, ApprovalMode, ToolRules
from palaver.settings.terminal import BackendName, TerminalConfig
from palaver.settings.types import (
    OFF,
    Duration,
    Headers,
    MaybeName,
    Secret,
    Section,
    Syntax,
    Variables,
    as_pydantic_error,
    from_names,
    reveal,
    words_text,
)

_USUAL = ToolRules()
_SERVER = re.compile(r"[a-z0-9][a-z0-9-]{0,19}", re.ASCII)
_PATTERN = re.compile(r"[A-Za-z0-9_*-]{1,64}", re.ASCII)
_OWNERS_PLATFORMS = frozenset({"terminal", "web"})
_OWNERS_TERMINAL = {"terminal": _OWNERS_PLATFORMS, "process": _OWNERS_PLATFORMS, "file_*": frozenset[str]()}
"""Where the terminal is that nobody has configured: without its files, which do not ask."""
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)


def _pattern(name: str) -> str:
    if not _PATTERN.fullmatch(name):
        raise ValueError(name)
    return name


ToolNames = Annotated[
    frozenset[str],
    from_names(_pattern),
    PlainSerializer(words_text),
    Syntax(f"tool names separated by commas, with * for anything; or all or {OFF}", "search, notes__*"),
]
Words = Annotated[tuple[str, ...], Syntax("a list of strings", '["serve"]')]
Leaves = Annotated[
    Mapping[Annotated[str, AfterValidator(_pattern)], ApprovalMode],
    Syntax(f"a section of tools, * standing for anything, each with one of {', '.join(ApprovalMode)}", "{search: ask}"),
]


class McpServerConfig(Section):
    command: MaybeName = Field(default=None, description="Start this program as the server.")
    args: Words = Field(default=(), description="Pass these arguments to the program.")
    environment: Variables = Field(default={}, repr=False, description="Pass these variables to the program.")
    url: Annotated[str | None, Syntax("a web address", "https://tools.example.org/mcp")] = Field(
        default=None, description="Reach the server at this address."
    )
    headers: Headers = Field(default={}, repr=False, description="Send these headers with every request.")
    client_id: MaybeName = Field(default=None, description="Log in as this registered OAuth client.")
    client_secret: Annotated[Secret | None, Syntax("the secret, from a variable", "${AGENT_TOKEN}")] = Field(
        default=None, repr=False, description="The secret of that client."
    )
    timeout: Duration = Field(
        default=timedelta(minutes=1), ge=_SECOND, le=_DAY, description="Stop a call after this long."
    )
    calls: int = Field(default=8, ge=1, le=1000, description="Run this many calls at once.")
    tools: ToolNames = Field(default=ALL_TOOLS, description="Use only these of its tools, without its name.")

    @model_validator(mode="after")
    def _is_in_one_place(self) -> Self:
        is_web = (self.url or "").startswith(("http://", "https://"))
        if (self.command is None) == (self.url is None) or (self.url and not is_web):
            raise as_pydantic_error(
                BadArgument(
                    "a server needs either command or url, not",
                    found="both" if self.command and self.url else self.url or "neither",
                    allowed="command, or url with http:// or https://",
                    example="{command: notes-server, args: [serve]}",
                )
            )
        return self

    def registration(self) -> tuple[str, str | None] | None:
        """Return the id and the secret of the OAuth client, if one was registered by hand."""
        secret = self.client_secret.get_secret_value() if self.client_secret else None
        return (self.client_id, secret) if self.client_id else None

    def facts(self) -> dict[str, Any]:
        """Return how to reach the server, secrets included."""
        facts: dict[str, Any] = {"limit": self.timeout.total_seconds(), "calls": self.calls, "tools": self.tools}
        if self.command is not None:
            return {**facts, "command": self.command, "args": self.args, "env": reveal(self.environment)}
        return {**facts, "url": self.url, "headers": reveal(self.headers)}


class ToolsConfig(Section):
    guest: ToolNames = Field(
        default=_USUAL.roles[AccessRole.GUEST], description="Tools that the agent can use for guests."
    )
    member: ToolNames = Field(
        default=_USUAL.roles[AccessRole.MEMBER], description="Tools that the agent can use for members."
    )
    admin: ToolNames = Field(
        default=_USUAL.roles[AccessRole.ADMIN], description="Tools that the agent can use for admins."
    )
    owner: ToolNames = Field(
        default=_USUAL.roles[AccessRole.OWNER], description="Tools that the agent can use for owners."
    )
    allowed: Leaves = Field(default={}, description="Whether to ask a person before using a tool.")
    servers: Mapping[str, McpServerConfig] = Field(default={}, description="MCP servers by name.")
    terminal: TerminalConfig = Field(default=TerminalConfig(), description="Commands and files for the agent.")

    @field_validator("servers")
    @classmethod
    def _has_names_for_tools(cls, servers: Mapping[str, McpServerConfig]) -> Mapping[str, McpServerConfig]:
        for name in servers:
            if not _SERVER.fullmatch(name):
                raise as_pydantic_error(
                    BadArgument(
                        "a server cannot be called",
                        found=name,
                        allowed="up to 20 lowercase letters, digits and hyphens",
                        example="notes",
                    )
                )
        return servers

    def server_facts(self) -> dict[str, dict[str, Any]]:
        return {name: server.facts() for name, server in self.servers.items()}

    def rules(self, platforms: Mapping[str, frozenset[str]]) -> ToolRules:
        roles = {role: getattr(self, role.text) for role in AccessRole}
        private = _OWNERS_TERMINAL if self.terminal.backend is BackendName.OWNER else {}
        return ToolRules(roles=roles, platforms=platforms, allowed=self.allowed, private=private)
