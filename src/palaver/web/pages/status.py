"""Pages on how the gateway is doing: open turns, platforms, doctor and log."""

import asyncio
from datetime import timedelta

from starlette.responses import Response

from palaver.model.log_line import LogFilter, LogLevel
from palaver.web.pages.common import query_value, show_page
from palaver.web.routes import WebRequest, page

_MAX_TURNS = 200
_MAX_LINES = 300
_MAX_SCANNED = 5_000
"""Lines whose actions can be picked."""
_AGES = {"15m": timedelta(minutes=15), "1h": timedelta(hours=1), "1d": timedelta(days=1), "7d": timedelta(days=7)}
_AGE_WORDS = {"15m": "15 minutes", "1h": "hour", "1d": "day", "7d": "7 days"}


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


@page("/logs", owner_only=True)
async def logs(request: WebRequest) -> Response:
    """Show the newest lines of the log, filtered by level, action and age."""
    level, age = query_value(request, "level"), query_value(request, "since")
    wanted = LogFilter(
        level=LogLevel(level) if level in {*LogLevel} else LogLevel.INFO,
        action=query_value(request, "action"),
        since=request.now - _AGES[age] if age in _AGES else None,
    )
    read = request.services.read_log
    found = await asyncio.to_thread(read, wanted, _MAX_LINES)
    others = await asyncio.to_thread(read, LogFilter(), _MAX_SCANNED)
    actions = sorted({line.action for line in others if line.action} | {wanted.action} - {""})
    return show_page(
        request,
        "logs.html",
        lines=found[::-1],
        wanted=wanted,
        age=age,
        levels=[(each.value, f"{each.value} and above") for each in LogLevel],
        actions=[("", "every action"), *((each, each) for each in actions)],
        ages=[("", "any time"), *((name, f"the last {words}") for name, words in _AGE_WORDS.items())],
        is_kept=request.services.config().log.keep_megabytes > 0,
    )


ROUTES = (turns, platforms, doctor, logs)
