"""Here: the API reached in the gateway itself, on behalf of whoever showed a key."""

import asyncio
import json
from collections.abc import Mapping
from http.client import HTTPException as BrokenAnswer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palaver.model.errors import PalaverError
from palaver.model.value import value
from palaver.web.api.endpoints import PREFIX, Ask, Later, Schema, checked, converted
from palaver.web.caller import Caller
from palaver.web.errors import API, problem
from palaver.web.mcp.tools import Deed
from palaver.web.services import Services

__all__ = [
    "Here",
    "Remote",
]


@value
class Here:
    services: Services
    caller: Caller
    request: Request

    async def ask(self, deed: Deed, given: Mapping[str, Any]) -> tuple[bool, bytes]:
        try:
            told = await deed.endpoint.does(self._asked(deed, given))
            if isinstance(told, Later):
                told = await told.tells()
        except (PalaverError, HTTPException) as error:
            return False, bytes(problem(API, error).body)
        return True, bytes(told.body) if isinstance(told, Response) else msgspec.json.encode(told)

    def _asked(self, deed: Deed, given: Mapping[str, Any]) -> Ask:
        endpoint = deed.endpoint
        checked(endpoint, self.caller)
        path, rest = deed.parts(given)
        example = msgspec.json.encode(endpoint.example).decode()
        shape = converted(endpoint.asks or endpoint.takes or Schema, rest, example)
        return Ask(
            services=self.services,
            caller=self.caller,
            request=self.request,
            path=path,
            query=shape if endpoint.asks else None,
            body=shape if endpoint.takes else None,
        )


_PATIENCE = 630.0
"""Seconds: more than anybody may wait for an answer."""


@value
class Remote:
    url: str
    token: str

    async def ask(self, deed: Deed, given: Mapping[str, Any]) -> tuple[bool, bytes]:
        parts, rest = deed.parts(given)
        path = deed.endpoint.path.format(**{name: quote(value, safe="") or "-" for name, value in parts.items()})
        if deed.endpoint.takes:
            return await asyncio.to_thread(self._fetch, deed.endpoint.method, path, json.dumps(rest).encode())
        query = urlencode({name: _text(value) for name, value in rest.items() if value is not None})
        return await asyncio.to_thread(self._fetch, deed.endpoint.method, f"{path}?{query}", None)

    def _fetch(self, method: str, path: str, body: bytes | None) -> tuple[bool, bytes]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        request = HttpRequest(self.url + PREFIX + path, data=body, headers=headers, method=method)  # noqa: S310 - it is http
        try:
            with urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310
                return True, answer.read()
        except HTTPError as error:
            return False, error.read()
        except (URLError, OSError, BrokenAnswer) as error:
            why = f"No gateway answers at {self.url} ({error}); `palaver up` starts it."
            return False, json.dumps({"detail": why}).encode()


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
