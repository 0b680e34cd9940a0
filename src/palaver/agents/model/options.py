"""The options of a model agent, readable without the packages that the agent needs."""

from collections.abc import Mapping
from dataclasses import field
from datetime import timedelta
from typing import Any

from palaver.agents.fallback import FallbackAgent
from palaver.agents.plugins import import_extra
from palaver.model.value import value
from palaver.protocols.agent import Agent


@value
class ModelOptions:
    model: str
    """`provider:model`."""
    models: tuple[str, ...] = ()
    """Other models that a conversation can choose."""
    key: str | None = field(default=None, repr=False)
    base_url: str | None = None
    instructions: str = ""
    temperature: float | None = None
    max_tokens: int | None = None
    timeout: timedelta = timedelta(minutes=2)
    rounds: int = 40
    """How often the model can call tools in one turn."""
    context_window: int | None = None
    prices: bytes | None = None
    """A price file that overrides the built-in table."""
    fallback: tuple["ModelOptions", ...] = ()
    """The models that answer while this one fails, in order."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> "ModelOptions":
        """Make the options of a configuration."""
        options = {name: value for name, value in facts.items() if name != "fallback"}
        return cls(**options, fallback=tuple(map(cls.of, facts.get("fallback", ()))))


_EXTRAS = {"anthropic": "anthropic", "google": "google", "google-cloud": "google"}


def model_extra(model: str) -> str:
    """Return the extra for `provider:model`. Most providers, and all servers, speak OpenAI's API."""
    return _EXTRAS.get(model.partition(":")[0], "openai")


def make_model_agent(options: ModelOptions) -> Agent:
    """Load the model agent's packages and make it. Raises InvalidInput with what to set or install."""
    extra = model_extra(options.model)
    kind = import_extra("palaver.agents.model.agent", f"The model {options.model} needs", extra).ModelAgent
    if not options.fallback:
        return kind.of(options)
    return FallbackAgent.of([(each.model, kind.of(each)) for each in (options, *options.fallback)])
