"""Lines: the way to a provider's models, by the names that were configured. Nobody's key goes anywhere else."""

from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import signature
from typing import Any, cast

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider
from pydantic_ai.settings import ModelSettings

from palaver.agents.model.options import Wanted
from palaver.model.errors import InvalidInput
from palaver.model.session import ModelOverride
from palaver.model.value import value

__all__ = [
    "Line",
    "Lines",
]

_COMPATIBLE = ("openai", "openai-chat")
"""With an address of their own: a server that speaks as OpenAI does, and need not be OpenAI."""
_CHAT = "openai-chat"
_CONNECT = 10.0
_NO_KEY = "none"
"""To a server that asks for no key; an empty one would be looked for in the environment."""
_EXAMPLE = "key: ${OPENAI_API_KEY}"


@value(kw_only=False)
class Line:
    """A model that can be asked."""

    name: str
    """As it was configured: `provider:model`."""
    model: Model
    settings: ModelSettings

    @property
    def provider(self) -> str:
        return self.name.partition(":")[0]

    @property
    def short_name(self) -> str:
        return self.name.partition(":")[2]

    @property
    def context_window(self) -> int | None:
        return self.model.profile.get("context_window")


@dataclass(frozen=True)
class Lines:
    """To the usual model, and to the others that a conversation may ask for."""

    usual: Line
    others: dict[str, Line]
    client: httpx2.AsyncClient = field(repr=False)

    @classmethod
    def of(cls, wanted: Wanted) -> "Lines":
        """Raises InvalidInput where the models cannot be asked, saying what is missing."""
        client = httpx2.AsyncClient(timeout=httpx2.Timeout(wanted.timeout.total_seconds(), connect=_CONNECT))
        models = {name: _model(name, wanted, client) for name in (wanted.model, *wanted.models)}
        lines = {name: Line(name, model, _settings(wanted, model)) for name, model in models.items()}
        return cls(lines.pop(wanted.model), lines, client)

    def to(self, override: ModelOverride | None) -> Line:
        """What a conversation asked for and is not to be had any more is answered by the usual model."""
        return self.others.get(f"{override.provider}:{override.model}", self.usual) if override else self.usual

    def choices(self) -> list[ModelOverride]:
        return [
            ModelOverride(model=line.short_name, provider=line.provider) for line in (self.usual, *self.others.values())
        ]

    async def close(self) -> None:
        await self.client.aclose()


def _settings(wanted: Wanted, model: Model) -> ModelSettings:
    # Whether and when it is tried again is for the engine to say.
    settings = ModelSettings(timeout=wanted.timeout.total_seconds(), max_retries=0)
    if model.profile.get("supports_cache"):
        settings["cache"] = True
    if isinstance(model, OpenAIResponsesModel):
        # Who keeps what was said is us.
        settings = cast("ModelSettings", {**settings, "openai_store": False})
    if wanted.temperature is not None:
        settings["temperature"] = wanted.temperature
    if wanted.max_tokens:
        settings["max_tokens"] = wanted.max_tokens
    return settings


def _model(name: str, wanted: Wanted, client: httpx2.AsyncClient) -> Model:
    provider = name.partition(":")[0]
    if provider != wanted.model.partition(":")[0]:
        raise InvalidInput(
            "An agent has one key, so its models are of one provider, not also of",
            found=provider,
            allowed=f"models of {wanted.model.partition(':')[0]}; for others a profile with an agent of its own",
            example=wanted.model,
        )
    if wanted.base_url and provider in _COMPATIBLE:
        compatible = OpenAICompatibleProvider(
            "openai-compatible", base_url=wanted.base_url, api_key=wanted.key or _NO_KEY, http_client=client
        )
        return _inferred(f"{_CHAT}:{name.partition(':')[2]}", lambda _: compatible)
    return _inferred(name, lambda provider: _provider(provider, wanted, client))


def _inferred(name: str, factory: Callable[[str], Provider[Any]]) -> Model:
    try:
        return infer_model(name, factory)
    except (UserError, ValueError) as error:
        raise InvalidInput(
            "No model can be asked that is called",
            found=name,
            allowed="provider:model, of openai, anthropic, google, openrouter, ollama and others",
            example="openai:gpt-5-mini",
        ) from error
    except ImportError as missing:
        raise InvalidInput(
            "Models of this provider need a package that is not installed:",
            found=name,
            allowed="what pydantic-ai needs for this provider",
            example=f"pip install 'pydantic-ai-slim[{name.partition(':')[0]}]'",
        ) from missing


def _provider(name: str, wanted: Wanted, client: httpx2.AsyncClient) -> Provider[Any]:
    made = infer_provider_class(name)
    takes = signature(made).parameters
    if wanted.base_url and "base_url" not in takes:
        raise InvalidInput(
            "This provider has no other address:",
            found=name,
            allowed="base_url with openai, anthropic, google, ollama and others",
            example="model: openai:" + wanted.model.partition(":")[2],
        )
    if wanted.key is None and not wanted.base_url:
        raise InvalidInput(
            "The agent called model has no key for", found=name, allowed="key or key_file in agent", example=_EXAMPLE
        )
    # Never from the environment: what stands there need not be meant for this address.
    given = {"api_key": wanted.key or _NO_KEY, "base_url": wanted.base_url, "http_client": client}
    return made(**{each: value for each, value in given.items() if each in takes and value is not None})
