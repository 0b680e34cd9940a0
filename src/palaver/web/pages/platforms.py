"""Platforms: how each account of ours is doing, and everything that a doctor can look at."""

import asyncio

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.web.caller import Caller
from palaver.web.pages.base import Link
from palaver.web.pages.parts import show
from palaver.web.routes import page
from palaver.web.services import Services

__all__ = ["LINK", "routes"]

LINK = Link(title="Platforms", path="/platforms", place=50, for_owner=True)


def routes(services: Services) -> list[Route]:
    # A look at everything reads all there is: one at a time.
    alone = asyncio.Lock()

    async def platforms(request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        accounts = await services.store.read(services.store.accounts.list_health(services.clock.now()))
        homes = await services.store.read(services.store.accounts.list_all_homes())
        waiting, due = (
            await services.store.read(services.store.inbox.count_waiting()),
            await services.store.read(services.store.outbox.count_due()),
        )
        return show(
            services, request, "platforms.html", caller, accounts=accounts, homes=homes, waiting=waiting, due=due
        )

    async def doctor(request: Request, caller: Caller) -> Response:
        _refuse_others(caller)
        async with alone:
            checks = await services.examine()
        return show(services, request, "doctor.html", caller, checks=sorted(checks, key=lambda check: check.ok))

    return [page("/platforms", platforms), page("/doctor", doctor)]


def _refuse_others(caller: Caller) -> None:
    if not caller.is_owner:
        raise HTTPException(403, "This is for the owner of the gateway.")
