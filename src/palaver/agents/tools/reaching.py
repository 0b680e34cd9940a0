"""Where MCP servers are: known without the library that speaks with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Program", "Reach", "Remote"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Reach:
    limit: float = 60.0
    """How many seconds one call may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Program(Reach):
    """A server that is a program of this machine. It gets a few harmless variables of ours, and those named here."""

    command: str
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Remote(Reach):
    """A server that is reached by streamable HTTP."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
