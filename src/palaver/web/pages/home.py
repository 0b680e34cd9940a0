"""The first page: that the gateway is there, and how its accounts are."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.web.pages.base import Link, render
from palaver.web.routes import page
from palaver.web.services import Desk
from palaver.web.visitor import Visitor

__all__ = ["LINK", "routes"]

LINK = Link(title="Home", path="/", place=0)


def routes(desk: Desk) -> list[Route]:
    async def home(request: Request, visitor: Visitor) -> Response:
        health = await desk.store.read(desk.store.accounts.health(desk.clock.now())) if visitor.is_owner else []
        recent = await desk.read(visitor, lambda principal: desk.store.session_list.previews(principal, 10))
        return render(request, "home.html", visitor, accounts=health, recent=recent)

    return [page("/", home)]
