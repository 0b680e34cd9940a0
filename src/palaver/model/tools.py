"""Tools in words and rules: who may have which where, what a person is asked, what the agent is told."""

import json
import re
from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import cast

from palaver.model.access import AccessRole
from palaver.model.prompt_markers import strip_markers
from palaver.model.redact import redact
from palaver.model.text import escape_invisible
from palaver.model.transcript import ToolCall
from palaver.model.value import value

__all__ = [
    "ALL_TOOLS",
    "MAX_QUESTION_LENGTH",
    "TOOL_NAME",
    "ApprovalMode",
    "ToolRules",
    "approval_question",
    "clean_result",
    "parse_arguments",
]

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""What every provider takes as a name."""
ALL_TOOLS = frozenset({"all"})
_TALK = frozenset({"read_file", "search", "send_file", "send_here"})
MAX_QUESTION_LENGTH = 4000
"""Nobody is asked about more than they will read."""
_MARGIN = 4
_NO_OUTPUT = "(no output)"


class ApprovalMode(StrEnum):
    """Whether a tool may be used."""

    ALWAYS = "always"
    ASK = "ask"
    """A person is asked each time."""
    NEVER = "never"


@value
class ToolRules:
    """Patterns of names: `*` stands for anything, `all` for all."""

    roles: Mapping[AccessRole, frozenset[str]] = field(
        default_factory=lambda: {
            AccessRole.GUEST: frozenset[str](),
            AccessRole.MEMBER: _TALK,
            AccessRole.ADMIN: _TALK | {"send_message"},
            AccessRole.OWNER: ALL_TOOLS,
        }
    )
    platforms: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The only tools there are on a platform; where it is not named, all that the role has."""
    allowed: Mapping[str, ApprovalMode] = field(default_factory=dict[str, ApprovalMode])

    def any_for(self, role: AccessRole, platform: str) -> bool:
        return bool(self.roles.get(role)) and bool(self.platforms.get(platform, ALL_TOOLS))

    def approval_mode(self, name: str, role: AccessRole, platform: str, *, needs_approval: bool) -> ApprovalMode:
        """What is said of the very tool counts, then the longest pattern that fits it, then what it says of itself."""
        has_role = _fits(name, self.roles.get(role, frozenset()))
        if not has_role or not _fits(name, self.platforms.get(platform, ALL_TOOLS)):
            return ApprovalMode.NEVER
        if name in self.allowed:
            return self.allowed[name]
        fitting = [pattern for pattern in self.allowed if _matches(name, pattern)]
        if fitting:
            return self.allowed[max(fitting, key=lambda pattern: (pattern not in ALL_TOOLS, len(pattern), pattern))]
        return ApprovalMode.ASK if needs_approval else ApprovalMode.ALWAYS


def _fits(name: str, patterns: frozenset[str]) -> bool:
    return any(_matches(name, pattern) for pattern in patterns)


@lru_cache(1024)
def _matches(name: str, pattern: str) -> bool:
    """A star stands for any letters, the word for all for all, and nothing else has a meaning."""
    return pattern in ALL_TOOLS or re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def parse_arguments(call: ToolCall) -> Mapping[str, object] | None:
    """What the call says; None where that is no JSON object."""
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def approval_question(call: ToolCall, arguments: Mapping[str, object]) -> str:
    """Each argument whole and on a line of its own: none passes for another, or for words of the gateway."""
    lines = [f"{escape_invisible(name)}: {escape_invisible(_written(value))}" for name, value in arguments.items()]
    return "\n".join([f"May I use {escape_invisible(call.name)}?", *lines])


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def clean_result(text: str, limit: int) -> str:
    """What a tool has put out as the agent is shown it, now and later: bounded, and without secrets.

    The middle is left out of what is too long: what matters stands at the beginning, or at the end.
    """
    # More than is shown is looked through: what is cut in two is not seen to be a secret.
    text = strip_markers(redact(_shortened(text.encode("utf-8", "replace").decode(), _MARGIN * limit)))
    return _shortened(text, limit) if text.strip() else _NO_OUTPUT


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n… ({len(text) - 2 * half} characters are left out) …\n{text[-half:]}"
