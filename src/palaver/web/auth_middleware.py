"""The guard: what every request has to show before anything else sees it, and what every answer carries."""

import hmac
import logging
from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.engine.retry import log_error
from palaver.model.errors import StoreError
from palaver.web.address import Address
from palaver.web.bodies import again
from palaver.web.caller import Caller
from palaver.web.errors import IN, UNTOLD, refusal
from palaver.web.tokens import Authenticator

__all__ = [
    "CSRF_FIELD",
    "CSRF_HEADER",
    "AuthMiddleware",
    "FailureLimiter",
    "caller_of",
    "caller_or_none",
    "cookie_name",
    "login_secret",
]

log = logging.getLogger(__name__)

_MOST_ADDRESSES = 10_000


@dataclass
class FailureLimiter:
    """Failures of the last minute. Times are seconds of any clock that never goes back."""

    each: int = 5
    everybody: int | None = 100
    """None where those at one address do not count against those at another."""
    window: float = 60.0
    _all: deque[float] = field(default_factory=deque[float])
    _by_address: "OrderedDict[str, deque[float]]" = field(default_factory=OrderedDict)

    def wait(self, address: str, now: float) -> float:
        """For how many seconds whoever fails at this address is told to wait; 0 where they need not."""
        own = self._by_address.get(address, deque())
        return max(self._left(own, self.each, now), self._left(self._all, self.everybody, now))

    def failed(self, address: str, now: float) -> None:
        own = self._by_address.setdefault(address, deque())
        self._by_address.move_to_end(address)
        while len(self._by_address) > _MOST_ADDRESSES:
            self._by_address.popitem(last=False)
        for failures, most in ((own, self.each), (self._all, self.everybody or 0)):
            failures.append(now)
            while len(failures) > most:
                failures.popleft()

    def _left(self, failures: deque[float], most: int | None, now: float) -> float:
        return max(0.0, failures[0] + self.window - now) if most and len(failures) >= most else 0.0


CSRF_HEADER = "x-csrf-token"
CSRF_FIELD = "csrf"
_CALLER = "palaver.caller"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OPEN = frozenset({"/login", "/health", "/ready"})
_OPEN_FOLDERS = ("/static/", IN)
_FORM = "application/x-www-form-urlencoded"
_LONGEST_FORM = 1_000_000
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


def cookie_name(*, is_secure: bool, port: int) -> str:
    """Browsers keep cookies by host and not by port, so that two gateways on one machine need two names."""
    return f"__Host-palaver-{port}" if is_secure else f"palaver-{port}"


def login_secret(scheme: str, headers: Headers, address: Address) -> str | None:
    """Of the login that a browser shows."""
    return _cookies(headers).get(cookie_name(is_secure=address.is_secure(scheme), port=address.port))


def caller_of(request: Request) -> Caller:
    return request.scope[_CALLER]


def caller_or_none(request: Request) -> Caller | None:
    return request.scope.get(_CALLER)


@dataclass(frozen=True)
class AuthMiddleware:
    """Wraps the whole application, so that a page cannot forget it."""

    app: ASGIApp
    auth: Authenticator
    address: Address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        answering = _Answering(send)
        try:
            await self._answer(scope, receive, answering.send)
        except ClientDisconnect:
            return  # and nobody is there to be told
        except Exception as error:  # noqa: BLE001 - whatever it is, it is ours to say
            log_error(log, "a request broke", error, {"action": "web.error"})
            if not answering.has_begun:
                await refusal(scope["path"], 500, UNTOLD)(scope, receive, answering.send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        try:
            answer = self._refused(scope, headers) or await self._unknown(scope, headers)
        except StoreError:
            answer = refusal(scope["path"], 503, "The store does not answer: try again later.")
        if answer is None:
            receive, answer = await self._forged(scope, headers, receive)
        await (answer or self.app)(scope, receive, send)

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        """What a browser would not send by itself, or only for somebody else's page."""
        if scope["path"].startswith(IN):
            return None  # it is for machines, which come under any name and without a login
        host = headers.get("host", "")
        if not self.address.answers_to(host):
            words = f"This gateway does not answer to this name; allowed: {self.address.url}"
            return refusal(scope["path"], 421, words)
        if scope["method"] in _SAFE:
            return None
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "same-origin")
        if site not in {"same-origin", "none"} or (origin is not None and not self.address.is_own(origin, host)):
            return refusal(scope["path"], 403, "Only pages of this gateway may ask for this.")
        return None

    async def _unknown(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] in _OPEN or scope["path"].startswith(_OPEN_FOLDERS):
            return None
        caller = await self._find_caller(scope, headers)
        if caller is None:
            return _turned_away(scope, headers)
        scope[_CALLER] = caller
        return None

    async def _find_caller(self, scope: Scope, headers: Headers) -> Caller | None:
        """A token counts alone: whoever shows one does not use the cookie that a browser may send along."""
        kind, _, token = headers.get("authorization", "").partition(" ")
        if token:
            return await self.auth.by_token(token.strip()) if kind.lower() == "bearer" else None
        secret = login_secret(scope["scheme"], headers, self.address)
        return await self.auth.by_login(secret) if secret else None

    async def _forged(self, scope: Scope, headers: Headers, receive: Receive) -> tuple[Receive, Response | None]:
        """Whether something is done with a login that no page of ours has asked for."""
        caller: Caller | None = scope.get(_CALLER)
        if scope["method"] in _SAFE or caller is None or caller.csrf is None:
            return receive, None
        shown = headers.get(CSRF_HEADER)
        if shown is None and headers.get("content-type", "").partition(";")[0].strip() == _FORM:
            body = await _body(receive)
            shown = _field(body)
            receive = again(body, receive)
        if shown is not None and hmac.compare_digest(shown.encode(), caller.csrf.encode()):
            return receive, None
        return receive, refusal(scope["path"], 403, "The form is too old: load the page again.")


def _turned_away(scope: Scope, headers: Headers) -> Response:
    if scope["method"] in _SAFE and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        wanted = quote(scope["path"] + (f"?{query}" if query else ""), safe="")
        return RedirectResponse(f"/login?next={wanted}", status_code=303)
    words = "This needs a login, or a token; for example: Authorization: Bearer pal_…"
    return refusal(scope["path"], 401, words, headers={"www-authenticate": "Bearer"})


def _cookies(headers: Headers) -> Mapping[str, str]:
    """Also beside what other programs on the same host have set."""
    return cookie_parser("; ".join(headers.getlist("cookie")))


async def _body(receive: Receive) -> bytes:
    body, more = b"", True
    while more and len(body) <= _LONGEST_FORM:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _field(body: bytes) -> str | None:
    if len(body) > _LONGEST_FORM:
        return None
    return parse_qs(body.decode(errors="replace")).get(CSRF_FIELD, [None])[0]


class _Answering:
    """One answer on its way out."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_begun = True
            headers = MutableHeaders(scope=message)
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
            headers.setdefault("cache-control", "no-store")
        await self._send(message)
