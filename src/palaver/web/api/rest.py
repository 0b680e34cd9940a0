"""The API under /api/v1: everything that is in its table, and the document that describes it."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from palaver import __version__
from palaver.web.api import messages, overview, people, sessions, turns
from palaver.web.api.endpoints import PREFIX, route_of
from palaver.web.api.openapi import document
from palaver.web.caller import Caller
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["ENDPOINTS", "routes"]

ENDPOINTS = (
    *sessions.ENDPOINTS,
    *messages.ENDPOINTS,
    *turns.ENDPOINTS,
    *people.ENDPOINTS,
    *overview.ENDPOINTS,
)


def routes(services: Services) -> list[Route]:
    async def described(_: Request, __: Caller) -> Response:
        return JSONResponse(document(ENDPOINTS, __version__, services.address.url))

    return [page(f"{PREFIX}/openapi.json", described), *(route_of(endpoint, services) for endpoint in ENDPOINTS)]
