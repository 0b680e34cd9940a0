"""Model clients: the configured models of one provider. The key goes only to the configured address."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from inspect import signature
from typing import Any, cast

import httpx2
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from palaver.agents.model.options import ModelOptions, model_extra
from palaver.model.errors import InvalidInput
from palaver.model.providers import PROVIDERS
from palaver.model.session import ModelOverride
from palaver.model.value import value
from palaver.protocols.installation import MissingPackages, package_line
from palaver.protocols.rest import tls_context

_COMPATIBLE = ("openai", "openai-chat")
"""With a base_url, these mean any server with OpenAI's API."""
_CHAT = "openai-chat"
_OPENAI = (*_COMPATIBLE, "openai-responses")
_RESPONSES_MODEL = "OpenAIResponsesModel"
"""Compared by name: the class can be imported only where the openai extra is installed."""
_PACKAGES = ("anthropic", "google", "openai", "tiktoken")
"""What our extras for models install."""
_CONNECT_TIMEOUT_SECONDS = 10.0
_OWN_CLIENTS = {"mistral": "mistralai", "groq": "groq", "xai": "xai_sdk"}
"""Providers with OpenAI's API, whose own client is used where its package is installed."""
_NO_KEY = "none"
"""For a server that needs no key. With an empty one the library would read the environment."""
_EXAMPLE = "key: ${OPENAI_API_KEY}"


@value(kw_only=False)
class ModelClient:
    """A model and its settings."""

    name: str
    """As configured: `provider:model`."""
    model: Model
    settings: ModelSettings
    takes_cache_key: bool = False
    """Whether requests with the same key are sent to the same cache."""

    @property
    def context_window(self) -> int | None:
        return self.model.profile.get("context_window")


@dataclass(frozen=True)
class ModelClients:
    """The default model, and the others that a conversation can choose."""

    default: ModelClient
    others: dict[str, ModelClient]
    client: httpx2.AsyncClient = field(repr=False)

    @classmethod
    def of(cls, options: ModelOptions) -> "ModelClients":
        """Make the clients. Raises InvalidInput with what is missing."""
        client = httpx2.AsyncClient(
            timeout=httpx2.Timeout(options.timeout.total_seconds(), connect=_CONNECT_TIMEOUT_SECONDS),
            verify=tls_context(),
        )
        models = {name: _model(name, options, client) for name in (options.model, *options.models)}
        clients = {
            name: ModelClient(name, model, _settings(options, model), _takes_cache_key(name, options))
            for name, model in models.items()
        }
        return cls(clients.pop(options.model), clients, client)

    def choose(self, override: ModelOverride | None) -> ModelClient:
        """Return the chosen model, or the default if it is no longer configured."""
        return self.others.get(f"{override.provider}:{override.model}", self.default) if override else self.default

    def choices(self) -> list[ModelOverride]:
        names = [client.name.split(":", 1) for client in (self.default, *self.others.values())]
        return [ModelOverride(model=model, provider=provider) for provider, model in names]

    async def close(self) -> None:
        await self.client.aclose()


def _takes_cache_key(name: str, options: ModelOptions) -> bool:
    """Return whether it is OpenAI's own API: a compatible server can refuse a field that it does not know."""
    return name.partition(":")[0] in _OPENAI and not _is_compatible(name, options)


def _is_compatible(name: str, options: ModelOptions) -> bool:
    return bool(options.base_url) and name.partition(":")[0] in _COMPATIBLE


def _settings(options: ModelOptions, model: Model) -> ModelSettings:
    # No retries here: the engine decides about them.
    settings = ModelSettings(timeout=options.timeout.total_seconds(), max_retries=0)
    if model.profile.get("supports_cache"):
        settings["cache"] = True
    if any(each.__name__ == _RESPONSES_MODEL for each in type(model).__mro__):
        # The gateway stores the conversation, so the provider need not.
        settings = cast("ModelSettings", {**settings, "openai_store": False})
    if options.temperature is not None:
        settings["temperature"] = options.temperature
    if options.max_tokens:
        settings["max_tokens"] = options.max_tokens
    return settings


def _model(name: str, options: ModelOptions, client: httpx2.AsyncClient) -> Model:
    provider = name.partition(":")[0]
    if provider != options.model.partition(":")[0]:
        raise InvalidInput(
            "An agent has one key, so it cannot also use models of {found}",
            found=provider,
            allowed=f"models of {options.model.partition(':')[0]}, or add a profile with its own agent",
            example=options.model,
        )
    if address := options.base_url if _is_compatible(name, options) else _address_without_client(provider, options):
        _require_key(provider, options)
        given = {"base_url": address, "api_key": options.key or _NO_KEY, "http_client": client}
        return _inferred(f"{_CHAT}:{name.partition(':')[2]}", lambda _: _openai_client().compatible_provider(**given))
    return _inferred(name, lambda provider: _provider(provider, options, client))


def _address_without_client(provider: str, options: ModelOptions) -> str:
    """Return where a provider speaks OpenAI's API, if the package of its own client is not installed."""
    package = _OWN_CLIENTS.get(provider)
    return (options.base_url or PROVIDERS[provider].base_url) if package and find_spec(package) is None else ""


def _require_key(name: str, options: ModelOptions) -> None:
    if options.key is None and not options.base_url:
        raise InvalidInput(
            "The model agent has no key for {found}",
            found=name,
            allowed="key or key_file in agent",
            fix="Set key or key_file in agent",
            example=_EXAMPLE,
        )


def _openai_client() -> Any:  # noqa: ANN401 - a module
    """Import OpenAI's client, which the extras of other providers do not install."""
    return import_module("palaver.agents.model.openai_client")


def _inferred(name: str, factory: Callable[[str], Provider[Any]]) -> Model:
    try:
        return infer_model(name, factory)
    except (UserError, ValueError) as error:
        raise InvalidInput(
            "Unknown model",
            found=name,
            allowed="provider:model, with openai, anthropic, google, openrouter, ollama or another provider",
            example="openai:gpt-5-mini",
        ) from error
    except ImportError as missing:
        cause = missing.__cause__ if isinstance(missing.__cause__, ImportError) else missing
        if (cause.name or "").partition(".")[0] in _PACKAGES:
            raise MissingPackages(f"The model {name} needs", model_extra(name), missing=cause.name or "") from missing
        command = package_line(f"pydantic-ai-slim[{name.partition(':')[0]}]")
        raise InvalidInput(
            "The model {found} needs a package that is not installed",
            found=name,
            allowed="what this provider needs",
            fix=f"Run {command}",
            example=command,
        ) from missing


def _provider(name: str, options: ModelOptions, client: httpx2.AsyncClient) -> Provider[Any]:
    provider_class = infer_provider_class(name)
    accepted = signature(provider_class).parameters
    if options.base_url and "base_url" not in accepted:
        raise InvalidInput(
            "The provider {found} has a fixed address",
            found=name,
            allowed="base_url with openai, anthropic, google, ollama and others",
            fix="Remove base_url, or use a model of another provider",
            example="model: openai:" + options.model.partition(":")[2],
        )
    _require_key(name, options)
    # Never from the environment: a key there need not be meant for this address.
    given = {"api_key": options.key or _NO_KEY, "base_url": options.base_url, "http_client": client}
    arguments: dict[str, Any] = {name: value for name, value in given.items() if name in accepted and value is not None}
    make: Callable[..., Provider[Any]] = _openai_client().openai_provider if name in _OPENAI else provider_class
    return make(**arguments)
