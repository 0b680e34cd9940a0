"""Receive what platforms send to our accounts over HTTP. Callers are untrusted until the adapter has checked them."""

import asyncio
import logging
import math
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.engine.retry import log_error
from palaver.model.attachment import TooLarge
from palaver.model.errors import INTERNAL_ERROR, StoreError
from palaver.protocols.adapter import PlatformBusy, PlatformError, Receiver
from palaver.protocols.capabilities import HttpCallbacks, HttpRequest, HttpResponse
from palaver.web.bodies import BodyTooSlow, ServerBusy
from palaver.web.errors import CALLBACK_PREFIX, error_response, text_response
from palaver.web.routes import services_of
from palaver.web.services import Services

log = logging.getLogger(__name__)

_RETRY_AFTER_SECONDS = 5.0
_COUNTS_AS_FAILURE = frozenset({401, 403, 404})
_MAX_LOGGED_PATH = 100
_COOKIE_HEADERS = frozenset({"cookie", "set-cookie"})
"""Logins to the web interface, which adapters must not see or set."""
_HEADERS = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "no-store"}
"""An answer that quotes its caller must not run as one of our pages in a browser."""


async def _answer(http: Request) -> Response:
    """Slow down callers whose requests fail. A right request is always answered: others can share its address."""
    services = services_of(http)
    response = await _dispatch(http, services)
    if response.status_code not in _COUNTS_AS_FAILURE:
        return response
    failures, address, now = services.callback_failures, _address(http), asyncio.get_running_loop().time()
    wait = failures.retry_after(address, now)
    failures.record(address, now)
    if wait:
        return _try_later(429, wait)
    path = http.url.path[:_MAX_LOGGED_PATH]
    log.warning("a callback to %s got %d", path, response.status_code, extra={"action": "callback.refused"})
    return response


def _address(http: Request) -> str:
    return http.client.host if http.client else ""


async def _dispatch(http: Request, services: Services) -> Response:
    # Split the raw path: an escaped slash belongs to the account's name.
    platform, account, path, *_ = [*http.scope["raw_path"].decode("latin-1").split("/", 4)[2:], "", "", ""]
    name = unquote(platform), unquote(account)
    adapter = services.listening.get(name)
    if adapter is None:
        return text_response(CALLBACK_PREFIX, 404, "Not found.")
    try:
        call = await _read_call(http, services, unquote(path))
    except (BodyTooSlow, TooLarge, ServerBusy) as error:
        return error_response(CALLBACK_PREFIX, error)
    return await _call_adapter(adapter, call, services.engine.receiver(*name), ":".join(name))


async def _call_adapter(adapter: HttpCallbacks, call: HttpRequest, receiver: Receiver, account: str) -> Response:
    try:
        return _response(await adapter.handle_callback(call, receiver))
    except PlatformBusy as busy:
        return _try_later(503, busy.after)
    except (PlatformError, StoreError):
        return _try_later(503, _RETRY_AFTER_SECONDS)
    except Exception as error:  # noqa: BLE001 - an adapter can raise anything; the caller must not read it
        log_error(log, "a callback failed", error, {"action": "callback.error", "account": account})
        return text_response(CALLBACK_PREFIX, 500, INTERNAL_ERROR)


async def _read_call(http: Request, services: Services, path: str) -> HttpRequest:
    bodies, limits = services.stranger_bodies, services.engine.settings.limits
    async with bodies.read(http.stream(), limits, _address(http), with_files=False) as content:
        body = bytes(content)
    names = set(http.headers) - _COOKIE_HEADERS
    headers = {name: ", ".join(http.headers.getlist(name)) for name in names}
    return HttpRequest(method=http.method, path=path, query=dict(http.query_params), headers=headers, body=body)


def _response(reply: HttpResponse) -> Response:
    refused = {*_COOKIE_HEADERS, *_HEADERS}
    headers = {name: value for name, value in reply.headers.items() if name.lower() not in refused}
    return Response(reply.body, status_code=reply.status, media_type=reply.media_type, headers={**headers, **_HEADERS})


def _try_later(status: int, seconds: float) -> Response:
    headers = {"retry-after": str(max(1, math.ceil(seconds)))}
    return text_response(CALLBACK_PREFIX, status, "Try again later.", headers=headers)


ROUTES = (Route(f"{CALLBACK_PREFIX}{{rest:path}}", _answer, methods=["GET", "POST", "PUT"]),)
