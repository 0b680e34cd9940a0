"""Pages on how the gateway is doing: open turns, platforms and doctor."""

from starlette.responses import Response

from palaver.web.pages.common import show_page
from palaver.web.routes import WebRequest, page

_MAX_TURNS = 200


@page("/turns")
async def turns(request: WebRequest) -> Response:
    found = await request.read(lambda principal: request.store.overview.list_open_turns(principal, _MAX_TURNS))
    parked = [item for item in found if item.question]
    running = [item for item in found if not item.question]
    titles = await request.store.read(request.store.session_list.name_sessions(item.session for item in found))
    return show_page(request, "turns.html", parked=parked, running=running, titles=titles)


@page("/platforms", owner_only=True)
async def platforms(request: WebRequest) -> Response:
    store = request.store
    return show_page(
        request,
        "platforms.html",
        accounts=await store.read(store.accounts.list_health(request.now)),
        homes=await store.read(store.accounts.list_configured_homes()),
        waiting=await store.read(store.inbox.count_waiting()),
        due=await store.read(store.outbox.count_due()),
        clock_problem=request.services.engine.clock_problem,
    )


@page("/doctor", owner_only=True)
async def doctor(request: WebRequest) -> Response:
    async with request.services.examining:
        checks = await request.services.examine()
    problems = await request.store.read(request.store.problems.list_problems(request.now))
    return show_page(request, "doctor.html", checks=sorted(checks, key=lambda check: check.ok), problems=problems)


ROUTES = (turns, platforms, doctor)
