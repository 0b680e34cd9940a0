"""Platforms: how each account of ours is doing, and everything that a doctor can look at."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.web.pages.base import Link
from palaver.web.pages.parts import show
from palaver.web.routes import page
from palaver.web.services import Desk
from palaver.web.visitor import Visitor

__all__ = ["LINK", "routes"]

LINK = Link(title="Platforms", path="/platforms", place=50, for_owner=True)


def routes(desk: Desk) -> list[Route]:
    # A look at everything reads all there is: one at a time.
    alone = asyncio.Lock()

    async def platforms(request: Request, visitor: Visitor) -> Response:
        _refuse_others(visitor)
        accounts = await desk.store.read(desk.store.accounts.health(desk.clock.now()))
        homes = await desk.store.read(desk.store.accounts.all_homes())
        waiting, due = await desk.store.read(desk.store.inbox.depth()), await desk.store.read(desk.store.outbox.depth())
        return show(desk, request, "platforms.html", visitor, accounts=accounts, homes=homes, waiting=waiting, due=due)

    async def doctor(request: Request, visitor: Visitor) -> Response:
        _refuse_others(visitor)
        async with alone:
            checks = await desk.examine()
        return show(desk, request, "doctor.html", visitor, checks=sorted(checks, key=lambda check: check.ok))

    return [page("/platforms", platforms), page("/doctor", doctor)]


def _refuse_others(visitor: Visitor) -> None:
    if not visitor.is_owner:
        raise HTTPException(403, "This is for the owner of the gateway.")
