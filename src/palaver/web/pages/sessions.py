"""Sessions: every conversation that the visitor may see, the newest first, as it changes."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.lifecycle import SessionState
from palaver.store.status.session_list import ListFilter
from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import asked, keep_query, show
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Sessions", path="/sessions", place=10)
_PAGE = 50
_STATES = {state.value: state for state in SessionState}


def routes(services: Services) -> list[Route]:
    async def listed(request: Request, caller: Caller) -> Response:
        wanted, after = _wanted(request), asked(request, "after") or None
        found = await services.read(
            caller,
            lambda principal: services.store.session_list.list_sessions(
                principal, wanted=wanted, after=after, limit=_PAGE
            ),
        )
        return show(
            services,
            request,
            "sessions.html",
            caller,
            previews=found.previews,
            next=found.after and keep_query(request, after=found.after),
            first=keep_query(request, after="") if after else None,
            asked={name: asked(request, name) for name in ("title", "platform", "person", "state")},
            platforms=sorted(services.platforms),
            states=[("", "open or ended"), *((name, name) for name in _STATES)],
        )

    return [page("/sessions", listed)]


def _wanted(request: Request) -> ListFilter:
    return ListFilter(
        platform=asked(request, "platform").lower() or None,
        person=asked(request, "person") or None,
        title=asked(request, "title") or None,
        state=_STATES.get(asked(request, "state")),
    )
