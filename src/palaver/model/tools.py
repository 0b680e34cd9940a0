"""Tool rules: which tools a role has where, when a person must approve or answer, and how results are cleaned."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from functools import lru_cache
from typing import cast

from palaver.model.access import AccessRole
from palaver.model.label import strip_markers
from palaver.model.memory import MEMORY_TOOLS
from palaver.model.redact import redact
from palaver.model.text import escape_invisible, one_line
from palaver.model.transcript import ToolCall
from palaver.model.value import value

TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
"""Tool names that every provider accepts."""
ALL_TOOLS = frozenset({"all"})
ASK_USER = "ask_user"
"""The tool that asks the person a question."""
_TALK = MEMORY_TOOLS | {
    *(ASK_USER, "change_job", "list_jobs", "read_file", "read_session", "schedule_job", "search"),
    *("send_file", "send_here", "send_voice"),
}
_WORK = frozenset({"file_*", "process", "terminal"})
"""What works on a machine. It is there only if the configuration has a terminal, and never for guests."""
BUILT_IN_TOOLS = (_TALK - {"file_*"}) | {
    *("file_list", "file_patch", "file_read", "file_search", "file_send", "file_write"),
    *("process", "send_message", "terminal"),
}
"""Tools of Palaver itself. Those of an MCP server have its name and two underscores in front."""
MAX_QUESTION_LENGTH = 4000
"""The longest approval question that people will read."""
NOT_APPROVED = "A person did not approve this."
"""The result of a call that was denied."""
NOT_ANSWERED = "The person does not want to answer this."
"""The result of a question that was denied."""
MAX_CHOICES = 10
MAX_CHOICE_LENGTH = 100
_PICK = re.compile(r"(#?)([0-9]{1,3})[.)]?", re.ASCII)
_SCAN_FACTOR = 4
_NO_OUTPUT = "(no output)"


class ApprovalMode(StrEnum):
    """When a tool can be used."""

    ALWAYS = "always"
    ASK = "ask"
    """After a person approved the call."""
    NEVER = "never"


@value
class ToolRules:
    """Which tools can be used, as name patterns: `*` matches anything, and `all` matches every tool."""

    roles: Mapping[AccessRole, frozenset[str]] = field(
        default_factory=lambda: {
            AccessRole.GUEST: frozenset[str](),
            AccessRole.MEMBER: _TALK,
            AccessRole.ADMIN: _TALK | _WORK | {"send_message"},
            AccessRole.OWNER: ALL_TOOLS,
        }
    )
    platforms: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The only tools on a platform. A platform that is not listed has all tools of the role."""
    allowed: Mapping[str, ApprovalMode] = field(default_factory=dict[str, ApprovalMode])
    private: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """Tools, as patterns, that only owners have, and only on these platforms."""

    def any_for(self, role: AccessRole, platform: str) -> bool:
        return bool(self.roles.get(role)) and bool(self.platforms.get(platform, ALL_TOOLS))

    def approval_mode(self, name: str, role: AccessRole, platform: str, *, needs_approval: bool) -> ApprovalMode:
        """Return the mode set for the tool itself, else for the longest matching pattern, else the tool's own."""
        has_role = matches_any(name, self.roles.get(role, frozenset()))
        if role is AccessRole.GUEST and matches_any(name, _WORK):
            return ApprovalMode.NEVER
        if self._is_private(name, role, platform):
            return ApprovalMode.NEVER
        if not has_role or not matches_any(name, self.platforms.get(platform, ALL_TOOLS)):
            return ApprovalMode.NEVER
        return self.own_mode(name) or (ApprovalMode.ASK if needs_approval else ApprovalMode.ALWAYS)

    def _is_private(self, name: str, role: AccessRole, platform: str) -> bool:
        """Tell whether only others have the tool."""
        places = [platforms for pattern, platforms in self.private.items() if _matches(name, pattern)]
        return any(role is not AccessRole.OWNER or platform not in each for each in places)

    def own_mode(self, name: str) -> ApprovalMode | None:
        """Return the mode that the owner set for a tool, by name or by the longest pattern; None if they set none."""
        if name in self.allowed:
            return self.allowed[name]
        matching = [pattern for pattern in self.allowed if _matches(name, pattern)]
        if not matching:
            return None
        return self.allowed[max(matching, key=lambda pattern: (pattern not in ALL_TOOLS, len(pattern), pattern))]


def matches_any(name: str, patterns: frozenset[str]) -> bool:
    return any(_matches(name, pattern) for pattern in patterns)


@lru_cache(1024)
def _matches(name: str, pattern: str) -> bool:
    """Match a pattern in which only `*` and `all` are special."""
    return pattern in ALL_TOOLS or re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), name) is not None


def parse_arguments(call: ToolCall) -> Mapping[str, object] | None:
    """Return the arguments of a call, or None if they are not a JSON object."""
    try:
        found = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, object]", found) if isinstance(found, dict) else None


def unknown_argument(parameters: Mapping[str, object], arguments: Mapping[str, object]) -> str | None:
    """Return what is wrong with arguments that the schema of a tool does not know and forbids."""
    known = cast("Mapping[str, object]", parameters.get("properties") or {})
    if parameters.get("additionalProperties") is not False:
        return None
    unknown = [one_line(name, MAX_CHOICE_LENGTH) for name in arguments if name not in known]
    if not unknown:
        return None
    allowed = f"Its arguments are: {', '.join(known)}." if known else "It takes none."
    return f"The tool has no argument {', '.join(unknown)}. {allowed} Nothing was done."


def approval_question(call: ToolCall, arguments: Mapping[str, object]) -> str:
    """Ask about a call, with each argument on its own line, so that none can pass for another or for our words."""
    lines = [f"{escape_invisible(name)}: {escape_invisible(_as_text(value))}" for name, value in arguments.items()]
    return "\n".join([f"May I use {escape_invisible(call.name)}?", *lines])


@value
class Question:
    """What the agent asks a person, with answers to choose from, if it names some. Their own words count too."""

    text: str
    choices: tuple[str, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the agent gets for a choice, if that is not its text."""

    @property
    def shown(self) -> str:
        """Return the question with its numbered choices, for chats without buttons."""
        return "\n".join([self.text, *(f"{number}. {choice}" for number, choice in enumerate(self.choices, 1))])

    def resolve(self, words: str) -> str:
        """Return the choice that the words name by its text or number, else the words. `#2` is always a number."""
        choice = self._named(words)
        return self.values.get(choice, choice)

    def _named(self, words: str) -> str:
        words = words.strip()
        if same := [choice for choice in self.choices if choice.casefold() == words.casefold()]:
            return same[0]
        picked = _PICK.fullmatch(words)
        number = int(picked[2]) if picked else 0
        return self.choices[number - 1] if 1 <= number <= len(self.choices) else words


def ask_call(id_: str, question: str, choices: Sequence[str] = ()) -> ToolCall:
    """Return the call that asks a person."""
    arguments = json.dumps({"question": question, "choices": list(choices)}, ensure_ascii=False)
    return ToolCall(id=id_, name=ASK_USER, arguments=arguments)


def parse_question(call: ToolCall) -> Question | None:
    """Return what a call of `ask_user` asks; None for any other call, and for arguments that are no question."""
    arguments = parse_arguments(call) if call.name == ASK_USER else None
    if arguments is None:
        return None
    text, given = arguments.get("question"), arguments.get("choices") or list[object]()
    if not isinstance(text, str) or not text.strip() or not isinstance(given, list):
        return None
    pairs = [_choice(each) for each in cast("list[object]", given)]
    if len(pairs) > MAX_CHOICES or not all(label for label, _ in pairs):
        return None
    values = {label: value for label, value in reversed(pairs) if value}
    return Question(text=text.strip(), choices=tuple(dict.fromkeys(label for label, _ in pairs)), values=values)


def _choice(given: object) -> tuple[str, str]:
    """Return the text of a choice and the value that stands for it; no text if it is none."""
    if not isinstance(given, Mapping):
        return one_line(given if isinstance(given, str) else json.dumps(given), MAX_CHOICE_LENGTH), ""
    fields = cast("Mapping[str, object]", given)
    label, value = (_as_text(each) if (each := fields.get(name)) is not None else "" for name in ("label", "value"))
    return one_line(label or value, MAX_CHOICE_LENGTH), value


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def clean_result(text: str, limit: int) -> str:
    """Return a tool's output as the agent sees it: without secrets and markers, and shortened in the middle."""
    # Redact more than is shown: a secret that is cut in two is not recognised.
    half = _SCAN_FACTOR * limit // 2
    left_out = max(len(text) - 2 * half, 0)
    scanned = text[:half] + text[-half:] if left_out else text
    text = strip_markers(redact(scanned.encode("utf-8", "replace").decode()))
    return _shorten(text, limit, left_out) if text.strip() else _NO_OUTPUT


def _shorten(text: str, limit: int, left_out: int) -> str:
    if len(text) <= limit:
        return text
    half = limit // 2
    omitted = len(text) - 2 * half + left_out
    return f"{text[:half]}\n… ({omitted} characters omitted) …\n{text[-half:]}"
