"""Log in and out; health, readiness, metrics and the event stream of the pages."""

import asyncio
import math
from collections.abc import Awaitable, Sequence
from datetime import datetime
from typing import TypeVar
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from palaver.model.errors import StoreError
from palaver.model.source import account_text
from palaver.model.text import counted, one_line
from palaver.protocols.installation import install_line
from palaver.store.accounts import AccountHealth
from palaver.store.meta import write_nothing
from palaver.store.people.api_tokens import Right
from palaver.store.store import Store
from palaver.web.auth_middleware import cookie_name, login_secret
from palaver.web.bodies import read_at_most
from palaver.web.errors import STORE_DAMAGED
from palaver.web.pages.common import render
from palaver.web.routes import WebRequest, action, page, services_of
from palaver.web.services import Services
from palaver.web.sse import event_stream
from palaver.web.tokens import LOGIN_LIFETIME

T = TypeVar("T")

_MAX_BROWSER_NAME = 100
_MAX_CODE_LENGTH = 200
_PROBE_SECONDS = 2.0
_MAX_FORM_BYTES = 10_000
_WRONG_CODE = "This code is wrong, expired or already used."


@page("/events")
async def events(request: WebRequest) -> Response:
    return event_stream(request.http, request.caller, request.services.hub, request.services.auth)


@page("/metrics", owner_only=True)
async def metrics(request: WebRequest) -> Response:
    if request.services.metrics is None:
        text = f"Install prometheus-client to see metrics: {install_line('metrics')}\n"
        return PlainTextResponse(text, status_code=404)
    return Response(request.services.metrics(), media_type="text/plain; version=0.0.4")


async def _health(http: Request) -> Response:
    problem = services_of(http).engine.clock_problem
    return PlainTextResponse(f"ok\n{problem}\n" if problem else "ok\n")


async def _ready(http: Request) -> Response:
    problem = await _readiness_problem(services_of(http))
    return PlainTextResponse(f"{problem or 'ok'}\n", status_code=503 if problem else 200)


async def _readiness_problem(services: Services) -> str:
    """The store answers and accepts writes, the clock is right, and some gateway serves every account of this one."""
    store = services.store
    if store.is_stalled:
        return "the store confirms no writes"
    accounts = await _answer_of(store.read(store.accounts.list_health(services.clock.now())), store)
    if store.damage:
        return STORE_DAMAGED
    if accounts is None:
        return "the store does not answer"
    if store.refuses_writes and await _answer_of(store.transact(write_nothing()), store) is None:
        return "the store refuses writes"
    if services.engine.clock_problem:
        return services.engine.clock_problem
    known = {account_text(account.platform, account.account): account for account in accounts}
    missing = [known.get(name) for name in services.engine.health if name not in known or not known[name].worker]
    return _not_served(missing, services.clock.now()) if missing else ""


def _not_served(accounts: Sequence[AccountHealth | None], now: datetime) -> str:
    """Say what becomes of accounts that nobody serves; without their names, since everybody can ask."""
    held = [account.held_until for account in accounts if account and account.held_until]
    if not held:
        return "an account is not served"
    seconds = max(1, math.ceil((max(held) - now).total_seconds()))
    return f"an account is not served: a gateway that is gone holds it for {counted(seconds, 'more second')}"


async def _answer_of(asked: Awaitable[T], store: Store) -> T | None:
    """Return the answer of the store; None if it is away, fails or takes long."""
    task = asyncio.ensure_future(asked)
    if not store.is_away:
        await asyncio.wait({task}, timeout=_PROBE_SECONDS)
    if not task.done():
        task.cancel()  # which a server that is frozen does not answer: do not wait for it
        return None
    try:
        return task.result()
    except StoreError:
        return None


async def _show_login(http: Request) -> Response:
    return render(http, "login.html", None, next=_own_path(http.query_params.get("next")), problem="")


async def _log_in(http: Request) -> Response:
    # Anybody can send this form, so read no more of it than a code needs.
    form = parse_qs((await read_at_most(http.stream(), _MAX_FORM_BYTES)).decode(errors="replace"))
    code, target = form.get("code", [""])[0], _own_path(form.get("next", [""])[0])
    browser = one_line(http.headers.get("user-agent", ""), _MAX_BROWSER_NAME)
    found = await services_of(http).auth.log_in(code, browser) if len(code) <= _MAX_CODE_LENGTH else None
    response = RedirectResponse(target, status_code=303)
    if found is not None:
        _set_cookie(http, response, found[0], int(LOGIN_LIFETIME.total_seconds()))
    elif not await _is_logged_in(http):
        return _refuse(http, target)
    return response


async def _is_logged_in(http: Request) -> bool:
    """Somebody who opens a used link again, for example from the history, is logged in already."""
    services = services_of(http)
    secret = login_secret(http.scope["scheme"], http.headers, services.address)
    return secret is not None and await services.auth.by_login(secret) is not None


def _refuse(http: Request, target: str) -> Response:
    """Slow down guessing. A right code always works, so nobody can lock the owner out."""
    failures = services_of(http).login_failures
    address, now = http.client.host if http.client else "", asyncio.get_running_loop().time()
    wait = math.ceil(failures.retry_after(address, now))
    failures.record(address, now)
    if not wait:
        return render(http, "login.html", None, status=401, next=target, problem=_WRONG_CODE)
    problem, headers = f"Too many wrong codes. Try again in {wait} seconds.", {"retry-after": str(wait)}
    return render(http, "login.html", None, status=429, headers=headers, next=target, problem=problem)


@action("/logout", needs=Right.READ)
async def log_out(request: WebRequest) -> Response:
    await request.services.auth.log_out(request.caller)
    response = RedirectResponse("/login", status_code=303)
    _set_cookie(request.http, response, "", 0)
    return response


def _set_cookie(http: Request, response: Response, secret: str, seconds: int) -> None:
    address = services_of(http).address
    is_secure = address.is_secure(http.url.scheme)
    name = cookie_name(is_secure=is_secure, port=address.port)
    response.set_cookie(name, secret, max_age=seconds, path="/", secure=is_secure, httponly=True, samesite="lax")


def _own_path(target: str | None) -> str:
    """Return the target if it is a path of ours, else /: a login never redirects to another site."""
    path = target or "/"
    is_own = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_own else "/"


ROUTES = (
    Route("/health", _health),
    Route("/ready", _ready),
    Route("/login", _show_login, methods=["GET"]),
    Route("/login", _log_in, methods=["POST"]),
    *(log_out, events, metrics),
)
