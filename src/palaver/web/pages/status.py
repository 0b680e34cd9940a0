"""Pages on how the gateway is doing: home, open turns, platforms and doctor."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from palaver.model.turn import TurnState
from palaver.web.caller import Caller
from palaver.web.pages.common import Link, render, show_page
from palaver.web.routes import page
from palaver.web.services import Services

LINKS = (
    Link(title="Home", path="/", order=0),
    Link(title="Turns", path="/turns", order=30),
    Link(title="Platforms", path="/platforms", order=50, owner_only=True),
)
_RECENT_SESSIONS = 10
_MAX_TURNS = 200


def routes(services: Services) -> list[Route]:
    store = services.store
    doctor_lock = asyncio.Lock()  # the checks read everything: run them one at a time

    async def home(request: Request, caller: Caller) -> Response:
        accounts = await store.read(store.accounts.list_health(services.clock.now())) if caller.is_owner else []
        recent = await services.read(
            caller, lambda principal: store.session_list.recent_sessions(principal, _RECENT_SESSIONS)
        )
        return render(request, "home.html", caller, accounts=accounts, recent=recent)

    async def turns(request: Request, caller: Caller) -> Response:
        found = await services.read(caller, lambda principal: store.overview.list_open_turns(principal, _MAX_TURNS))
        parked = [item for item in found if item.turn.state is TurnState.PARKED]
        running = [item for item in found if item.turn.state is not TurnState.PARKED]
        return show_page(services, request, "turns.html", caller, parked=parked, running=running)

    async def platforms(request: Request, caller: Caller) -> Response:
        return show_page(
            services,
            request,
            "platforms.html",
            caller,
            accounts=await store.read(store.accounts.list_health(services.clock.now())),
            homes=await store.read(store.accounts.list_all_homes()),
            waiting=await store.read(store.inbox.count_waiting()),
            due=await store.read(store.outbox.count_due()),
        )

    async def doctor(request: Request, caller: Caller) -> Response:
        async with doctor_lock:
            checks = await services.examine()
        return show_page(services, request, "doctor.html", caller, checks=sorted(checks, key=lambda check: check.ok))

    return [
        page("/", home),
        page("/turns", turns),
        page("/platforms", platforms, owner_only=True),
        page("/doctor", doctor, owner_only=True),
    ]
