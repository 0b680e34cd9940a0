"""The dashboard in a real browser: what is pushed, pressed and typed there, on any screen, and that nothing runs."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.base import AXE_SCRIPT
from playwright.async_api import Browser, BrowserContext, Page, Route, ViewportSize, expect
from playwright.async_api import Error as PlaywrightError

from palaver.config.model import Config
from palaver.gateway.terminal import terminal_socket
from palaver.protocols.clock import SystemClock
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.web import WebConfig
from tests.platforms.terminal.people import Person
from tests.web.conftest import Opened, becomes, opened
from tests.web.demo_data import HOSTILE, OPERATOR, Stage, dm, furnish
from tests.web.test_server import HIDE

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGES = (
    "/",
    "/chat",
    "/sessions",
    "/search?q=train",
    "/turns",
    "/processes",
    "/messages",
    "/trace?name=in:1",
    "/platforms",
    "/people",
    "/usage",
    "/explain?platform=telegram&chat=7",
    "/doctor",
    "/logs",
)
TINY, LARGE = ViewportSize(width=360, height=700), ViewportSize(width=1200, height=800)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(home: Path) -> AsyncIterator[Opened]:
    """One gateway with something going on, for every test here."""
    url = str(home / "palaver.db")
    await furnish(url, SystemClock().now())
    agent = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=25))
    async with opened(Config(data_dir=home, store=url, web=WebConfig(), agent=agent)) as window:
        yield window


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner(shared: Opened, chromium: Browser) -> AsyncIterator[BrowserContext]:
    """A browser in which the owner has logged in by a link, once."""
    context = await chromium.new_context(viewport=LARGE)
    page = await context.new_page()
    await page.goto(f"{shared.url}/sessions")
    await expect(page).to_have_url(f"{shared.url}/login?next=%2Fsessions")
    assert not await problems(page)
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    await page.close()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(owner: BrowserContext) -> AsyncIterator[Page]:
    """Anything the page complains about fails the test."""
    complaints: list[str] = []
    page = await owner.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    await page.set_viewport_size(LARGE)
    yield page
    await page.close()
    assert not complaints


async def say(window: Opened, text: str, name: str) -> None:
    person = Person(terminal_socket(window.config), name)
    async with person.present():
        await person.say(text)


async def named(window: Opened, title: str) -> str:
    return (await window.store.read(window.store.sessions.find(title, OPERATOR))).id


_GRAVE = """async (options) => {
  const { violations } = await axe.run(options);
  const grave = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
  return grave.flatMap(({ id, nodes }) => nodes.map(({ html }) => `${id} ${html.slice(0, 160)}`));
}"""


async def problems(page: Page) -> list[str]:
    """What axe finds that keeps people out. The page itself picks that from what axe writes about every rule."""
    await page.evaluate(AXE_SCRIPT)
    return await page.evaluate(_GRAVE, {"resultTypes": ["violations"], "selectors": False})


async def test_a_conversation_elsewhere_appears_in_the_list_and_in_the_transcript(shared: Opened, tab: Page) -> None:
    await tab.goto(f"{shared.url}/sessions")
    await say(shared, "the first words", "live")
    row = tab.locator("#sessions li").filter(has_text="the first words")
    await row.wait_for()
    await tab.evaluate("document.querySelector('#sessions').dataset.same = 'yes'")
    await row.get_by_role("link").click()
    await tab.get_by_text("You said: the first words").wait_for()
    await say(shared, "and more", "live")
    await tab.get_by_text("You said: and more").wait_for()
    await expect(tab.locator("#entries > li").filter(has_text="and more")).to_have_count(2)


FAILS_TWICE = """
window.EventSource = class extends EventTarget { constructor() { super(); window.stream = this; } close() {} };
const real = window.fetch;
window.asked = 0;
window.fetch = (...what) => {
  window.asked += 1;
  if (window.asked === 1) return Promise.reject(new TypeError("cut off"));
  return window.asked === 2 ? Promise.resolve(new Response("", { status: 503 })) : real(...what);
};
"""


async def test_what_could_not_be_fetched_is_fetched_once_the_gateway_is_back(shared: Opened, tab: Page) -> None:
    """Nothing else happens meanwhile that would have it fetched."""
    await tab.add_init_script(FAILS_TWICE)
    await tab.goto(f"{shared.url}/sessions")
    await say(shared, "said while it was cut off", "back")
    await tab.evaluate("stream.dispatchEvent(new MessageEvent('changed', {data: '{\"topics\": [\"sessions\"]}'}))")
    await becomes(tab, "asked === 1")
    await tab.evaluate("stream.onopen()")
    await tab.locator("#sessions li").filter(has_text="said while it was cut off").wait_for()
    assert await tab.evaluate("asked") == 3


async def test_an_answer_is_seen_growing_and_is_there_once(shared: Opened, tab: Page) -> None:
    await say(shared, "begin", "grow")
    await tab.goto(f"{shared.url}/sessions")
    await tab.locator("#sessions li").filter(has_text="begin").get_by_role("link").click()
    await tab.get_by_text("You said: begin").wait_for()
    words = " ".join(f"word-{number} <b>&" for number in range(20))
    saying = asyncio.create_task(say(shared, words, "grow"))
    await tab.locator("#draft").get_by_text("You said: word-0 <b>&").wait_for()
    await saying
    answer = tab.locator("#entries .assistant").filter(has_text="word-19")
    await expect(answer).to_have_count(1)
    await expect(tab.locator("#draft")).to_have_count(0)


async def test_what_runs_is_stopped_and_what_was_said_undone(shared: Opened, tab: Page) -> None:
    await say(shared, "keep this", "stop")
    hangs = asyncio.create_task(say(shared, "!hang", "stop"))
    await tab.goto(f"{shared.url}/turns")
    await tab.locator("#running").get_by_role("button", name="Stop").click()
    await expect(tab.locator("#notice")).to_have_text("Stopping.")
    await tab.get_by_text("No turn is running.").wait_for()
    hangs.cancel()
    with suppress(asyncio.CancelledError):
        await hangs
    await tab.goto(f"{shared.url}/sessions")
    await tab.locator("#sessions li").filter(has_text="!hang").get_by_role("link").click()
    await tab.get_by_role("button", name="Undo").click()
    await expect(tab.locator("#notice")).to_contain_text("Undid")
    await expect(tab.locator("#entries").get_by_text("!hang")).to_have_count(0)
    await tab.get_by_role("button", name="Redo").click()
    await expect(tab.locator("#entries").get_by_text("!hang")).to_have_count(1)


async def test_a_branch_and_a_title_are_made_on_the_page(shared: Opened, tab: Page) -> None:
    await say(shared, "where from", "branch")
    await tab.goto(f"{shared.url}/sessions")
    await tab.locator("#sessions li").filter(has_text="where from").get_by_role("link").click()
    await tab.get_by_text("You said: where from").wait_for()
    before = tab.url
    await tab.locator("summary", has_text="Rename").click()
    await tab.locator("#title").fill("Old <i>tree</i>")
    await tab.get_by_role("button", name="Rename").click()
    await expect(tab.get_by_role("heading", level=1)).to_contain_text("Old <i>tree</i>")
    await tab.locator("summary", has_text="Branch").click()
    await tab.locator("#branch-title").fill("New tree")
    await tab.get_by_role("button", name="Branch").click()
    await expect(tab.get_by_role("heading", level=1)).to_contain_text("New tree")
    assert tab.url != before


async def test_a_search_is_typed_and_leads_to_what_was_found(shared: Opened, tab: Page) -> None:
    await tab.goto(f"{shared.url}/sessions")
    await tab.keyboard.press("/")
    await expect(tab.get_by_label("Words")).to_be_focused()
    await tab.keyboard.type("hendaye")
    await tab.keyboard.press("Enter")
    await expect(tab.locator("mark").first).to_have_text("Hendaye")
    await expect(tab.get_by_label("Words")).not_to_be_focused()
    await tab.keyboard.press("/")
    await expect(tab.get_by_label("Words")).to_be_focused()
    await tab.locator(".hit a").first.click()
    await expect(tab.get_by_role("heading", level=1)).to_contain_text("Lisbon by train")
    assert await tab.locator(".entry:target").count() == 1


async def test_what_waits_for_permission_is_allowed(shared: Opened, tab: Page) -> None:
    await say(shared, "!approve it", "asks")
    await tab.goto(f"{shared.url}/turns")
    row = tab.locator("#parked li").filter(has=tab.locator("[id^=command-button-approve]")).last
    await row.get_by_role("button", name="Approve").click()
    await expect(tab.locator("#notice")).to_have_text("Approved.")
    await tab.goto(f"{shared.url}/sessions")
    await tab.locator("#sessions li").filter(has_text="!approve it").get_by_role("link").click()
    await tab.get_by_text("You said: it").wait_for()


async def test_the_keyboard_alone_is_enough(shared: Opened, tab: Page) -> None:
    await tab.goto(f"{shared.url}/sessions")
    await tab.keyboard.press("Tab")
    await expect(tab.get_by_role("link", name="Skip to content")).to_be_focused()
    await tab.keyboard.press("Enter")
    await expect(tab.locator("main")).to_be_focused()
    await tab.keyboard.press("j")
    stops = tab.locator("[data-stop]")
    await expect(stops.nth(0)).to_be_focused()
    await tab.keyboard.press("ArrowDown")
    await expect(stops.nth(1)).to_be_focused()
    await tab.keyboard.press("k")
    await tab.keyboard.press("j")
    # A list that changes under the eye keeps the place, also where that place moves.
    held = await stops.nth(1).get_attribute("id")
    await say(shared, "an interruption", "keys")
    await tab.locator("#sessions li").filter(has_text="an interruption").wait_for()
    assert await tab.evaluate("document.activeElement.id") == held
    await shared.store.transact(shared.store.titles.rename(str(held)[2:], "Held", OPERATOR))
    await say(shared, "another one", "keys")
    await tab.locator("#sessions li").filter(has_text="Held").wait_for()
    assert await tab.evaluate("document.activeElement.id") == held
    await tab.keyboard.press("?")
    await expect(tab.get_by_role("dialog")).to_be_visible()
    await tab.keyboard.press("Escape")
    await tab.keyboard.press("Enter")
    await tab.wait_for_url("**/sessions/*")


async def test_light_and_dark_follow_the_system_until_somebody_chooses(shared: Opened, chromium: Browser) -> None:
    context = await chromium.new_context(color_scheme="dark")
    page = await context.new_page()
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    paper = "getComputedStyle(document.body).backgroundColor"
    dark = await page.evaluate(paper)
    await page.get_by_role("button", name="Switch between light and dark").click()
    light = await page.evaluate(paper)
    assert light != dark
    await page.goto(f"{shared.url}/usage")
    assert await page.evaluate(paper) == light
    await context.close()


async def test_no_page_has_a_serious_problem_of_access_or_is_wider_than_a_phone(shared: Opened, tab: Page) -> None:
    transcript = f"/sessions/{await named(shared, 'Lisbon by train')}"
    looks = [(path, place % 2 == 0) for place, path in enumerate((*PAGES, f"{transcript}?audit=1"))]
    found: list[str] = []
    for path, light in (*looks, (transcript, True), (transcript, False)):
        await tab.emulate_media(color_scheme="light" if light else "dark")
        await tab.set_viewport_size(LARGE if light else TINY)
        await tab.goto(f"{shared.url}{path}")
        found += [f"{path}: {problem}" for problem in await problems(tab)]
        await tab.set_viewport_size(LARGE)
        if await tab.evaluate("(nav => nav.scrollWidth > nav.clientWidth)(document.querySelector('.bar nav'))"):
            found.append(f"{path}: links to pages are cut off")
        await tab.set_viewport_size(TINY)
        if await tab.evaluate("document.documentElement.scrollWidth > innerWidth"):
            found.append(f"{path}: wider than the screen")
    assert not found


_LOOK = """() => [
    typeof window.ran,
    document.querySelectorAll("#planted").length,
    document.querySelectorAll("main").length,
    document.documentElement.scrollWidth <= innerWidth,
    document.querySelectorAll("main img").length,
]"""


async def test_nothing_that_anybody_has_said_runs_or_breaks_a_page(shared: Opened, tab: Page) -> None:
    stage = Stage(shared.store, SystemClock().now())
    sessions: list[str] = []
    for number, text in enumerate(HOSTILE):
        place = dm(f"evil{number}")
        session = await stage.exchange(place, text, text, name=text[:300])
        with suppress(Exception):
            await shared.store.transact(shared.store.titles.rename(session, text[:100], OPERATOR))
        sessions.append(session)
    paths = [
        "/",
        "/sessions",
        "/search?q=bold&role=any",
        "/search?q=%3Cscript%3Ewindow.ran%3D1%3C/script%3E",
        "/messages",
        "/people",
        "/usage?by=person",
        "/trace?name=%3Cimg%20src%3Dx%20onerror%3Dwindow.ran%3D1%3E",
        "/explain?platform=telegram&chat=%3Cscript%3Ewindow.ran%3D1%3C/script%3E",
        *(f"/sessions/{session}" for session in sessions),
    ]
    await tab.set_viewport_size(TINY)
    for path in paths:
        answer = await tab.goto(f"{shared.url}{path}")
        assert answer
        assert answer.status == 200, path
        told = await tab.evaluate(_LOOK)
        assert told == ["undefined", 0, 1, True, 0], path
        assert "\u202e" not in await tab.inner_text("main"), path
    await tab.keyboard.press("Control+k")
    for words in ("bold", "script"):
        async with tab.expect_response(f"**/palette?q={words}"):
            await tab.locator("#palette-words").fill(words)
        await expect(tab.locator("#palette-list")).to_contain_text(re.compile("telegram", re.IGNORECASE))
        assert (await tab.evaluate(_LOOK))[:3] == ["undefined", 0, 1], words
    await tab.keyboard.press("Escape")
    whole = await tab.request.get(f"{shared.url}/sessions/{sessions[-1]}/entries/1")
    assert (len(await whole.text()), whole.headers["content-type"]) == (1_000_000, "text/plain; charset=utf-8")


_PLANT = """async () => {
  const stopped = new Set();
  const all = ["script-src-attr", "script-src-elem", "style-src-elem", "img-src", "connect-src"];
  const done = new Promise((done) => document.addEventListener("securitypolicyviolation", ({ effectiveDirective }) => {
    stopped.add(effectiveDirective);
    if (all.every((each) => stopped.has(each))) done();
  }));
  document.body.insertAdjacentHTML("beforeend", `<img src=x onerror="window.ran = 1"><svg onload="window.ran = 1"></svg>
    <a id="planted" href="javascript:window.ran=1">x</a><img src="https://example.org/x.png">
    <style>main { display: none }</style>
    <iframe srcdoc="<script>parent.ran = 1</script>"></iframe>`);
  document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }));
  document.getElementById("planted").click();
  fetch("https://example.org/").catch(() => {});
  await done;
  return [typeof window.ran, getComputedStyle(document.querySelector("main")).display];
}"""


async def test_the_policy_stops_what_would_have_slipped_through(shared: Opened, owner: BrowserContext) -> None:
    page = await owner.new_page()
    for path in ("/chat", "/sessions", "/search?q=train", f"/sessions/{await named(shared, 'Lisbon by train')}"):
        await page.goto(f"{shared.url}{path}")
        assert (await page.evaluate(_PLANT))[0] == "undefined", path
    await page.goto(f"{shared.url}/people")
    assert (await page.evaluate(_PLANT))[1] == "block"
    await page.close()


async def test_an_error_page_is_loaded_once(shared: Opened, owner: BrowserContext, tab: Page) -> None:
    """It says what is wrong and stays, while other pages are kept up to date."""
    page, loads = await owner.new_page(), list[str]()
    page.on("load", lambda loaded: loads.append(loaded.url))
    await page.goto(f"{shared.url}/nowhere")
    await tab.goto(f"{shared.url}/sessions")
    await say(shared, "said while an error is shown", "errors")
    await tab.locator("#sessions li").filter(has_text="said while an error is shown").wait_for()
    await expect(page.get_by_role("heading", name="Not found")).to_be_visible()
    assert loads == [f"{shared.url}/nowhere"]
    await page.close()


async def test_a_page_whose_stream_is_refused_connects_again_without_being_loaded(
    shared: Opened, owner: BrowserContext
) -> None:
    page, loads, refused = await owner.new_page(), list[str](), list[str]()

    async def refuse_once(route: Route) -> None:
        refused.append(route.request.url)
        await (route.fulfill(status=503) if len(refused) == 1 else route.continue_())

    await page.route(re.compile(r"/events\?"), refuse_once)
    page.on("load", lambda loaded: loads.append(loaded.url))
    await page.goto(f"{shared.url}/sessions")
    await expect(page.locator("#connection")).to_have_text("Not connected. Trying again …")
    await say(shared, "said while nothing was connected", "refused")
    await page.locator("#sessions li").filter(has_text="said while nothing was connected").wait_for()
    await expect(page.locator("#connection")).to_have_text("")
    assert (len(loads), len(refused)) == (1, 2)
    await page.close()


async def test_a_page_whose_login_is_gone_leads_to_the_login(shared: Opened, chromium: Browser) -> None:
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    await page.goto(f"{shared.url}/sessions")
    await context.clear_cookies()
    with suppress(PlaywrightError):  # it leaves the page, perhaps before it can say so
        await page.evaluate(f"({HIDE})(true); ({HIDE})(false);")
    await expect(page).to_have_url(f"{shared.url}/login?next=%2Fsessions")
    await context.close()
