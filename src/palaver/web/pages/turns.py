"""Turns in flight: what is being worked on, what waits for somebody's permission, and how to stop it."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.lifecycle import TurnState
from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import show
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Turns", path="/turns", place=30)
_MOST = 200


def routes(services: Services) -> list[Route]:
    async def turns(request: Request, caller: Caller) -> Response:
        flights = await services.read(
            caller, lambda principal: services.store.overview.list_open_turns(principal, _MOST)
        )
        asks = [flight for flight in flights if flight.turn.state is TurnState.PARKED]
        others = [flight for flight in flights if flight.turn.state is not TurnState.PARKED]
        return show(services, request, "turns.html", caller, asks=asks, flights=others, most=_MOST)

    return [page("/turns", turns)]
