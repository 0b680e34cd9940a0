"""A running gateway with its window over a temporary home, a client that is logged in, and a real browser.

Other rooms may use `opened` for a window over any configuration.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect

from palaver.agents.plugins import agent_options
from palaver.config.editor import ConfigFile
from palaver.config.model import Config
from palaver.engine.hooks import Meter
from palaver.gateway.gateway import Gateway
from palaver.platforms.plugins import known_platforms, load_factory
from palaver.protocols.clock import SystemClock
from palaver.settings.quotas import GrantConfig
from palaver.settings.web import WebConfig
from palaver.store.opening import open_store
from palaver.store.store import Store
from palaver.web.tokens import issue_link
from tests.needs import needing, program
from tests.ports import free_port
from tests.store.conftest import store
from tests.store.ready import store_url_on_each

__all__ = ["Opened", "becomes", "config_file", "opened", "store", "store_url_on_each"]

expect.set_options(timeout=60_000)

CHROMIUM = "chromium-headless-shell"
"""The same browser without its own windows takes a third less of the processor."""
ARGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_CSRF = re.compile(r'name="csrf" content="([0-9a-f]+)"')


READERS = tuple(GrantConfig(platform="telegram", user_id=user) for user in ("7", "8"))
"""People of another platform who have keys: a key works only for those who have access."""


@dataclass(kw_only=True)
class Opened:
    """A gateway with its window."""

    gateway: Gateway
    config: Config
    store: Store
    """Looked at from beside the gateway."""
    links: list[str] = field(default_factory=list[str])
    """What was said of it when it opened."""

    @property
    def url(self) -> str:
        """Where it listens, whatever its public address is."""
        return f"http://{self.config.web.host}:{self.config.web.port}"

    async def link(self, identity: str | None = None) -> str:
        """A login link that nobody has used."""
        return await issue_link(self.store, self.url, SystemClock().now(), identity=identity)

    @asynccontextmanager
    async def visit(self, identity: str | None = None) -> AsyncGenerator[httpx.AsyncClient]:
        """A client that is logged in, and sends what our pages do."""
        async with httpx.AsyncClient(timeout=60, base_url=self.url, headers={"accept": "text/html"}) as client:
            code = (await self.link(identity)).partition("#")[2]
            answer = await client.post("/login", data={"code": code})
            assert answer.status_code == 303, answer.text
            found = _CSRF.search((await client.get("/", follow_redirects=True)).text)
            assert found
            client.headers["x-csrf-token"] = found[1]
            yield client


@asynccontextmanager
async def opened(config: Config, meter: Meter | None = None, file: ConfigFile | None = None) -> AsyncGenerator[Opened]:
    """Until it ends in good order."""
    if file is None:  # else the file says where it is served
        config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
    links: list[str] = []
    gateway = Gateway(config, meter=meter, show_login=links.append, file=file)
    serving = asyncio.create_task(gateway.serve())
    try:
        async with asyncio.timeout(60):
            while not links:
                assert not serving.done() or serving.exception() is None, serving
                await asyncio.sleep(0.01)
        async with await open_store(config.store) as store:
            yield Opened(gateway=gateway, config=config, store=store, links=links)
    finally:
        gateway.stop()
        async with asyncio.timeout(60):
            assert await serving


def config_file(folder: Path, content: str = "", **environ: str) -> ConfigFile:
    """A configuration file as `palaver up` has one, for a gateway at a free port."""
    path = folder / "palaver.yaml"
    path.write_text(content)
    places = {"PALAVER_CONFIG": str(path), "PALAVER_HOME": str(folder), "PALAVER_WEB__PORT": str(free_port())}
    return ConfigFile(
        folder=folder,
        environ={**places, **environ},
        platforms=known_platforms(),
        describe_adapter=load_factory,
        agent_options=agent_options,
    )


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), web=WebConfig(), grants=READERS)


@pytest.fixture
async def window(config: Config) -> AsyncIterator[Opened]:
    async with opened(config) as window:
        yield window


@pytest.fixture
async def client(window: Opened) -> AsyncIterator[httpx.AsyncClient]:
    """The owner's browser, as far as requests go."""
    async with window.visit() as client:
        yield client


async def becomes(page: Page, expression: str) -> None:
    """Wait until an expression is true in a page. Playwright's own wait needs `eval`, which our policy refuses."""
    async with asyncio.timeout(60):
        while not await page.evaluate(expression):  # noqa: ASYNC110 - a page sets no event
            await asyncio.sleep(0.02)


@asynccontextmanager
async def started_chromium() -> AsyncGenerator[Browser]:
    path = program(CHROMIUM)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=path, args=ARGS)
        try:
            yield browser
        finally:
            await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
@needing(CHROMIUM)
async def chromium() -> AsyncIterator[Browser]:
    """One browser for a module whose tests run on one loop."""
    async with started_chromium() as browser:
        yield browser


@pytest.fixture
@needing(CHROMIUM)
async def browser() -> AsyncIterator[Browser]:
    async with started_chromium() as browser:
        yield browser


@pytest.fixture
async def tab(window: Opened, browser: Browser) -> AsyncIterator[Page]:
    """A tab in which the owner has just logged in; anything the page complains about fails the test."""
    complaints: list[str] = []
    context = await browser.new_context()
    page = await context.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    await page.goto(await window.link())
    await page.wait_for_url(f"{window.url}/")
    yield page
    await context.close()
    assert not complaints
