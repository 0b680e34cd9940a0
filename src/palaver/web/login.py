"""Coming and going: login, logout, and what may be asked by anybody."""

import asyncio
import math
from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from palaver.model.errors import StoreError
from palaver.model.text import one_line
from palaver.model.turn import account_text
from palaver.store.people.api_tokens import Right
from palaver.web.auth_middleware import FailureLimiter, cookie_name, login_secret
from palaver.web.caller import Caller
from palaver.web.pages.base import render
from palaver.web.routes import deed, page
from palaver.web.services import Services
from palaver.web.sse import stream
from palaver.web.tokens import LOGIN_FOR

__all__ = [
    "routes",
]

_LONGEST_NAME = 100
_LONGEST_CODE = 200
_LONGEST_FORM = 10_000
_WRONG = "This code is wrong, was used before, or has ended."


def routes(services: Services) -> list[Route]:
    """Whatever is no page of its own."""
    entry = _Entry(services)

    async def events(request: Request, caller: Caller) -> Response:
        return stream(request, caller, services.hub, services.auth)

    return [
        Route("/health", _alive),
        Route("/ready", entry.ready),
        Route("/login", entry.show, methods=["GET"]),
        Route("/login", entry.log_in, methods=["POST"]),
        deed("/logout", entry.log_out, needs=Right.READ),
        page("/events", events),
        page("/metrics", entry.metrics, for_owner=True),
    ]


async def _alive(_: Request) -> Response:
    return PlainTextResponse("ok\n")


class _Entry:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._attempts = FailureLimiter()

    async def ready(self, _: Request) -> Response:
        """Whether the store answers and takes, and every account is served, here or elsewhere; nothing more."""
        try:
            accounts = await self._services.store.read(
                self._services.store.accounts.list_health(self._services.clock.now())
            )
        except StoreError:
            return PlainTextResponse("the store does not answer\n", status_code=503)
        if self._services.store.has_refused:
            return PlainTextResponse("the store does not take what is written\n", status_code=503)
        served = {account_text(each.platform, each.account) for each in accounts if each.worker is not None}
        if not self._services.engine.health.keys() <= served:
            return PlainTextResponse("an account is not served\n", status_code=503)
        return PlainTextResponse("ok\n")

    async def show(self, request: Request) -> Response:
        return render(request, "login.html", None, next=_place(request.query_params.get("next")), problem="")

    async def log_in(self, request: Request) -> Response:
        form = await _fields(request)
        code, wanted = form.get("code", [""])[0], _place(form.get("next", [""])[0])
        address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
        browser = one_line(request.headers.get("user-agent", ""), _LONGEST_NAME)
        found = await self._services.auth.log_in(code, browser) if len(code) <= _LONGEST_CODE else None
        if found is None and await self._is_in(request):
            return RedirectResponse(wanted, status_code=303)
        if found is None:
            wait = self._attempts.wait(address, now)
            self._attempts.failed(address, now)
            return _wrong(request, wanted, math.ceil(wait))
        answer = RedirectResponse(wanted, status_code=303)
        self._set_cookie(request, answer, found[0], int(LOGIN_FOR.total_seconds()))
        return answer

    async def _is_in(self, request: Request) -> bool:
        """A link that was opened before, as out of the history, leads whom it has let in where it led them then."""
        secret = login_secret(request.scope["scheme"], request.headers, self._services.address)
        return secret is not None and await self._services.auth.by_login(secret) is not None

    async def log_out(self, request: Request, caller: Caller) -> Response:
        await self._services.auth.log_out(caller)
        answer = RedirectResponse("/login", status_code=303)
        self._set_cookie(request, answer, "", 0)
        return answer

    def _set_cookie(self, request: Request, answer: Response, secret: str, seconds: int) -> None:
        is_secure = self._services.address.is_secure(request.url.scheme)
        name = cookie_name(is_secure=is_secure, port=self._services.address.port)
        answer.set_cookie(name, secret, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="lax")

    async def metrics(self, _: Request, __: Caller) -> Response:
        if self._services.metrics is None:
            return PlainTextResponse(
                "Metrics need prometheus-client: pip install 'palaver[metrics]'\n", status_code=404
            )
        return Response(self._services.metrics(), media_type="text/plain; version=0.0.4")


def _wrong(request: Request, wanted: str, wait: int) -> Response:
    """A right code is let in however many were wrong: nobody guesses one, and nobody is locked out by who tries."""
    if not wait:
        return render(request, "login.html", None, status=401, next=wanted, problem=_WRONG)
    problem, after = f"Too many codes were wrong: try again in {wait} seconds.", {"retry-after": str(wait)}
    return render(request, "login.html", None, status=429, headers=after, next=wanted, problem=problem)


async def _fields(request: Request) -> Mapping[str, list[str]]:
    """Of a form that anybody may send: so not much of it is read."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _LONGEST_FORM:
            raise HTTPException(413, "This is more than a code.")
    return parse_qs(body.decode(errors="replace"))


def _place(wanted: str | None) -> str:
    """A page of ours; nothing else is gone to after a login."""
    text = wanted or "/"
    parts = urlsplit(text)
    is_ours = text.startswith("/") and not text.startswith(("//", "/\\")) and not parts.netloc and text.isprintable()
    return text if is_ours and "\\" not in text else "/"
