"""List the models that a provider, or a server with OpenAI's API, offers for a key."""

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from palaver.agents.plugins import import_extra
from palaver.model.errors import PalaverError
from palaver.model.providers import COMPATIBLE, PROVIDERS, Provider
from palaver.model.value import value
from palaver.protocols.agent import FailureKind

_TIMEOUT_SECONDS = 10.0
_MAX_BYTES = 8_000_000
_MAX_NAME = 200
_KEY_REFUSALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
_UNKNOWN = Provider(name="", title="", default_model="", base_url="", key_variables=(), key_page="")


class ModelsNotListed(PalaverError):
    """There is no list: the sentence says why, and never contains the key."""

    def __init__(self, kind: FailureKind, why: str) -> None:
        super().__init__(why)
        self.kind = kind
        """`UNAUTHORIZED` if the key is refused, `UNREACHABLE` if nobody answers, else `FATAL`."""


@value(kw_only=False)
class ListedModel:
    name: str
    owner: str = ""
    """What the server says in `owned_by`."""


async def list_models(
    provider: str = COMPATIBLE, *, key: str = "", base_url: str = "", within: float = _TIMEOUT_SECONDS
) -> list[ListedModel]:
    """Return the models in the order of the provider. Raises ModelsNotListed, or InvalidInput without httpx2.

    With `base_url`, ask that server instead. The key goes only there: redirects are not followed.
    """
    known = PROVIDERS.get(provider, _UNKNOWN)
    url = (base_url or known.base_url).rstrip("/") + known.models_path
    status, body = await _fetch(url, _headers(provider, key), within)
    if status in _KEY_REFUSALS or (status == HTTPStatus.BAD_REQUEST and b"API_KEY_INVALID" in body):
        raise ModelsNotListed(FailureKind.UNAUTHORIZED, "the key is refused")
    if status != HTTPStatus.OK:
        raise ModelsNotListed(FailureKind.FATAL, f"the list of models has status {status}")
    return _parse(body)


def _headers(provider: str, key: str) -> Mapping[str, str]:
    if not key:
        return {}
    match provider:
        case "anthropic":
            return {"x-api-key": key, "anthropic-version": "2023-06-01"}
        case "google":
            return {"x-goog-api-key": key}
        case _:
            return {"authorization": f"Bearer {key}"}


async def _fetch(url: str, headers: Mapping[str, str], within: float) -> tuple[int, bytes]:
    # Imported only where it is used: it is slow to import, and may not be installed.
    rest: Any = import_extra("palaver.protocols.rest", "Listing models needs", "models")
    httpx2 = rest.httpx2
    secure = url.startswith("https:")
    # A proxy in the environment is for the internet, not for this machine.
    options = {"timeout": within, "trust_env": secure, "verify": rest.tls_context() if secure else False}
    try:
        async with httpx2.AsyncClient(**options) as client, client.stream("GET", url, headers=headers) as answer:
            body = bytearray()
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _MAX_BYTES:
                    raise ModelsNotListed(FailureKind.FATAL, "the list of models is too long")
            return answer.status_code, bytes(body)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise ModelsNotListed(FailureKind.UNREACHABLE, "it cannot be reached") from error


def _parse(body: bytes) -> list[ListedModel]:
    """Read the form of OpenAI, which Anthropic and others have too, or of Google."""
    try:
        said: object = json.loads(body)
    except ValueError as error:
        raise ModelsNotListed(FailureKind.FATAL, "its list of models cannot be read") from error
    parts = cast("Mapping[str, object]", said if isinstance(said, dict) else {})
    found = parts.get("data", parts.get("models"))
    if not isinstance(found, list):
        raise ModelsNotListed(FailureKind.FATAL, "its list of models cannot be read")
    return [model for each in cast("list[object]", found) if (model := _model(each))]


def _model(each: object) -> ListedModel | None:
    if not isinstance(each, dict):
        return None
    said = cast("Mapping[str, object]", each)
    name, methods = said.get("id", said.get("name")), said.get("supportedGenerationMethods")
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME:
        return None
    if isinstance(methods, list) and "generateContent" not in methods:
        return None
    return ListedModel(name.removeprefix("models/"), str(said.get("owned_by") or "")[:_MAX_NAME])
