"""Connect a model in the window: paste a key, or press a button for what is found."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Browser, Page, ViewportSize, expect

from palaver.agents.hub import SUGGESTIONS
from palaver.agents.local import installed_model
from tests.agents import fake_hub
from tests.agents.fake_provider import Provider, Refuses, Says, providing
from tests.cli.test_connect import KEY, MODELS, files_with
from tests.web.conftest import Opened, config_file, opened
from tests.web.test_chat_window import answered, say

GUIDE = "agent: {name: guide}\n"


@pytest.fixture
async def openai() -> AsyncIterator[Provider]:
    async with providing(models=MODELS) as provider:
        yield provider


@asynccontextmanager
async def window_with(folder: Path, browser: Browser, **environ: str) -> AsyncGenerator[tuple[Opened, Page]]:
    file = config_file(folder, GUIDE, PALAVER_TITLES="false", **{"OLLAMA_HOST": "127.0.0.1:9", **environ})
    async with opened(file.load().config, file=file) as window:
        page = await browser.new_page(viewport=ViewportSize(width=1000, height=700))
        page.set_default_timeout(60_000)
        await page.goto(await window.link())
        await page.wait_for_url(f"{window.url}/")
        await page.goto(f"{window.url}/chat/main")
        yield window, page


async def read_events(client: httpx.AsyncClient, connected: asyncio.Event, into: list[str]) -> None:
    async with client.stream("GET", "/events", timeout=None) as stream:
        connected.set()
        async for text in stream.aiter_text():
            into += [text]


async def test_a_pasted_key_is_on_no_page_in_no_event_and_not_in_the_browser(
    tmp_path: Path, browser: Browser, openai: Provider
) -> None:
    openai.then(Says(text="yes"), Says(text="Hello from the model."))
    events, connected = list[str](), asyncio.Event()
    async with (
        window_with(tmp_path, browser, OPENAI_BASE_URL=openai.openai) as (window, page),
        window.visit() as client,
    ):
        hearing = asyncio.create_task(read_events(client, connected, events))
        await connected.wait()
        await page.get_by_label("Message", exact=True).fill(f"my key is {KEY}")
        stored = "JSON.stringify(sessionStorage) + JSON.stringify(localStorage)"
        assert "Xq7" not in await page.evaluate(stored)
        await page.keyboard.press("Enter")
        assert "Xq7" not in await page.evaluate(stored)
        await expect(page.locator("#messages")).to_contain_text("openai:gpt-5-mini answers from now on.")
        await say(page, "who are you?")
        await answered(page, "Hello from the model.")
        assert "Xq7" not in await page.content()
        await page.reload()
        await answered(page, "Hello from the model.")
        assert "Xq7" not in await page.content()
        assert "Xq7" not in await page.evaluate(stored)
        hearing.cancel()
    assert any("who are you?" in each for each in events)
    assert "Xq7" not in "".join(events)
    assert set(openai.keys) == {f"Bearer {KEY}"}
    assert files_with(tmp_path, KEY) == ["keys/openai"]


async def test_a_refused_key_is_said_and_nothing_is_kept(tmp_path: Path, browser: Browser) -> None:
    async with (
        providing(Refuses(status=401)) as refusing,
        window_with(tmp_path, browser, OPENAI_BASE_URL=refusing.openai) as (_, page),
    ):
        await say(page, KEY)
        await expect(page.locator("#messages")).to_contain_text("OpenAI refuses this key.")
    assert files_with(tmp_path, KEY) == []
    assert (tmp_path / "palaver.yaml").read_text() == GUIDE


async def test_what_is_found_is_a_button_that_connects_it(tmp_path: Path, browser: Browser, openai: Provider) -> None:
    environ = {"OPENAI_BASE_URL": openai.openai, "OPENAI_API_KEY": KEY}
    async with window_with(tmp_path, browser, **environ) as (window, page):
        await expect(page.locator("#offers")).to_contain_text("Found OPENAI_API_KEY. Use it?")
        assert openai.heads == []
        await page.screenshot(path=str(tmp_path / "offer.png"))
        async with window.visit("web:ann") as stranger:
            assert "/connect OPENAI_API_KEY" not in (await stranger.get("/chat/main")).text
        await page.get_by_role("button", name="Use OPENAI_API_KEY").click()
        await expect(page.locator("#messages")).to_contain_text("The key stays in OPENAI_API_KEY")
        await expect(page.locator("#offers")).to_be_empty()
    assert files_with(tmp_path, KEY) == []


async def test_no_ends_the_offer_also_after_a_reload(tmp_path: Path, browser: Browser, openai: Provider) -> None:
    environ = {"OPENAI_BASE_URL": openai.openai, "OPENAI_API_KEY": KEY}
    async with window_with(tmp_path, browser, **environ) as (_, page):
        await page.get_by_role("button", name="No", exact=True).click()
        await expect(page.locator("#messages")).to_contain_text("To use it later: /connect OPENAI_API_KEY.")
        await page.reload()
        await expect(page.locator("#offers")).to_be_empty()
    assert openai.heads == []


async def test_a_key_from_a_member_is_redacted_and_not_used(tmp_path: Path, openai: Provider) -> None:
    file = config_file(
        tmp_path,
        f"{GUIDE}grants: [{{role: member, platform: web, user_id: ann}}]\n",
        PALAVER_TITLES="false",
        PALAVER_OFFERS="false",
        OPENAI_BASE_URL=openai.openai,
    )
    async with opened(file.load().config, file=file) as window, window.visit("web:ann") as member:
        answer = await member.post("/chat/main", data={"id": "m1", "text": f"use {KEY}"})
        assert answer.status_code == 200, answer.text
        page = await member.get("/chat/main")
        assert "use [redacted: openai key]" in page.text
        assert KEY not in page.text
    assert openai.heads == []
    assert files_with(tmp_path, KEY) == []


async def test_the_model_page_finds_a_server_and_lists_its_models(tmp_path: Path, browser: Browser) -> None:
    async with (
        providing(models=("small-embed", "large", "small")) as ollama,
        window_with(tmp_path, browser, OLLAMA_HOST=f"127.0.0.1:{ollama.port}") as (window, page),
    ):
        await page.goto(f"{window.url}/settings/model")
        await expect(page.get_by_label("Address of the server")).to_have_value(ollama.openai)
        choice = page.get_by_role("combobox", name="Model", exact=True)
        await expect(choice).to_have_value("large")
        await choice.select_option("small")
        await expect(page.locator("#model-name")).to_be_hidden()
        ollama.then(Says(text="yes"))
        await page.get_by_role("button", name="Test and save").click()
        await expect(page.locator("#now")).to_contain_text("openai:small answers.")
        await page.get_by_label("Provider").select_option("anthropic")
        await expect(page.locator("#model-help")).to_have_text(
            "With your key, the models that it can use are listed here."
        )
        await expect(page.get_by_role("link", name="Create a key")).to_be_visible()
        await page.get_by_label("Provider").select_option("local")
        await expect(choice).to_contain_text("suggested for this machine")
        await expect(page.get_by_label("Key", exact=True)).to_be_hidden()


async def fetch(client: httpx.AsyncClient, name: str) -> str:
    """Press the button, and return the page when the download is over."""
    going_on = await client.post("/settings/model/fetch", data={"fetch": name})
    while "Stop</button>" in (page := (await client.get(going_on.headers["x-goto"])).text):  # noqa: ASYNC110 - it sets none
        await asyncio.sleep(0.1)
    return page


async def test_a_missing_library_of_the_system_is_named_with_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("palaver.agents.local._SHARED_LIBRARIES", ("libnowhere.so.7",))
    file = config_file(tmp_path, GUIDE, PALAVER_OFFERS="false")
    async with opened(file.load().config, file=file) as window, window.visit() as client:
        pages = [
            await client.post("/settings/model", data={"provider": "local", "model": "small"}),
            await client.get("/settings/model", params={"fetch": "small"}),
        ]
        for page in pages:
            assert "sudo apt-get install libnowhere7" in page.text
        assert "use it</button>" not in pages[1].text


@pytest.mark.needs("libgomp.so.1")
async def test_a_model_is_downloaded_after_its_licence_and_continues_where_it_stopped(tmp_path: Path) -> None:
    """The hub is ours and gives the small model."""
    with fake_hub.served(fake_hub.FakeHub(installed_model().read_bytes())) as hub:
        file = config_file(tmp_path, GUIDE, HF_ENDPOINT=f"{hub.url}/", PALAVER_TITLES="false", PALAVER_OFFERS="false")
        async with opened(file.load().config, file=file) as window, window.visit() as client:
            wanted = {"provider": "local", "model": "qwen3-4b"}
            card = (await client.post("/settings/model", data=wanted)).headers["x-goto"]
            assert card == "/settings/model?fetch=qwen3-4b"
            page = (await client.get(card)).text
            assert f"Qwen3-4B-Q4_K_M.gguf: 98 MB, licence apache-2.0, from {hub.url}." in page
            assert "Download, test and use it</button>" in page
            assert hub.ranges == []
            hub.paths.append(SUGGESTIONS[1].file)
            hub.goes_on.clear()
            going_on = asyncio.create_task(fetch(client, "qwen3-0.6b"))
            await asyncio.to_thread(hub.asked.wait)
            await client.post("/settings/model/stop", data={"fetch": "qwen3-0.6b"})
            assert "The download was stopped." in await going_on
            hub.cuts = [0]  # for the download that is stopped
            hub.goes_on.set()
            while hub.cuts:  # noqa: ASYNC110 - a thread takes it
                await asyncio.sleep(0.01)
            hub.cuts = [5_000_000, 0, 0, 0]
            page = await fetch(client, "qwen3-4b")
            assert "Qwen3-4B-Q4_K_M.gguf stopped at 5 MB of 98 MB" in page
            assert "Continue</button>" in page
            assert file.content() == GUIDE
            assert "It answers from now on." in await fetch(client, "qwen3-4b")
            assert hub.ranges[-1] == "bytes=5000000-"
            assert file.load().config.agent.facts()["file"] == tmp_path / "models/Qwen3-4B-Q4_K_M.gguf"
            for name, said in (("nobody", "There is no model"), (f"{tmp_path}/no.gguf", "This is no model file")):
                refused = await client.get("/settings/model", params={"fetch": name})
                assert said in refused.text
