"""The window: how soon what was committed is in a browser, alone and with a thousand streams open."""

import asyncio
import resource
import statistics
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bench.measure import Bare, Figure, at_most, resident, set_aside
from bench.streams import Stream
from bench.workshop import Workshop
from palaver.model.addressing import ConversationRules
from palaver.model.key import Scope, derive_key
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.store.store import Store
from palaver.web.event_hub import Hub
from palaver.web.sse import event_stream
from palaver.web.tokens import Authenticator, issue_token
from tests.ports import free_port
from tests.store.opened import open_session

__all__ = ["push"]

_ROUNDS = 200
_STREAMS = 1000
_CROWDED_ROUNDS = 20
_SOURCE = Source(platform="web", chat_id="owner", user_id="owner")
_PATIENCE = 300.0


def push(workshop: Workshop) -> Iterator[Figure]:
    alone, crowded, bare, each = asyncio.run(_measured(workshop.folder / "window.db"))
    yield Figure(
        name="web.push",
        value=_p95(alone),
        bare=Bare(name="the commit alone", value=statistics.median(bare)),
        limit=at_most(0.2, goal=0.02),
        note=f"p95 of {_ROUNDS}, from before the commit until the event is read over HTTP",
    )
    yield Figure(
        name="web.push_1000",
        value=_p95(crowded),
        bare=Bare(name="the commit alone", value=statistics.median(bare)),
        limit=at_most(0.5, goal=0.2),
        note=f"until the last of {_STREAMS} streams has read it; {each / 1000:.0f} kB for both ends of a stream",
    )


def _p95(times: list[float]) -> float:
    return statistics.quantiles(times, n=20)[-1]


async def _measured(file: Path) -> tuple[list[float], list[float], list[float], float]:
    with suppress(ValueError):  # as many files as there may be
        resource.setrlimit(resource.RLIMIT_NOFILE, (2 * _STREAMS + 500, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    now = SystemClock().now
    async with _window(file) as (store, port, token), asyncio.timeout(_PATIENCE):
        key, rule = derive_key(_SOURCE, Scope()), ConversationRules().reset_rule(_SOURCE)
        await store.transact(open_session(key, _SOURCE, now(), rule))

        async def commit() -> float:
            entry = Entry(seq=0, role=Role.USER, at=now(), text="Some words that somebody has said.")
            start = time.perf_counter()
            await store.transact(store.transcript.append_outside_turn(key, entry))
            return start

        async def told(streams: list[Stream]) -> float:
            hearing = asyncio.gather(*(stream.entries() for stream in streams))
            start = await commit()
            await hearing
            return time.perf_counter() - start

        bare = [-await commit() + time.perf_counter() for _ in range(_ROUNDS)]
        one = await Stream.open(port, f"Bearer {token}")
        alone = [await told([one]) for _ in range(_ROUNDS)]
        set_aside()
        before = resident()
        many = [one, *[await Stream.open(port, f"Bearer {token}") for _ in range(_STREAMS - 1)]]
        each = (resident() - before) / _STREAMS
        crowded = [await told(many) for _ in range(_CROWDED_ROUNDS)]
        for stream in many:
            stream.close()
        return alone, crowded, bare, each


@asynccontextmanager
async def _window(file: Path) -> AsyncGenerator[tuple[Store, int, str]]:
    """Streams of a store in which nobody is at work."""
    async with await open_store(str(file), exclusive=True) as store:
        hub, auth = Hub(store, alone=True), Authenticator(store=store, clock=SystemClock())
        token, _ = await issue_token(store, SystemClock().now(), name="bench")

        async def events(request: Request) -> Response:
            caller = await auth.by_token(request.headers["authorization"].removeprefix("Bearer "))
            assert caller  # noqa: S101
            return event_stream(request, caller, hub, auth)

        app = Starlette(routes=[Route("/events", events)])
        port = free_port()
        server = uvicorn.Server(uvicorn.Config(app, port=port, log_level="error", lifespan="off"))
        tasks = [asyncio.create_task(each) for each in (hub.serve(), server.serve())]
        while not server.started:  # noqa: ASYNC110 - it says so by a flag
            await asyncio.sleep(0.01)
        try:
            yield store, port, token
        finally:
            hub.close()
            server.should_exit = True
            await tasks[1]
            tasks[0].cancel()
            await asyncio.wait({tasks[0]})
