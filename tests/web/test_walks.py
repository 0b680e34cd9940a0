"""Walks through the window in a real browser: home, settings, navigation, palette, offline, on a desk and a phone."""

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, expect

from palaver.config.editor import ConfigFile
from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound
from palaver.protocols.clock import SystemClock
from palaver.store import accounts
from tests.agents.fake_provider import Provider, Refuses, providing
from tests.engine.gateway import until
from tests.web.conftest import Opened, becomes, config_file, opened
from tests.web.demo_data import furnish
from tests.web.test_browser import problems

pytestmark = pytest.mark.asyncio(loop_scope="module")

DESK, PHONE = ViewportSize(width=1280, height=860), ViewportSize(width=390, height=800)
KEY = "sk-very-secret-key-0123456789"
_KEPT = """async () => {
  const cache = await caches.open((await caches.keys())[0]);
  return (await cache.keys()).map((each) => new URL(each.url).pathname);
}"""
BEFORE = "# mine\ntimezone: Asia/Tokyo # here\n"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ConfigFile:
    return config_file(tmp_path_factory.mktemp("walks"), BEFORE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[Provider]:
    async with providing() as provider:
        yield provider


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(file: ConfigFile) -> AsyncIterator[Opened]:
    config = file.load().config
    await furnish(config.store, SystemClock().now())
    async with opened(config, file=file) as window:
        yield window


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner(shared: Opened, chromium: Browser) -> AsyncIterator[BrowserContext]:
    context = await chromium.new_context(viewport=DESK)
    page = await context.new_page()
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    await page.close()
    yield context
    await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def tab(owner: BrowserContext) -> AsyncIterator[Page]:
    """Anything the page complains about fails the test, but for requests that are meant to fail."""
    complaints: list[str] = []
    page = await owner.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    yield page
    await page.close()
    assert [each for each in complaints if not re.search(r"status of 400|ERR_INTERNET_DISCONNECTED", each)] == []


async def fits(page: Page) -> bool:
    return await page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def ask_to_be_let_in(window: Opened) -> None:
    now = SystemClock().now()
    source = Source(platform="telegram", account="helper", chat_id="99", user_id="99", message_id="m1")
    inbound = Inbound(source=source, text="hello?", at=now, labels=Labels(user=Label("Eve")))
    ask = window.store.pairing.request(inbound, derive_key(source, Scope()), now, code="K7QM3XPR", answer=())
    await window.store.transact(ask)


async def test_home_says_what_matters_and_decides_it(shared: Opened, tab: Page) -> None:
    await ask_to_be_let_in(shared)
    now = SystemClock().now()
    fence = await shared.store.transact(accounts.acquire("telegram", "helper", "w1", now, timedelta(hours=1)))
    await shared.store.transact(accounts.mark_down("telegram", "helper", fence or 0, now, "no route to host"))
    await tab.goto(shared.url)
    problem = tab.locator("#problems li").filter(has_text="telegram:helper is not connected: no route to host")
    await expect(problem).to_contain_text("Palaver keeps trying.")
    await expect(problem.get_by_role("link", name="Open the accounts")).to_be_visible()
    doctor = await (await tab.request.get(f"{shared.url}/doctor")).text()
    assert "no route to host" in doctor
    assert "Everything is fine" not in doctor
    await expect(tab.locator("#accounts")).to_contain_text("telegram:helper")
    await expect(tab.get_by_role("heading", name="No model is connected yet")).to_be_visible()
    model = tab.locator("#model")
    await expect(model).to_contain_text("The agent echo")
    await expect(model).to_contain_text("$0.0")
    await expect(tab.locator("#recent")).to_contain_text("Lisbon by train")
    waiting = tab.locator("#waiting li")
    await waiting.filter(has_text="pay_invoice").get_by_text("What exactly").click()
    stranger = waiting.filter(has_text="Eve")
    await stranger.get_by_role("button", name="Approve").click()
    await expect(stranger).to_have_count(0)
    await waiting.filter(has_text="pay_invoice").get_by_role("button", name="Deny").click()
    await expect(tab.locator("#waiting")).to_contain_text("Nothing is waiting for you.")
    # A job is made on its page, and due on Home.
    await tab.goto(f"{shared.url}/jobs")
    await tab.get_by_label("When").fill("every day at 18:00")
    await tab.get_by_label("What to do").fill("Say good evening.")
    await tab.get_by_label("Name").fill("evening")
    await expect(tab.get_by_label("Note it in the conversation there")).to_be_checked()
    await tab.get_by_role("button", name="Add").click()
    await expect(tab.locator("#notice")).to_contain_text(re.compile(r"runs at 18:00 every day.*, next .* 18:00 JST"))
    await expect(tab.locator("#jobs").get_by_role("listitem").filter(has_text="evening")).to_contain_text(
        "yours, to the chat where it was made"
    )
    await tab.goto(shared.url)
    await expect(tab.locator("#next-jobs")).to_contain_text("evening")
    await expect(tab.locator("#next-jobs time")).to_contain_text("18:00")
    assert not await problems(tab)


async def test_a_model_is_connected_in_the_browser_with_the_keyboard_alone(
    shared: Opened, tab: Page, provider: Provider, file: ConfigFile
) -> None:
    await tab.goto(shared.url)
    await tab.get_by_role("link", name="Connect a model").focus()
    await tab.keyboard.press("Enter")
    await tab.get_by_label("Provider").focus()
    await tab.keyboard.type("A server")
    await tab.keyboard.press("Tab")
    await tab.keyboard.type(provider.openai)
    await tab.keyboard.press("Tab")
    await tab.keyboard.type(KEY)
    await tab.keyboard.press("Tab")
    await tab.keyboard.type("small")
    # With the address and with the key, the form has asked for a list of models; the refusal is for what comes next.
    await until(lambda: len(provider.requests) >= 2)
    provider.then(Refuses(status=401, message="Incorrect API key provided"))
    await tab.keyboard.press("Enter")
    problem = tab.get_by_role("alert").filter(has_text="does not answer")
    await expect(problem).to_have_text(
        "openai:small does not answer: the model rejects the key (status 401: Incorrect API key provided)."
        " Nothing was saved. Check the key, the name and the address."
    )
    assert file.content() == BEFORE
    # Nothing that was typed is lost, after an error and after a reload; a secret is not kept.
    await expect(tab.get_by_role("textbox", name="Model", exact=True)).to_have_value("small")
    await tab.reload()
    await expect(tab.get_by_role("textbox", name="Model", exact=True)).to_have_value("small")
    await expect(tab.get_by_label("Address of the server")).to_have_value(provider.openai)
    await expect(tab.get_by_text("You have not saved this yet.")).to_be_visible()
    key = tab.get_by_label("Key", exact=True)
    await expect(key).to_have_value("")
    await key.focus()
    await tab.keyboard.type(KEY)
    await tab.keyboard.press("Enter")
    await expect(tab.locator("#notice")).to_contain_text("openai:small answers from now on. Saved in palaver.yaml")
    await expect(tab.locator("#now")).to_contain_text("palaver.yaml, line")
    await expect(tab.locator("#key-set")).to_contain_text("A key is set.")
    await expect(key).to_have_value("")
    assert file.content().startswith(BEFORE)
    assert KEY not in await tab.content()
    await tab.goto(shared.url)
    await expect(tab.locator("#model .figure")).to_have_text("openai:small")
    await expect(tab.locator("#first-run")).to_have_text("")


async def test_settings_are_changed_and_show_their_line(shared: Opened, tab: Page, file: ConfigFile) -> None:
    await tab.goto(f"{shared.url}/settings/general")
    hour = tab.get_by_label("Reset at this hour")
    await hour.fill("99")
    await tab.get_by_role("button", name="Save").click()
    # Once, beside the form, without a line that the file does not have.
    await expect(tab.get_by_text("reset.at_hour cannot be '99'.")).to_have_count(1)
    await expect(tab.get_by_role("alert")).to_have_text(re.compile("^reset.at_hour"))
    await expect(hour).to_have_value("99")
    await hour.fill("4")
    zone = tab.get_by_label("Time zone")
    await tab.get_by_role("button", name="as in this browser").click()
    await expect(zone).to_have_value("UTC")
    await zone.select_option("Europe/Berlin")
    await tab.get_by_label("Messages during an answer").select_option("interrupt")
    await tab.get_by_role("button", name="Save").click()
    await expect(tab.locator("#notice")).to_contain_text("line 2. It applies now.")
    await expect(tab.locator("#where-busy")).to_contain_text("palaver.yaml, line")
    assert "timezone: Europe/Berlin # here\n" in file.content()
    await tab.get_by_role("link", name="Accounts").click()
    await tab.get_by_role("link", name="Telegram").click()
    await expect(tab.get_by_text("@BotFather")).to_be_visible()
    await expect(tab.get_by_label("Token, or the environment")).to_have_attribute("type", "password")
    await tab.get_by_role("link", name="Cancel").click()
    await tab.get_by_role("link", name="Tools").click()
    await tab.locator("#m-name").fill("notes")
    await tab.locator("#m-command").fill("notes-server serve")
    await tab.locator("#servers + form").get_by_role("button", name="Add").click()
    await expect(tab.locator("#servers")).to_contain_text("notes-server")
    await expect(tab.locator("#deferred")).to_contain_text("Restart the gateway to use the change of MCP servers.")
    tab.once("dialog", lambda dialog: dialog.accept())
    await tab.get_by_role("button", name="Remove notes").click()
    await expect(tab.locator("#servers")).to_contain_text("No MCP servers.")


async def test_a_friend_gets_a_link_that_can_be_copied(shared: Opened, tab: Page) -> None:
    await tab.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=shared.url)
    await tab.goto(f"{shared.url}/people")
    await tab.get_by_label("Their name").fill("Alice")
    await tab.get_by_role("button", name="Make a link").click()
    await tab.get_by_role("button", name="Copy the link").click()
    await expect(tab.locator("#notice")).to_have_text("Copied.")
    assert (await tab.evaluate("navigator.clipboard.readText()")).startswith(f"{shared.url}/login#")


async def test_the_palette_the_keys_and_the_menus_lead_everywhere(shared: Opened, tab: Page) -> None:
    await tab.goto(f"{shared.url}/usage")
    await tab.keyboard.press("Control+k")
    palette = tab.get_by_role("dialog", name="Search and commands")
    await expect(palette).to_be_visible()
    await tab.keyboard.type("lisbon")
    await palette.get_by_role("option", name=re.compile("Lisbon by train")).wait_for()
    await tab.keyboard.press("Enter")
    await tab.wait_for_url("**/chat/s/*")
    await expect(tab.get_by_text("by Paris and Hendaye")).to_be_visible()
    # What a person would look for, in their words: it leads to the field, and an error is shown once.
    await tab.keyboard.press("Control+k")
    await tab.keyboard.type("allow role")
    await tab.keyboard.press("Enter")
    await expect(tab.get_by_label("Who", exact=True)).to_be_focused()
    await tab.keyboard.type("nonsense:1")
    await tab.keyboard.press("Enter")
    await expect(tab.get_by_text("Unknown platform 'nonsense'")).to_have_count(1)
    await tab.keyboard.press("Escape")
    await tab.keyboard.press("Control+k")
    await tab.keyboard.type("shortcuts")
    await tab.keyboard.press("Enter")
    await expect(tab.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    await tab.keyboard.press("Escape")
    await expect(tab.get_by_role("button", name="Search and commands")).to_be_visible()
    await tab.keyboard.press("Control+k")
    await tab.keyboard.type("zzz")
    await expect(palette.get_by_text("Nothing found.")).to_be_visible()
    await tab.keyboard.press("Escape")
    await expect(palette).to_be_hidden()
    await tab.goto(f"{shared.url}/usage")
    await tab.keyboard.press("?")
    keys = tab.get_by_role("dialog", name="Keyboard shortcuts")
    await expect(keys).to_be_visible()
    await tab.keyboard.press("Escape")
    await expect(keys).to_be_hidden()
    await tab.keyboard.press("g")
    await tab.keyboard.press("s")
    await tab.wait_for_url("**/settings/model")
    pages = tab.get_by_role("navigation", name="Pages")
    names = await pages.locator("> a").all_inner_texts()
    assert names == ["Chat", "Conversations", "Jobs", "Processes", "People", "Platforms", "Usage", "Settings"]
    await pages.get_by_text("Diagnostics").click()
    assert await pages.locator("details a").all_inner_texts() == ["Messages", "Turns", "Explain", "Log", "Doctor"]
    await tab.keyboard.press("Escape")
    await expect(pages.get_by_role("link", name="Doctor")).to_be_hidden()
    await tab.set_viewport_size(PHONE)
    await expect(pages).to_be_hidden()
    await tab.get_by_text("Menu", exact=True).click()
    await tab.get_by_role("navigation", name="All pages").get_by_role("link", name="Turns").click()
    await expect(tab.get_by_role("heading", name="Turns")).to_be_visible()
    await tab.set_viewport_size(DESK)


async def test_filters_are_picked_and_plots_say_their_figures(shared: Opened, tab: Page) -> None:
    await tab.goto(f"{shared.url}/sessions")
    await tab.get_by_label("Person").select_option(label="Bea (signal:1009)")
    await tab.get_by_label("Platform").select_option("signal")
    await tab.get_by_role("button", name="Show").press("Enter")
    await expect(tab.locator("#sessions li")).to_have_count(1)
    await expect(tab.get_by_role("button", name="Show")).to_be_focused()
    await expect(tab.get_by_label("Person")).to_have_value("signal:1009")
    await tab.goto(f"{shared.url}/usage?metric=cost")
    plot = tab.get_by_role("img")
    await expect(plot.locator("text").first).to_have_text("$0")
    bar = plot.locator("rect").last
    await bar.hover()
    await expect(tab.locator(".tip")).to_contain_text(re.compile(r"\$0\.\d+ cost"))
    await plot.focus()
    await tab.keyboard.press("ArrowLeft")
    await expect(plot.locator(".is-chosen")).to_have_count(1)
    await tab.get_by_text("The figures as a table").click()
    await expect(tab.get_by_role("row", name=re.compile(r"All .*\$0\.\d+"))).to_be_visible()


async def test_it_can_be_installed_and_says_when_it_is_offline(
    shared: Opened, owner: BrowserContext, tab: Page
) -> None:
    await tab.goto(shared.url)
    manifest = await (await tab.request.get(f"{shared.url}/manifest.webmanifest")).json()
    assert (manifest["display"], manifest["scope"]) == ("standalone", "/")
    for icon in manifest["icons"]:
        assert (await tab.request.get(f"{shared.url}{icon['src']}")).headers["content-type"] == "image/png"
    await tab.evaluate("navigator.serviceWorker.ready.then(() => true)")
    await becomes(tab, "Boolean(navigator.serviceWorker.controller)")
    await owner.set_offline(True)
    await expect(tab.locator("#connection")).to_contain_text(re.compile("offline|Not connected"))
    await tab.goto(f"{shared.url}/people")
    await expect(tab.get_by_role("heading", name="The gateway cannot be reached")).to_be_visible()
    kept = await tab.evaluate(_KEPT)
    assert all(path == "/offline" or path.startswith("/static/") for path in kept)
    await owner.set_offline(False)
    # It comes back without a click.
    await expect(tab.get_by_role("heading", name="People").first).to_be_visible()


async def test_new_pages_fit_a_phone_are_accessible_and_keep_the_language(shared: Opened, tab: Page) -> None:
    paths = (
        "/",
        *(f"/settings/{name}" for name in ("model", "tools", "accounts", "accounts/telegram", "limits", "general")),
    )
    found: list[str] = []
    for place, path in enumerate(paths):
        await tab.emulate_media(color_scheme="dark" if place % 2 else "light")
        for size in (DESK, PHONE):
            await tab.set_viewport_size(size)
            await tab.goto(f"{shared.url}{path}")
            if not await fits(tab):
                found.append(f"{path} is wider than {size['width']}")
        found += [f"{path}: {problem}" for problem in await problems(tab)]
    assert not found
