"""A client of the API over HTTP, for an MCP server in another process. It needs no extra."""

import asyncio
import json
from collections.abc import Mapping
from http.client import HTTPException as BrokenResponse
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from palaver.model.value import value
from palaver.web.address import API_ROOT

if TYPE_CHECKING:
    from palaver.web.mcp.tools import McpTool

_TIMEOUT_SECONDS = 630.0
"""Longer than the longest `wait` of the API."""


@value
class RemoteClient:
    url: str
    token: str

    async def call(self, tool: "McpTool", arguments: Mapping[str, Any]) -> tuple[bool, bytes]:
        parameters, rest = tool.split(arguments)
        path = tool.endpoint.path.format(**{name: quote(text, safe="") or "-" for name, text in parameters.items()})
        if tool.endpoint.body:
            return await asyncio.to_thread(self._fetch, tool.endpoint.method, path, json.dumps(rest).encode())
        query = urlencode({name: _as_text(given) for name, given in rest.items() if given is not None})
        return await asyncio.to_thread(self._fetch, tool.endpoint.method, f"{path}?{query}", None)

    def _fetch(self, method: str, path: str, body: bytes | None) -> tuple[bool, bytes]:
        headers = {"authorization": f"Bearer {self.token}", "content-type": "application/json"}
        request = Request(self.url + API_ROOT + path, data=body, headers=headers, method=method)  # noqa: S310 - http(s)
        try:
            with urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
                return True, response.read()
        except HTTPError as error:
            return False, error.read()
        except (URLError, OSError, BrokenResponse) as error:
            problem = f"No gateway answers at {self.url} ({error}). Start it with `palaver up`."
            return False, json.dumps({"detail": problem}).encode()


def _as_text(given: object) -> str:
    return given if isinstance(given, str) else json.dumps(given)
