"""The application: every page and every part of the API behind one guard.

For authors of pages and of the API
-----------------------------------
A page is a module `web/pages/<name>.py`, a part of the API a module `web/api/<name>.py`. Each has a function
`routes(desk: Desk) -> list[Route]`, and is found by being there; a page that stands in the navigation has besides
`LINK = Link(title="Sessions", path="/sessions", place=10)`.

    def routes(desk: Desk) -> list[Route]:
        async def show(request: Request, visitor: Visitor) -> Response:
            found = await desk.read(visitor, lambda principal: desk.store.sessions.find(name, principal))
            return render(request, "session.html", visitor, session=found)

        async def stop(request: Request, visitor: Visitor) -> Response:
            form = await request.form()
            await desk.act(visitor, lambda principal: desk.store.turn_control.request_stop(key, now, by=principal.name))
            return RedirectResponse("/sessions", status_code=303)

        return [page("/sessions/{id}", show), deed("/sessions/{id}/stop", stop)]

- who: `visitor` has shown a key. `page` needs the right READ, `deed` (POST) MANAGE, unless `needs=` says otherwise;
  `door` takes other methods. The guard has checked name, login or token, origin and CSRF before: nothing to do.
- read: `desk.read(visitor, question)` with a work of the store that takes the principal: there is no other way to
  anybody's words. What the ports do not have yet is added to a Protocol in `ports/` and to the store.
- act: `desk.act(visitor, deed)` in one step with the verbs of the store and of the engine, as commands do; to say
  something in a conversation `desk.engine.receive(inbound, Trust())`, which is safe when it returns.
- show: templates in `web/templates/` extend `layout.html`; everything is escaped, `| safe` is not used; text of others
  goes through `| shown`. A form carries `<input type="hidden" name="csrf" value="{{ visitor.csrf }}">`; with
  `data-quiet` the script sends it without leaving the page, with `data-ask="Really?"` it asks before.
- push: `<section id="list" data-live="sessions">` is fetched again and replaced whenever its topic changes: one of
  `palaver.web.event_hub.TOPICS`, or `session:<id>` for the entries of one session. With `data-keyed` only
  those of its children that differ change, each known by its id. After a change that no entry, turn or
  send comes of, say `desk.hub.hint("people")`. A growing answer arrives as the event `palaver:draft` on `document`
  with `detail` {session, turn, text}. No inline script, no inline style: the policy forbids both.
- fail: raise what the domain raises. NotFound is 404, InvalidInput 400, NotAllowed 403, SessionBusy 409, an outage 503,
  whatever else 500 without its words: as a page for browsers, else as JSON `{"error": …}`.
"""

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from palaver.model.errors import PalaverError, StoreError
from palaver.web import api, callbacks, http, login, pages
from palaver.web.auth_middleware import AuthMiddleware, caller_or_none
from palaver.web.errors import API, OPENAI, problem, status_of, told
from palaver.web.pages.base import POSITION, Link, navigation, render
from palaver.web.services import Services

__all__ = ["make_app"]

_TITLES = {400: "That cannot be", 403: "Not allowed", 404: "Nothing here", 409: "Not now", 503: "Not now"}


def make_app(services: Services) -> AuthMiddleware:
    routes = [*login.routes(services), *callbacks.routes(services), *http.routes()]
    links: list[Link] = []
    for module in (*_modules(pages), *_modules(api)):
        routes += module.routes(services)
        links += [module.LINK] if hasattr(module, "LINK") else []
    navigation[:] = sorted(links, key=lambda link: link.place)
    app = Starlette(routes=routes, exception_handlers=dict.fromkeys((PalaverError, HTTPException, Exception), _failed))
    return AuthMiddleware(_Marked(app, services), services.auth, services.address)


class _Marked:
    """Before a page reads anything it is known how things stand, so that what happens meanwhile is pushed to it."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if "text/html" in Headers(scope=scope).get("accept", "") and caller_or_none(Request(scope)):
            with suppress(StoreError):  # whoever reads next says so
                scope.setdefault("state", {})[POSITION] = await self._services.hub.position()
        await self._app(scope, receive, send)


def _modules(package: ModuleType) -> Iterator[Any]:
    """Those of a package that have routes."""
    for found in iter_modules(package.__path__):
        module: Any = import_module(f"{package.__name__}.{found.name}")
        if hasattr(module, "routes"):
            yield module


async def _failed(request: Request, error: Exception) -> Response:
    if request.url.path.startswith((API, OPENAI)):
        return problem(request.url.path, error)
    status = status_of(error)
    words = told(error)
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": words}, status_code=status)
    title = _TITLES.get(status, "That went wrong")
    caller = caller_or_none(request)
    return render(request, "problem.html", caller, status=status, title=title, problem=words)
