"""Receive what platforms send to our accounts over HTTP. Callers are untrusted until the adapter has checked them."""

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
from palaver.web.bodies import ServerBusy
from palaver.web.errors import CALLBACK_PREFIX, INTERNAL_ERROR, text_response
from palaver.web.services import Services

log = logging.getLogger(__name__)

_BODY_TIMEOUT_SECONDS = 30.0
_RETRY_AFTER_SECONDS = 5.0
_FAILURES_PER_MINUTE = 60
_COUNTS_AS_FAILURE = frozenset({401, 403, 404})
_COOKIE_HEADERS = frozenset({"cookie", "set-cookie"})
"""Logins to the web interface, which adapters must not see or set."""
_HEADERS = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "no-store"}
"""An answer that quotes its caller must not run as one of our pages in a browser."""


def routes(services: Services) -> list[Route]:
    return [Route(f"{CALLBACK_PREFIX}{{rest:path}}", _Callbacks(services).answer, methods=["GET", "POST", "PUT"])]


@dataclass
class _Callbacks:
    services: Services
    failures: FailureLimiter = field(
        default_factory=lambda: FailureLimiter(per_address=_FAILURES_PER_MINUTE, total=None)
    )

    async def answer(self, request: Request) -> Response:
        address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
        if wait := self.failures.retry_after(address, now):
            return _try_later(429, wait)
        response = await self._dispatch(request)
        if response.status_code in _COUNTS_AS_FAILURE:
            self.failures.record(address, now)
        return response

    async def _dispatch(self, request: Request) -> Response:
        # Split the raw path: an escaped slash belongs to the account's name.
        platform, account, path, *_ = [*request.scope["raw_path"].decode("latin-1").split("/", 4)[2:], "", "", ""]
        name = unquote(platform), unquote(account)
        adapter = self.services.listening.get(name)
        if adapter is None:
            return text_response(CALLBACK_PREFIX, 404, "Not found.")
        try:
            call = await self._read_call(request, unquote(path))
        except TimeoutError:
            return text_response(CALLBACK_PREFIX, 408, "The body did not arrive in time.")
        except TooLarge as error:
            return text_response(CALLBACK_PREFIX, 413, str(error))
        except ServerBusy:
            return _try_later(503, _RETRY_AFTER_SECONDS)
        return await self._call_adapter(adapter, call, name)

    async def _call_adapter(self, adapter: HttpCallbacks, call: HttpRequest, name: tuple[str, str]) -> Response:
        try:
            return _response(await adapter.handle_callback(call, self.services.engine.receiver(*name)))
        except PlatformBusy as busy:
            return _try_later(503, busy.after)
        except (PlatformError, StoreError):
            return _try_later(503, _RETRY_AFTER_SECONDS)
        except Exception as error:  # noqa: BLE001 - an adapter can raise anything; the caller must not read it
            log_error(log, "a callback failed", error, {"action": "callback.error", "account": ":".join(name)})
            return text_response(CALLBACK_PREFIX, 500, INTERNAL_ERROR)

    async def _read_call(self, request: Request, path: str) -> HttpRequest:
        bodies, options = self.services.bodies, self.services.engine.options
        async with (
            asyncio.timeout(_BODY_TIMEOUT_SECONDS),
            bodies.read(request.stream(), options, with_files=False) as content,
        ):
            body = bytes(content)
        headers: dict[str, str] = {}
        for header, value in request.headers.items():
            if header not in _COOKIE_HEADERS:
                headers[header] = f"{headers[header]}, {value}" if header in headers else value
        return HttpRequest(
            method=request.method, path=path, query=dict(request.query_params), headers=headers, body=body
        )


def _response(reply: HttpResponse) -> Response:
    refused = {*_COOKIE_HEADERS, *_HEADERS}
    headers = {name: value for name, value in reply.headers.items() if name.lower() not in refused}
    return Response(reply.body, status_code=reply.status, media_type=reply.media_type, headers={**headers, **_HEADERS})


def _try_later(status: int, seconds: float) -> Response:
    headers = {"retry-after": str(max(1, math.ceil(seconds)))}
    return text_response(CALLBACK_PREFIX, status, "Try again later.", headers=headers)
