"""Log in and out; health, readiness, metrics and the event stream of the pages."""

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
from palaver.web.pages.common import render
from palaver.web.routes import action, page
from palaver.web.services import Services
from palaver.web.sse import event_stream
from palaver.web.tokens import LOGIN_LIFETIME

_MAX_BROWSER_NAME = 100
_MAX_CODE_LENGTH = 200
_MAX_FORM_BYTES = 10_000
_WRONG_CODE = "This code is wrong, expired or already used."


def routes(services: Services) -> list[Route]:
    login = _Login(services)

    async def events(request: Request, caller: Caller) -> Response:
        return event_stream(request, caller, services.hub, services.auth)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def metrics(_: Request, __: Caller) -> Response:
        if services.metrics is None:
            text = "Install prometheus-client to see metrics: pip install 'palaver[metrics]'\n"
            return PlainTextResponse(text, status_code=404)
        return Response(services.metrics(), media_type="text/plain; version=0.0.4")

    async def ready(_: Request) -> Response:
        problem = await _readiness_problem(services)
        return PlainTextResponse(f"{problem or 'ok'}\n", status_code=503 if problem else 200)

    return [
        Route("/health", health),
        Route("/ready", ready),
        Route("/login", login.show, methods=["GET"]),
        Route("/login", login.log_in, methods=["POST"]),
        action("/logout", login.log_out, needs=Right.READ),
        page("/events", events),
        page("/metrics", metrics, owner_only=True),
    ]


async def _readiness_problem(services: Services) -> str:
    """The store answers and accepts writes, and some gateway serves every account of this one."""
    try:
        accounts = await services.store.read(services.store.accounts.list_health(services.clock.now()))
    except StoreError:
        return "the store does not answer"
    if services.store.refuses_writes:
        return "the store refuses writes"
    served = {account_text(account.platform, account.account) for account in accounts if account.worker is not None}
    return "" if services.engine.health.keys() <= served else "an account is not served"


class _Login:
    def __init__(self, services: Services) -> None:
        self._services = services
        self._failures = FailureLimiter()

    async def show(self, request: Request) -> Response:
        return render(request, "login.html", None, next=_own_path(request.query_params.get("next")), problem="")

    async def log_in(self, request: Request) -> Response:
        form = await _read_form(request)
        code, target = form.get("code", [""])[0], _own_path(form.get("next", [""])[0])
        browser = one_line(request.headers.get("user-agent", ""), _MAX_BROWSER_NAME)
        found = await self._services.auth.log_in(code, browser) if len(code) <= _MAX_CODE_LENGTH else None
        response = RedirectResponse(target, status_code=303)
        if found is not None:
            self._set_cookie(request, response, found[0], int(LOGIN_LIFETIME.total_seconds()))
        elif not await self._is_logged_in(request):
            return self._refuse(request, target)
        return response

    async def _is_logged_in(self, request: Request) -> bool:
        """Somebody who opens a used link again, for example from the history, is logged in already."""
        secret = login_secret(request.scope["scheme"], request.headers, self._services.address)
        return secret is not None and await self._services.auth.by_login(secret) is not None

    def _refuse(self, request: Request, target: str) -> Response:
        """Slow down guessing. A right code always works, so nobody can lock the owner out."""
        address, now = request.client.host if request.client else "", asyncio.get_running_loop().time()
        wait = math.ceil(self._failures.retry_after(address, now))
        self._failures.record(address, now)
        if not wait:
            return render(request, "login.html", None, status=401, next=target, problem=_WRONG_CODE)
        problem, headers = f"Too many wrong codes. Try again in {wait} seconds.", {"retry-after": str(wait)}
        return render(request, "login.html", None, status=429, headers=headers, next=target, problem=problem)

    async def log_out(self, request: Request, caller: Caller) -> Response:
        await self._services.auth.log_out(caller)
        response = RedirectResponse("/login", status_code=303)
        self._set_cookie(request, response, "", 0)
        return response

    def _set_cookie(self, request: Request, response: Response, secret: str, seconds: int) -> None:
        is_secure = self._services.address.is_secure(request.url.scheme)
        name = cookie_name(is_secure=is_secure, port=self._services.address.port)
        response.set_cookie(name, secret, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="lax")


async def _read_form(request: Request) -> Mapping[str, list[str]]:
    """Anybody can send this form, so read no more of it than a code needs."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM_BYTES:
            raise HTTPException(413, "The form is too large.")
    return parse_qs(body.decode(errors="replace"))


def _own_path(target: str | None) -> str:
    """Return the target if it is a path of ours, else /: a login never redirects to another site."""
    path = target or "/"
    parts = urlsplit(path)
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and not parts.netloc and path.isprintable()
    return path if is_own and "\\" not in path else "/"
