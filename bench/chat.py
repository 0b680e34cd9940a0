"""The chat window: how soon an answer's first words are in a browser, and how soon a long conversation is open."""

import asyncio
import json
import re
import statistics
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import httpx
from playwright.async_api import async_playwright

from bench.measure import Bare, Figure, at_most, median_of, ratio_at_most
from bench.pages import served
from bench.workshop import Workshop
from palaver.agents.echo import EchoAgent
from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.model.addressing import ConversationRules
from palaver.model.key import Scope, derive_key
from palaver.model.session import Principal
from palaver.model.source import Source
from palaver.model.transcript import Entry, Role
from palaver.protocols.agent import Event, Request, TextDelta
from palaver.protocols.clock import SystemClock
from palaver.settings.agents import EchoAgentConfig
from palaver.store.opening import open_store
from tests.ports import free_port
from tests.store.opened import open_session

__all__ = ["first_token", "open_10k"]

_ROUNDS = 30
_MESSAGES = 10_000
_SOURCE = Source(platform="web", chat_id="owner/bench", user_id="owner")
_ASSET = re.compile(r'(?:href|src)="(/static/[^"]+)"')
_MODULE = re.compile(r'from "\./([^"]+)"')
_PATIENCE = 60.0
_BATCH = 500
_FRAMES = 100
_CHROMIUM = "/usr/bin/chromium"
_SCROLL = """async () => {
  const scroll = document.getElementById("scroll"), list = document.getElementById("messages");
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  const frames = [];
  while (scroll.scrollTop > 0 || list.dataset.earlier) {
    const start = performance.now();
    scroll.scrollTop -= 1500;
    await painted();
    frames.push(performance.now() - start);
  }
  return frames;
}"""
_ANSWER = (
    "Here is a **list**:\n\n- one `thing`\n- another\n\n```python\nprint('hello')\n```\n\nAnd some more words to read."
)


@dataclass
class _Timed:
    """The moments at which the agent gave the first words of an answer."""

    moments: list[float] = field(default_factory=list[float])


def first_token(workshop: Workshop) -> Iterator[Figure]:
    home = workshop.folder / "chat"
    home.mkdir(exist_ok=True)
    delays = asyncio.run(_first_tokens(home))
    yield Figure(
        name="web.first_token",
        value=statistics.quantiles(delays, n=20)[-1],
        limit=at_most(0.05, goal=0.02),
        note=f"p95 of {_ROUNDS}, from the agent's first piece until its event is read over HTTP",
    )


async def _first_tokens(home: Path) -> list[float]:
    timed, answer = _Timed(), EchoAgent.answer

    async def timing(self: EchoAgent, request: Request) -> AsyncGenerator[Event]:
        is_first = True
        async for event in answer(self, request):
            if is_first and isinstance(event, TextDelta):
                is_first = False
                timed.moments.append(time.perf_counter())
            yield event

    EchoAgent.answer = timing
    try:
        agent = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=20))
        config = Config(data_dir=home, store=str(home / "palaver.db"), agent=agent)
        config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
        async with served(config) as client:
            return await _read_first_tokens(client, config, timed)
    finally:
        EchoAgent.answer = answer


async def _read_first_tokens(client: httpx.AsyncClient, config: Config, timed: _Timed) -> list[float]:
    await client.post("/chat/bench", data={"text": "hello", "id": "first"})
    async with await open_store(config.store) as store:
        while not (found := await store.read(store.session_list.recent_sessions(Principal.operator(), 1))):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    delays, seen = list[float](), set[int]()
    async with client.stream("GET", f"/events?watch={found[0].session.id}", timeout=_PATIENCE) as stream:
        lines = stream.aiter_lines()
        while not (await anext(lines)).startswith("event: ready"):
            pass
        for number in range(_ROUNDS):
            await _until_idle(client)
            timed.moments.clear()
            await client.post("/chat/bench", data={"text": "some more words", "id": f"n{number}"})
            await _read_growth(lines, seen, timed)
            delays.append(time.perf_counter() - timed.moments[0])
    return delays


async def _until_idle(client: httpx.AsyncClient) -> None:
    while 'data-running="1"' in (await client.get("/chat/bench", headers={"x-fragment": "1"})).text:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _read_growth(lines: AsyncIterator[str], seen: set[int], timed: _Timed) -> None:
    """Read until an answer begins to grow that did not before."""
    while True:
        if (await anext(lines)) == "event: growth":
            turn = json.loads((await anext(lines)).removeprefix("data: "))["turn"]
            is_new = turn not in seen and bool(timed.moments)
            seen.add(turn)
            if is_new:
                return


def open_10k(workshop: Workshop) -> Iterator[Figure]:
    home = workshop.folder / "long"
    home.mkdir(exist_ok=True)
    taken, weight, frames = asyncio.run(_opened(home))
    yield Figure(
        name="web.open_10k",
        value=taken,
        limit=at_most(0.3, goal=0.1),
        note=f"the page of a conversation of {_MESSAGES:,} messages",
    )
    yield Figure(
        name="web.page_weight",
        value=weight,
        unit="B",
        limit=at_most(150_000),
        note="the same page with every style sheet, script and icon that it loads, as transferred",
    )
    yield Figure(
        name="web.scroll_10k",
        value=statistics.median(frames[-_FRAMES:]) / 1000,
        bare=Bare(name="of the first ones", value=statistics.median(frames[:_FRAMES]) / 1000),
        limit=ratio_at_most(2, goal=1.2),
        note="a frame in Chromium while the oldest messages of this conversation scroll by",
    )


async def _opened(home: Path) -> tuple[float, int, list[float]]:
    """Return how long the page takes, its weight with all that it loads, and the frames of a way to its start."""
    config = Config(data_dir=home, store=str(home / "palaver.db"))
    config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
    await _fill(config)
    async with served(config) as client:
        taken = await median_of(lambda: client.get("/chat/bench"), rounds=_ROUNDS)
        page = await client.get("/chat/bench")
        loaded = [page, *[await client.get(path) for path in sorted(set(_ASSET.findall(page.text)))]]
        script = next(each for each in loaded if each.url.path.endswith("/chat.js"))
        folder = script.url.path.rpartition("/")[0]
        loaded += [await client.get(f"{folder}/{name}") for name in _MODULE.findall(script.text)]
        frames = await _scroll_to_start(client)
    return taken, sum(each.num_bytes_downloaded for each in loaded), frames


async def _scroll_to_start(client: httpx.AsyncClient) -> list[float]:
    """Return the milliseconds of each frame while a browser scrolls from the newest message to the first."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=_CHROMIUM, args=["--no-sandbox"])
        tab = await browser.new_page(extra_http_headers={"authorization": client.headers["authorization"]})
        await tab.goto(str(client.base_url.join("/chat/bench")))
        try:
            return await tab.evaluate(_SCROLL)
        finally:
            await browser.close()


async def _fill(config: Config) -> None:
    now = SystemClock().now()
    async with await open_store(config.store) as store:
        key = derive_key(_SOURCE, Scope())
        await store.transact(open_session(key, _SOURCE, now, ConversationRules().reset_rule(_SOURCE)))

        @transaction
        def fill(first: int) -> Statements[None]:
            for number in range(first, min(first + _BATCH, _MESSAGES), 2):
                said = Entry(seq=0, role=Role.USER, at=now, text=f"What about **{number}**?", turn=None)
                answer = Entry(seq=0, role=Role.ASSISTANT, at=now, text=_ANSWER)
                yield from store.transcript.append_outside_turn(key, said)
                yield from store.transcript.append_outside_turn(key, answer)

        for first in range(0, _MESSAGES, _BATCH):
            await store.transact(fill(first))
