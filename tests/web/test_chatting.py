"""The web chat in a real browser: what is sent while nobody answers, what is kept, and what is shown as it comes."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route, expect

from palaver.config.model import Config
from palaver.settings.limits import LimitsConfig
from palaver.settings.web import WebConfig
from tests.web.conftest import Opened, becomes, opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

WAITS = re.compile("will be sent when the gateway is back")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    home = tmp_path_factory.mktemp("home")
    config = Config(
        data_dir=home,
        store=str(home / "palaver.db"),
        web=WebConfig(),
        timezone=ZoneInfo("Asia/Kolkata"),
        limits=LimitsConfig(file_size=1000),
    )
    async with opened(config) as window:
        yield window


@pytest_asyncio.fixture(loop_scope="module")
async def tab(chromium: Browser) -> AsyncIterator[Page]:
    page = await chromium.new_page()
    yield page
    await page.close()


async def enter(tab: Page, window: Opened, name: str) -> None:
    await tab.goto(await window.link())
    await tab.wait_for_url(f"{window.url}/")
    await tab.goto(f"{window.url}/chat/{name}")


async def say(tab: Page, text: str) -> None:
    await tab.get_by_label("Message", exact=True).fill(text)
    await tab.keyboard.press("Enter")


async def test_what_is_said_live_looks_as_it_will_after_a_reload(shared: Opened, tab: Page) -> None:
    await enter(tab, shared, "live")
    await tab.get_by_label("Files").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"})
    await say(tab, "look\nhere")
    await expect(tab.locator("#messages .mine a.file")).to_contain_text("a.txt")
    await expect(tab.locator('#messages .message:not(.note) time[title$="IST"]')).to_have_count(2)
    assert await tab.get_by_label("Files").input_value() == ""
    live = await tab.locator("#messages").inner_text()
    await tab.reload()
    assert await tab.locator("#messages").inner_text() == live


async def test_what_could_not_be_sent_is_sent_once_the_gateway_is_back(shared: Opened, tab: Page) -> None:
    await tab.clock.install()
    await enter(tab, shared, "later")
    await tab.route(
        "**/chat/later", lambda route: route.abort() if route.request.method == "POST" else route.continue_()
    )
    pending = tab.locator(".message.pending")
    for number in range(4):
        await say(tab, f"wait {number}")
        await expect(pending).to_have_count(number + 1)
    await expect(tab.get_by_label("Message", exact=True)).to_have_value("")
    await tab.reload()
    await expect(pending.locator(".plain")).to_have_text(["wait 0", "wait 1", "wait 2", "wait 3"])
    await expect(pending.first).to_contain_text(WAITS)
    await pending.nth(0).get_by_role("button", name="Edit").click()
    await expect(tab.get_by_label("Message", exact=True)).to_have_value("wait 0")
    await say(tab, "wait no more")
    await tab.clock.fast_forward(3000)
    await expect(pending.first).to_contain_text(WAITS)
    await pending.nth(0).get_by_role("button", name="Remove").click()
    await tab.goto(f"{shared.url}/chat/elsewhere")
    await expect(pending).to_have_count(0)
    await tab.goto(f"{shared.url}/chat/later")
    await tab.unroute("**/chat/later")
    await tab.clock.fast_forward(3000)
    await expect(tab.locator("#messages .mine:not(.pending) .plain")).to_have_text(["wait 2", "wait 3", "wait no more"])
    await expect(pending).to_have_count(0)
    assert await tab.evaluate("sessionStorage.getItem('outbox')") == "[]"


async def test_what_waits_can_be_taken_back_while_it_is_tried_again(shared: Opened, tab: Page) -> None:
    """A gateway that cannot be reached may let an attempt hang for minutes."""
    attempts: list[Route] = []

    async def hang(route: Route) -> None:
        if route.request.method != "POST":
            await route.continue_()
            return
        attempts.append(route)
        if len(attempts) == 1:
            await route.abort()

    await tab.clock.install()
    await enter(tab, shared, "hanging")
    await tab.route("**/chat/hanging", hang)
    text, pending = tab.get_by_label("Message", exact=True), tab.locator(".message.pending")
    for number in range(3):
        await say(tab, f"wait {number}")
    await expect(pending.first).to_contain_text(WAITS)
    await tab.clock.fast_forward(3000)
    tried = tab.locator(".message.pending[data-state=sending]")
    await expect(tried).to_contain_text("wait 0")
    await tried.get_by_role("button", name="Edit").click()
    await expect(text).to_have_value("wait 0")
    await expect(pending.locator(".plain")).to_have_text(["wait 1", "wait 2"])
    await tab.unroute("**/chat/hanging")
    await tab.reload()
    await expect(tab.locator("#messages .mine:not(.pending) .plain")).to_have_text(["wait 1", "wait 2"])
    await expect(text).to_have_value("wait 0")


async def test_what_arrived_without_an_answer_is_not_said_twice(shared: Opened, tab: Page) -> None:
    is_cut = True

    async def cut(route: Route) -> None:
        if is_cut and route.request.method == "POST":
            await route.fetch()
            await route.abort()
        else:
            await route.fallback()

    await enter(tab, shared, "other")
    await tab.route("**/chat/other", cut)
    await say(tab, "one")
    await expect(tab.locator("#messages .mine .plain")).to_have_text(["one"])
    is_cut = False
    await say(tab, "two")
    await expect(tab.locator("#messages .mine:not(.pending) .plain")).to_have_text(["one", "two"])
    await becomes(tab, "sessionStorage.getItem('outbox') === '[]'")


WRITE_ON = """() => {
  const text = document.getElementById('text');
  text.value = 'again';
  text.form.requestSubmit();
  text.value = 'next';
}"""
"""Somebody who writes on at once."""


async def test_what_the_gateway_refuses_goes_back_to_the_composer_with_the_reason(shared: Opened, tab: Page) -> None:
    await enter(tab, shared, "refused")
    text, told = tab.get_by_label("Message", exact=True), tab.get_by_role("alert")
    await text.fill("x" * 200_001)
    await tab.keyboard.press("Enter")
    await expect(told).to_have_text("A message can have at most 200,000 characters, not 200,001.")

    async def refuse(route: Route) -> None:
        if route.request.method == "POST":
            await route.fulfill(status=413, json={"error": "That is too much."})
        else:
            await route.fallback()

    await tab.route("**/chat/refused", refuse)
    await say(tab, "too much")
    await expect(told).to_have_text("That is too much.")
    await expect(text).to_have_value("too much")
    await expect(tab.locator(".message.pending")).to_have_count(0)
    await text.fill("")
    await tab.evaluate(WRITE_ON)
    await expect(tab.locator(".message.pending")).to_contain_text("Not sent: That is too much.")
    await tab.unroute("**/chat/refused")
    await tab.get_by_role("button", name="Try again").click()
    await expect(tab.locator("#messages .mine:not(.pending) .plain")).to_have_text(["again"])


@asynccontextmanager
async def held(tab: Page, path: str, field: str, problem: str = "") -> AsyncGenerator[None]:
    """Let the first post with a field wait until the end; then it goes on, or is refused."""
    first: asyncio.Future[Route] = asyncio.get_running_loop().create_future()

    async def hold(route: Route) -> None:
        if first.done() or field not in (route.request.post_data or ""):
            await route.fallback()
        else:
            first.set_result(route)

    await tab.route(path, hold)
    yield
    route = await first
    async with tab.expect_response(route.request.url):
        await (route.fulfill(status=413, json={"error": problem}) if problem else route.continue_())


async def test_somebody_who_went_on_keeps_the_cursor(shared: Opened, tab: Page) -> None:
    """What comes late takes it from nobody: the list, its changes, or what the gateway does not take."""
    await enter(tab, shared, "writing")
    text, search = tab.get_by_label("Message", exact=True), tab.get_by_label("Search conversations")
    row = tab.locator("#chat-list li").filter(has_text="hello")
    await say(tab, "hello")
    await expect(row).to_be_visible()
    await row.locator("summary").focus()
    await tab.keyboard.press("Enter")
    async with held(tab, "**/mark", "pinned"):
        await row.get_by_role("button", name="Pin").click()
        await text.press_sequentially("one ")
    await expect(tab.locator("#chat-list h2").first).to_have_text("Pinned")
    await tab.keyboard.type("two ")
    await row.locator("summary").focus()
    await tab.keyboard.press("Enter")
    await row.get_by_role("button", name="Rename").click()
    async with held(tab, "**/rename", "title"):
        await tab.get_by_label("Title").fill("hello there")
        await text.click()
    await tab.keyboard.type("three")
    await expect(text).to_have_value("one two three")
    async with held(tab, "**/chat/writing", "text", "That is too much."):
        await tab.keyboard.press("Enter")
        await search.press_sequentially("hel")
    await expect(tab.get_by_role("alert")).to_have_text("That is too much.")
    await tab.keyboard.type("lo")
    await expect(search).to_have_value("hello")
    await expect(text).to_have_value("one two three")


async def test_someone_who_was_logged_out_elsewhere_is_shown_the_way_and_keeps_their_words(
    shared: Opened, tab: Page
) -> None:
    await enter(tab, shared, "out")
    await tab.context.clear_cookies()
    await say(tab, "do not lose me")
    await expect(tab.locator(".message.pending")).to_contain_text("You were logged out.")
    await tab.locator(".message.pending").get_by_role("link", name="Log in").click()
    await expect(tab).to_have_url(f"{shared.url}/login?next=%2Fchat%2Fout")
    await enter(tab, shared, "out")
    await expect(tab.locator("#messages .mine:not(.pending) .plain")).to_have_text(["do not lose me"])
    await tab.get_by_role("button", name="Log out").click()
    # The page may notice first that it is logged out, and then knows the way back.
    await expect(tab).to_have_url(re.compile(r"/login(\?next=.*)?$"))
    assert await tab.evaluate("sessionStorage.length") == 0


async def test_a_file_that_is_too_large_is_named_until_it_is_taken_out(shared: Opened, tab: Page) -> None:
    await enter(tab, shared, "large")
    files, told = tab.get_by_label("Files"), tab.get_by_role("alert")
    await files.set_input_files({"name": "big.bin", "mimeType": "a/b", "buffer": b"0" * 2000})
    await tab.get_by_role("button", name="Send").click()
    await expect(told).to_have_text("big.bin is larger than 1 kB.")
    await tab.get_by_label("Remove big.bin").click()
    await expect(told).to_have_text("")
    await files.set_input_files([{"name": f"{number}", "mimeType": "a/b", "buffer": b"0"} for number in range(11)])
    await expect(told).to_have_text("A message can have at most 10 files, not 11.")
