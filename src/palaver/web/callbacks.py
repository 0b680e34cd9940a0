"""Calls: what platforms send to our accounts over HTTP. Whoever calls is a stranger until the adapter knows better."""

import asyncio
import logging
import math
from dataclasses import dataclass, field
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.engine.retry import log_error
from palaver.model.attachment import TooLarge
from palaver.model.errors import StoreError
from palaver.protocols.adapter import PlatformBusy, PlatformError
from palaver.protocols.capabilities import HttpCallbacks, HttpRequest, HttpResponse
from palaver.web.auth_middleware import FailureLimiter
from palaver.web.bodies import TooMuchAtOnce
from palaver.web.errors import IN, UNTOLD, refusal
from palaver.web.services import Services

__all__ = [
    "routes",
]

log = logging.getLogger(__name__)

_METHODS = ("GET", "POST", "PUT")
_PATIENCE = 30.0
"""Seconds in which a body must be here as a whole."""
_LATER = 5.0
"""Seconds after which something is worth another call, where nobody knows better."""
_TURNED_AWAY = frozenset({401, 403, 404})
_OURS = frozenset({"cookie", "set-cookie"})
"""Logins of the window, which are no business of an adapter's."""
_HEADERS = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "no-store"}
"""An answer that quotes its caller must not become a page of ours in somebody's browser."""


def routes(services: Services) -> list[Route]:
    return [Route(f"{IN}{{rest:path}}", _Calls(services).answer, methods=list(_METHODS))]


@dataclass
class _Calls:
    services: Services
    failures: FailureLimiter = field(default_factory=lambda: FailureLimiter(each=60, everybody=None))

    async def answer(self, request: Request) -> Response:
        address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
        if wait := self.failures.wait(address, now):
            return _later(429, wait)
        response = await self._heard(request)
        if response.status_code in _TURNED_AWAY:
            self.failures.failed(address, now)
        return response

    async def _heard(self, request: Request) -> Response:
        # As it was sent: whatever is escaped in a name is of that name.
        platform, account, path, *_ = [*request.scope["raw_path"].decode("latin-1").split("/", 4)[2:], "", "", ""]
        name = unquote(platform), unquote(account)
        adapter = self.services.listening.get(name)
        if adapter is None:
            return refusal(IN, 404, "There is nothing here.")
        try:
            call = await self._call(request, unquote(path))
        except TimeoutError:
            return refusal(IN, 408, "The body did not come.")
        except TooLarge as error:
            return refusal(IN, 413, str(error))
        except TooMuchAtOnce:
            return _later(503, _LATER)
        return await self._asked(adapter, call, name)

    async def _asked(self, adapter: HttpCallbacks, call: HttpRequest, name: tuple[str, str]) -> Response:
        try:
            return _response(await adapter.handle_callback(call, self.services.engine.receiver(*name)))
        except PlatformBusy as busy:
            return _later(503, busy.after)
        except (PlatformError, StoreError):
            return _later(503, _LATER)
        except Exception as error:  # noqa: BLE001 - whatever an adapter raises, a stranger is told nothing of it
            log_error(log, "a call broke", error, {"action": "callback.error", "account": ":".join(name)})
            return refusal(IN, 500, UNTOLD)

    async def _call(self, request: Request, path: str) -> HttpRequest:
        options = self.services.engine.options
        async with (
            asyncio.timeout(_PATIENCE),
            self.services.bodies.read(request.stream(), options, with_files=False) as read,
        ):
            body = bytes(read)
        headers: dict[str, str] = {}
        for header, value in request.headers.items():
            if header not in _OURS:
                headers[header] = f"{headers[header]}, {value}" if header in headers else value
        return HttpRequest(
            method=request.method, path=path, query=dict(request.query_params), headers=headers, body=body
        )


def _response(reply: HttpResponse) -> Response:
    headers = {name: value for name, value in reply.headers.items() if name.lower() not in {*_OURS, *_HEADERS}}
    return Response(reply.body, status_code=reply.status, media_type=reply.media_type, headers={**headers, **_HEADERS})


def _later(status: int, seconds: float) -> Response:
    return refusal(IN, status, "Not now: try again later.", headers={"retry-after": str(max(1, math.ceil(seconds)))})
