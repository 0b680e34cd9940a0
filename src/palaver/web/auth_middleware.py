"""Authenticate every request, check its origin and CSRF token, and add security headers to every response."""

import hmac
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.db.transaction import answering_request
from palaver.engine.retry import log_error
from palaver.model.attachment import TooLarge
from palaver.model.errors import INTERNAL_ERROR, NoAccess, StoreError, StoreUnavailable
from palaver.web.address import Address
from palaver.web.bodies import STRANGER_SECONDS, BodyTooSlow, TimedBody, read_at_most, replay_body
from palaver.web.caller import Caller
from palaver.web.errors import (
    API_PREFIX,
    CALLBACK_PREFIX,
    OPENAI_PREFIX,
    STORE_AWAY,
    error_response,
    text_response,
)
from palaver.web.limits import OpenRequests, TooManyRequests, WebLimits
from palaver.web.tokens import Authenticator

log = logging.getLogger(__name__)

CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"
SCOPE_CALLER = "palaver.caller"
"""Where the scope of a request has its caller."""
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_PROBES = frozenset({"/health", "/ready"})
_PUBLIC_PATHS = frozenset({"/login", "/manifest.webmanifest", "/offline", "/service-worker.js", *_PROBES})
_PUBLIC_PREFIXES = ("/static/", CALLBACK_PREFIX)
_FORM_TYPE = "application/x-www-form-urlencoded"
_MAX_FORM_BYTES = 1_000_000
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self';"
        " manifest-src 'self'; worker-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}


def cookie_name(*, is_secure: bool, port: int) -> str:
    """Browsers keep cookies by host, not by port, so two gateways on one machine need two names."""
    return f"__Host-palaver-{port}" if is_secure else f"palaver-{port}"


def login_secret(scheme: str, headers: Headers, address: Address) -> str | None:
    return _cookies(headers).get(cookie_name(is_secure=address.is_secure(scheme), port=address.port))


def caller_of(request: Request) -> Caller:
    return request.scope[SCOPE_CALLER]


def caller_or_none(request: Request) -> Caller | None:
    return request.scope.get(SCOPE_CALLER)


@dataclass(frozen=True)
class AuthMiddleware:
    """Wraps the whole application, so that no page can forget it."""

    app: ASGIApp
    auth: Authenticator
    address: Address
    limits: WebLimits
    open_requests: OpenRequests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        headers = Headers(scope=scope)
        shared = self._shared_origin(scope, headers)
        response = _ResponseHeaders(send, _cors_headers(shared) if shared else {})
        try:
            with answering_request():
                await self._answer(scope, headers, receive, response.send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the last handler before the server
            log_error(log, "a request failed", error, {"action": "web.error"})
            if not response.has_started:
                await text_response(scope["path"], 500, INTERNAL_ERROR)(scope, receive, response.send)

    def _shared_origin(self, scope: Scope, headers: Headers) -> str | None:
        """Return the origin of a foreign page that can use the API, if the request comes from one."""
        origin = headers.get("origin")
        is_api = scope["path"].startswith((API_PREFIX, OPENAI_PREFIX))
        return origin if is_api and origin in self.address.origins else None

    async def _answer(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        try:
            refusal = self._check_origin(scope, headers) or await self._authenticate(scope, headers)
        except (NoAccess, StoreUnavailable) as error:
            refusal = error_response(scope["path"], error)
        except StoreError:
            refusal = text_response(scope["path"], 503, STORE_AWAY)
        caller: Caller | None = scope.get(SCOPE_CALLER)
        receive = TimedBody(receive, self.limits.body_seconds if caller else STRANGER_SECONDS).receive
        if refusal or caller is None:
            await (refusal or self.app)(scope, receive, send)
        else:
            await self._answer_caller(caller, scope, headers, receive, send)

    async def _answer_caller(
        self, caller: Caller, scope: Scope, headers: Headers, receive: Receive, send: Send
    ) -> None:
        try:
            with self.open_requests.count(caller.key.number):
                receive, refusal = await self._check_csrf(caller, scope, headers, receive)
                await (refusal or self.app)(scope, receive, send)
        except (TooLarge, BodyTooSlow, TooManyRequests) as error:
            await error_response(scope["path"], error)(scope, receive, send)

    def _check_origin(self, scope: Scope, headers: Headers) -> Response | None:
        """Refuse requests to foreign host names, and changes requested by foreign pages."""
        if scope["path"] in _PROBES or scope["path"].startswith(CALLBACK_PREFIX):
            return None  # called under any name, a container's too, and without a login
        host = headers.get("host", "")
        if not self.address.accepts_host(host):
            text = f"This gateway is not served under this name. Use {self.address.url}"
            return text_response(scope["path"], 421, text)
        if self._shared_origin(scope, headers):
            return _preflight(headers) if scope["method"] == "OPTIONS" else None
        if scope["method"] in _SAFE_METHODS:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if site not in {"same-origin", "none"} or (origin is not None and not self.address.is_own_origin(origin, host)):
            return text_response(scope["path"], 403, "Only this gateway's own pages can do this.")
        return None

    async def _authenticate(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] in _PUBLIC_PATHS or scope["path"].startswith(_PUBLIC_PREFIXES):
            return None
        if self.auth.store.is_away:
            raise StoreUnavailable("PostgreSQL has not answered for a while")
        caller = await self._find_caller(scope, headers)
        if caller is None:
            return _login_required(scope, headers)
        scope[SCOPE_CALLER] = caller
        return None

    async def _find_caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """A token wins over the cookie that a browser sends along."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if token:
            return await self.auth.by_token(token.strip()) if kind.lower() == "bearer" else None
        if self._shared_origin(scope, headers):
            return None  # a foreign page never acts with a person's login
        secret = login_secret(scope["scheme"], headers, self.address)
        return await self.auth.by_login(secret) if secret else None

    async def _check_csrf(
        self, caller: Caller, scope: Scope, headers: Headers, receive: Receive
    ) -> tuple[Receive, Response | None]:
        """Refuse a change made with a login unless it carries the CSRF token of one of our pages."""
        if scope["method"] in _SAFE_METHODS or caller.csrf is None:
            return receive, None
        token = headers.get(CSRF_HEADER)
        if token is None and headers.get("content-type", "").partition(";")[0].strip() == _FORM_TYPE:
            body = await read_at_most(Request(scope, receive).stream(), _MAX_FORM_BYTES)
            token = parse_qs(body.decode(errors="replace")).get(CSRF_FIELD, [None])[0]
            receive = replay_body(body, receive)
        if token is not None and hmac.compare_digest(token.encode(), caller.csrf.encode()):
            return receive, None
        return receive, text_response(scope["path"], 403, "This form has expired. Reload the page.")


def _login_required(scope: Scope, headers: Headers) -> Response:
    if scope["method"] in _SAFE_METHODS and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        wanted = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
        return RedirectResponse(f"/login?next={wanted}", status_code=303)
    text = "Log in, or send a token: Authorization: Bearer pal_…"
    return text_response(scope["path"], 401, text, headers={"www-authenticate": "Bearer"})


def _cookies(headers: Headers) -> Mapping[str, str]:
    """Other programs on the same host can set cookies too, in headers of their own."""
    return cookie_parser("; ".join(headers.getlist("cookie")))


def _cors_headers(origin: str) -> Mapping[str, str]:
    exposed = "x-palaver-session, x-palaver-message, retry-after, x-should-retry"
    return {"access-control-allow-origin": origin, "access-control-expose-headers": exposed, "vary": "origin"}


def _preflight(headers: Headers) -> Response:
    """Answer a browser that asks what a foreign page can send. Every request still needs a token."""
    allowed = {
        "access-control-allow-methods": "GET, POST, PATCH, DELETE",
        "access-control-allow-headers": headers.get("access-control-request-headers", ""),
        "access-control-max-age": "600",
    }
    return Response(status_code=204, headers=allowed)


class _ResponseHeaders:
    def __init__(self, send: Send, more: Mapping[str, str]) -> None:
        self._send = send
        self._headers = {**_HEADERS, **more}
        self.has_started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            headers = MutableHeaders(scope=message)
            for name, value in self._headers.items():
                headers.setdefault(name, value)
        await self._send(message)
