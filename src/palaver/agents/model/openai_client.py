"""OpenAI's client without its walk over the messages, which takes half the time of a request with a hundred of them.

The client compares each field of each message with every type that it could have, to rename it. No field of a
conversation has another name on the wire, so messages and tools go past that, and the bytes stay the same.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import wraps
from typing import Any, TypeVar, cast

import httpx2
from openai import AsyncOpenAI
from openai.resources.chat import AsyncChat, AsyncCompletions
from openai.resources.responses import AsyncResponses
from pydantic_ai.providers import Provider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.providers.openai_compatible import OpenAICompatibleProvider

_Create = TypeVar("_Create", bound=Callable[..., Awaitable[object]])
_UNCHANGED = ("messages", "input", "tools")


def _past_the_walk(create: _Create) -> _Create:
    @wraps(create)
    async def create_directly(self: object, **arguments: Any) -> object:  # noqa: ANN401
        return await create(self, **_in_extra_body(arguments))

    return cast("_Create", create_directly)


def _in_extra_body(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Move the conversation to where the client adds it last. Its fields keep their place in the request."""
    unchanged = {name: arguments[name] for name in _UNCHANGED if isinstance(arguments.get(name), list)}
    places: dict[str, Any] = {name: [] for name in unchanged}
    return {**arguments, **places, "extra_body": {**unchanged, **(arguments.get("extra_body") or {})}}


class _Completions(AsyncCompletions):
    create = _past_the_walk(AsyncCompletions.create)


class _Chat(AsyncChat):
    @property
    def completions(self) -> AsyncCompletions:
        return _Completions(self._client)


class _Responses(AsyncResponses):
    create = _past_the_walk(AsyncResponses.create)


class DirectOpenAI(AsyncOpenAI):
    @property
    def chat(self) -> AsyncChat:
        return _Chat(self)

    @property
    def responses(self) -> AsyncResponses:
        return _Responses(self)


def openai_provider(*, api_key: str, base_url: str | None = None, http_client: httpx2.AsyncClient) -> Provider[Any]:
    """Return OpenAI itself."""
    return OpenAIProvider(openai_client=DirectOpenAI(base_url=base_url, api_key=api_key, http_client=http_client))


def compatible_provider(*, api_key: str, base_url: str, http_client: httpx2.AsyncClient) -> Provider[Any]:
    """Return any server with OpenAI's API."""
    client = DirectOpenAI(base_url=base_url, api_key=api_key, http_client=http_client)
    return OpenAICompatibleProvider("openai-compatible", openai_client=client)
