"""Remote: the API of a gateway that runs in another process, reached with a token."""

import asyncio
import json
from collections.abc import Mapping
from http.client import HTTPException as BrokenAnswer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

from palaver.domain.value import value
from palaver.web.api.table import PREFIX
from palaver.web.mcp.deeds import Deed

__all__ = ["Remote"]

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
        request = Request(self.url + PREFIX + path, data=body, headers=headers, method=method)  # noqa: S310 - it is http
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
