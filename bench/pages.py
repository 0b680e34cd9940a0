"""Pages of the dashboard over a store of 100,000 sessions, from the request to the last byte."""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx

from bench.measure import Bare, Figure, at_most, median_of
from bench.populate import person
from bench.reads import MANY
from bench.workshop import Workshop
from palaver.config.model import Config
from palaver.gateway.gateway import Gateway
from palaver.model.session import Principal
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.store.status import session_list
from palaver.web.tokens import issue_token
from tests.ports import free_port

__all__ = ["page_100k", "served"]

_ROUNDS = 60
_PAGE = 50
_OLDER = re.compile(r'href="([^"]+)" rel="next"')


def page_100k(workshop: Workshop) -> Iterator[Figure]:
    """The slowest of: the newest sessions, an older page, those of one person."""
    yield asyncio.run(_measured(workshop.copy(workshop.conversations(MANY))))


async def _measured(path: Path) -> Figure:
    config = Config(data_dir=path.parent, store=str(path))
    config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
    async with served(config) as client, await open_store(config.store) as store:
        older = _OLDER.search((await client.get("/sessions")).text)
        pages = ["/sessions", older[1].replace("&amp;", "&") if older else "", f"/sessions?person={person(7)}"]
        times = {page: await median_of(lambda page=page: client.get(page), rounds=_ROUNDS) for page in pages}
        work = session_list.list_sessions(Principal.operator(), limit=_PAGE)
        bare = await median_of(lambda: store.read(work), rounds=_ROUNDS)
    return Figure(
        name="web.page_100k",
        value=max(times.values()),
        bare=Bare(name="the list alone", value=bare),
        limit=at_most(0.1, goal=0.03),
        note="newest, older, of one person: " + ", ".join(f"{each * 1000:.1f} ms" for each in times.values()),
    )


@asynccontextmanager
async def served(config: Config) -> AsyncGenerator[httpx.AsyncClient]:
    opened = asyncio.Event()
    gateway = Gateway(config, show_login=lambda _: opened.set())
    serving = asyncio.create_task(gateway.serve())
    try:
        await opened.wait()
        async with await open_store(config.store) as store:
            token, _ = await issue_token(store, SystemClock().now(), name="bench")
        headers = {"authorization": f"Bearer {token}", "accept": "text/html"}
        async with httpx.AsyncClient(base_url=config.web.url, headers=headers) as client:
            yield client
    finally:
        gateway.stop()
        await serving
