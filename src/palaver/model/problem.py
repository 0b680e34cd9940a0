"""Current problems: what does not work, why, and what the owner can do. Each ends when the thing works again."""

from datetime import datetime
from enum import StrEnum

from palaver.model.providers import spell_model
from palaver.model.source import MAIN
from palaver.model.value import value


class ProblemArea(StrEnum):
    AGENT = "agent"
    ACCOUNT = "account"


@value
class Problem:
    """For the owner only: strangers see neither cause nor fix."""

    area: ProblemArea
    subject: str
    """The profile whose agent fails, or the name of the account."""
    kind: str
    """The kind of failure of an agent; `refused` or `down` for an account."""
    cause: str
    fix: str
    since: datetime
    last: datetime
    """When it happened last."""
    turn: int | None = None
    """The turn that failed last: `palaver trace turn:7` shows more."""
    detail: str | None = None
    """What the provider said, as far as it is still stored."""

    @property
    def text(self) -> str:
        return f"{self.cause} {self.fix}"


_SETUP = "Open Settings in the web window, or run palaver setup"
_AGENT_PROBLEMS = {
    "unauthorized": ("{model} rejects the key.", f"{_SETUP}: it needs a valid key."),
    "no_credit": (
        "The provider of {model} says that your account has no credit or quota left.",
        "Add credit at the provider, or choose another model in Settings of the web window or with palaver setup.",
    ),
    "unknown_model": (
        "The provider does not have {model}, or your key cannot use it.",
        f"{_SETUP}: choose a model that the provider lists.",
    ),
    "unreachable": (
        "{model} cannot be reached.",
        "Check the network, and that the server at its address runs. Then send your message again.",
    ),
    "rate_limited": (
        "{model} gets too many requests.",
        "Wait a few minutes, or raise the limit at the provider.",
    ),
    "transient": (
        "{model} answers with errors, also when asked again.",
        "Try again in a few minutes. The provider's status page may say more.",
    ),
    "fatal": ("{model} failed.", "Run palaver doctor: it asks the agent once and shows its error."),
}
"""Cause and fix of each kind of failure that says something about the agent and not about one message."""


def is_agent_problem(failure: str) -> bool:
    return failure in _AGENT_PROBLEMS


def describe_agent_problem(failure: str, model: str | None, profile: str) -> tuple[str, str]:
    """Return the cause and the fix."""
    cause, fix = _AGENT_PROBLEMS[failure]
    agent = "The agent" if profile == MAIN else f"The agent of the profile {profile}"
    model = spell_model(model) if model else None
    named = f"{model} (profile {profile})" if model and profile != MAIN else model
    return cause.format(model=named or agent), fix


def describe_account_problem(name: str, error: str, *, is_refused: bool) -> tuple[str, str]:
    cause = f"{name} is not connected: {error}"
    cause = cause if cause.endswith((".", "!", "?")) else f"{cause}."
    check = f"palaver platforms check {name} tests it."
    return cause, f"Fix what the error describes. {check}" if is_refused else f"Palaver keeps trying. {check}"
