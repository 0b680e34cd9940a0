"""The ASGI application: every page and every endpoint behind one authentication middleware.

For authors of pages
--------------------
A page is a module in `web/pages/` with its routes in `ROUTES`, listed in `PAGES` below. `NAVIGATION` in
`pages/common.py` lists those that every page links to.

    @page("/sessions/{name}")
    async def show_session(request: WebRequest) -> Response:
        session = await request.read(lambda who: request.store.sessions.find(request.path["name"], who))
        return show_page(request, "session.html", session=session)

    ROUTES = (show_session,)

- Access: `page` (GET) needs the scope READ, `action` (POST) MANAGE, unless `needs=` says otherwise. The middleware has
  already checked the login or token, the host name, the origin and the CSRF token.
- Reading: use `request.read(…)` with a store function that takes the principal. There is no other way to
  anybody's messages.
- Changing: use `request.write(…)` for one transaction; `request.services.engine.receive(inbound, Trust())` to send a
  message, which is stored when it returns.
- Templates extend `layout.html`. Everything is escaped; never use `| safe`; pass text of others through `| shown`. A
  form carries `<input type="hidden" name="csrf" value="{{ user.csrf }}">`; with `data-quiet` the script sends it
  without leaving the page, with `data-ask="Really?"` it asks first. Inline scripts and styles are forbidden.
- Live updates: the script fetches `<section id="list" data-live="sessions">` again when a topic changes, one of
  `event_hub.TOPICS` or `session:<id>`, and changes only what differs. Rows have ids, and so have their buttons: else
  what has the focus becomes that of the next row. Call `hub.hint("people")` after a change that no transcript, turn or
  send shows. A growing answer arrives as the event `palaver:draft` on `document` with `detail` {session, turn, text}.
- Errors: raise the model's errors. NotFound becomes 404, InvalidInput 400, NotAllowed 403, SessionBusy 409, an outage
  503, anything else 500 without its text.
"""

from http import HTTPStatus

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Route

from palaver.model.errors import PalaverError
from palaver.web import callbacks, files, install, login
from palaver.web.api import openapi
from palaver.web.auth_middleware import AuthMiddleware, caller_or_none
from palaver.web.errors import API_PREFIX, OPENAI_PREFIX, error_response, error_text, headers_of, status_of
from palaver.web.limits import OpenRequests
from palaver.web.mcp import endpoint as mcp
from palaver.web.openai import endpoint as openai
from palaver.web.pages import (
    chat,
    chat_actions,
    chat_list,
    explain,
    home,
    jobs,
    memory,
    messages,
    palette,
    people,
    processes,
    search,
    sessions,
    setting_accounts,
    setting_data,
    setting_model,
    setting_tools,
    settings,
    status,
    usage,
)
from palaver.web.pages.common import render
from palaver.web.services import Services

PAGES = (
    *(chat_list, chat_actions, chat, explain, home, jobs, memory, messages, palette, people, processes, search),
    *(sessions, status, usage, setting_accounts, setting_data, setting_model, setting_tools, settings),
)
_TITLES = {
    400: "Invalid request",
    403: "Not allowed",
    404: "Not found",
    408: "Too slow",
    409: "Busy",
    429: "Too many requests",
    503: "Try again later",
}


def make_app(services: Services) -> AuthMiddleware:
    parts = (login, install, callbacks, *PAGES, openapi, openai, mcp, files)
    routes = [route for part in parts for route in part.ROUTES]
    handlers = dict.fromkeys((PalaverError, HTTPException, Exception), _show_error)
    app = Starlette(routes=routes, exception_handlers=handlers)
    app.state.services = services
    limits = services.limits
    return AuthMiddleware(app, services.auth, services.address, limits, OpenRequests(limits.connections))


async def _show_error(request: Request, error: Exception) -> Response:
    response = _error_response(request, error)
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers["allow"] = ", ".join(sorted(_methods(request)))
    return response


def _methods(request: Request) -> set[str]:
    """Return the methods of every route with this path; the router names those of the first one only."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return {method for methods in found for method in methods}


def _error_response(request: Request, error: Exception) -> Response:
    if request.url.path.startswith((API_PREFIX, OPENAI_PREFIX)):
        return error_response(request.url.path, error)
    status, text = status_of(error), error_text(error)
    if "text/html" not in request.headers.get("accept", ""):
        return JSONResponse({"error": text}, status_code=status, headers=headers_of(error))
    title = _TITLES.get(status, "Something went wrong")
    response = render(request, "problem.html", caller_or_none(request), status=status, title=title, problem=text)
    response.headers.update(headers_of(error) or {})
    return response
