"""The first page: that the gateway is there, and how its accounts are."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.web.caller import Caller
from palaver.web.pages.base import Link, render
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Home", path="/", place=0)


def routes(services: Services) -> list[Route]:
    async def home(request: Request, caller: Caller) -> Response:
        health = (
            await services.store.read(services.store.accounts.list_health(services.clock.now()))
            if caller.is_owner
            else []
        )
        recent = await services.read(
            caller, lambda principal: services.store.session_list.recent_sessions(principal, 10)
        )
        return render(request, "home.html", caller, accounts=health, recent=recent)

    return [page("/", home)]
