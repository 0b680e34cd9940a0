"""The chat window in a real browser: written, streamed, changed and found again, on both sizes and in both colours."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, ViewportSize, expect

from palaver.config.model import Config
from palaver.gateway.terminal import terminal_socket
from palaver.model.source import Source
from palaver.protocols.clock import SystemClock
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.web import WebConfig
from palaver.store.opening import open_store
from tests.platforms.terminal.people import Person
from tests.web.conftest import Opened, becomes, opened
from tests.web.demo_data import HOSTILE, OPERATOR, Stage, dm
from tests.web.hostile import HOSTILE_MARKDOWN
from tests.web.test_browser import problems

pytestmark = pytest.mark.asyncio(loop_scope="module")

PHONE, LARGE = ViewportSize(width=390, height=780), ViewportSize(width=1200, height=800)
ANSWER = """see

## The route

Take the **night train**, see https://example.org/trains.[^1]

| From | To |
|---|---|
| Berlin | Paris |

- [x] asked
- [ ] booked

> The sea is on the left.

```python
def fare(people: int) -> float:
    return people * 193.0
```

[^1]: Times change."""
LONG = 120
EXPECTED = "ERR_INTERNET_DISCONNECTED|409 \\(Conflict\\)"
"""What a browser complains about although the page deals with it."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Opened]:
    """One gateway whose agent writes word by word, and a long conversation from a phone."""
    home = tmp_path_factory.mktemp("home")
    url = str(home / "palaver.db")
    async with await open_store(url) as store:
        stage = Stage(store, SystemClock().now() - timedelta(days=2))
        session = ""
        for number in range(LONG):
            session = await stage.exchange(dm("7"), f"question {number}", f"answer **{number}**\n\nand more of it")
        await store.transact(store.titles.rename(session, "A long talk", OPERATOR))
    agent = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=15))
    async with opened(Config(data_dir=home, store=url, web=WebConfig(), agent=agent)) as window:
        yield window


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def owner(shared: Opened, chromium: Browser) -> AsyncIterator[BrowserContext]:
    context = await chromium.new_context(viewport=LARGE, permissions=["clipboard-read", "clipboard-write"])
    page = await context.new_page()
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    await page.close()
    yield context
    await context.close()


@asynccontextmanager
async def opened_tab(owner: BrowserContext, address: str) -> AsyncGenerator[Page]:
    """A tab; anything that the page complains about fails the test."""
    complaints: list[str] = []
    page = await owner.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    await page.goto(address)
    try:
        yield page
    finally:
        await page.close()
    assert not [each for each in complaints if not re.search(EXPECTED, each)]


async def say(page: Page, text: str) -> None:
    await page.get_by_label("Message", exact=True).fill(text)
    await page.keyboard.press("Enter")


async def answered(page: Page, text: str) -> None:
    """Wait until an answer is complete."""
    await expect(page.locator(".message.answer:not(.running)").last).to_contain_text(text)


KEEP_FIRST_BLOCK = """
window.grown = 0;
document.addEventListener('chat:grown', () => {
  window.grown += 1;
  const body = document.querySelector('.md.growing');
  if (body?.children.length > 1) window.first ??= body.firstChild;
});
"""
"""What is finished must not be written again while the rest grows, nor at the end."""


async def test_markdown_streams_block_by_block_and_is_kept_readable(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/markdown") as tab:
        await say(tab, "hello")
        await expect(tab.locator(".message.pending, .message.mine").first).to_be_visible()
        await answered(tab, "You said: hello")
        await tab.evaluate(KEEP_FIRST_BLOCK)
        await say(tab, ANSWER)
        await answered(tab, "Times change.")
        assert await tab.evaluate("window.grown > 2 && window.first === document.querySelectorAll('.md')[1].firstChild")
        await expect(tab.locator(".footnote")).to_be_in_viewport()
        shown = await tab.locator("#messages").inner_text()
        await tab.reload()
        assert await tab.locator("#messages").inner_text() == shown
        md = tab.locator(".md").last
        for selector in ("h4", "strong", "table td", "li.task input:checked", "blockquote", ".code .k", "sup"):
            await expect(md.locator(selector).first).to_be_visible()
        await expect(md.get_by_role("link")).to_have_attribute("rel", "noopener noreferrer nofollow")
        await expect(md.locator(".code-head span")).to_have_text("python")
        await md.get_by_role("button", name="Copy").click()
        await expect(md.get_by_role("button", name="Copied")).to_be_visible()
        assert (await tab.evaluate("navigator.clipboard.readText()")).startswith("def fare(people: int)")
        await tab.locator(".answer").last.get_by_label("Copy", exact=True).click()
        await becomes(tab, "navigator.clipboard.readText().then((text) => text.includes('## The route'))")
        await tab.get_by_text("Details").last.click()
        await expect(tab.locator(".facts-of").last).to_contain_text(
            re.compile(r"echo · \d+ tokens in, \d+ out · .* · .* s")
        )
        await expect(tab.get_by_label("Trace").last).to_have_attribute("href", re.compile(r"/trace\?name=turn:\d+"))
        assert not await problems(tab)


async def test_the_composer_grows_completes_takes_files_stops_and_forgets_nothing(
    shared: Opened, owner: BrowserContext
) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/composer") as tab:
        text = tab.get_by_label("Message", exact=True)
        height = (await text.bounding_box() or {})["height"]
        await text.press_sequentially("one")
        for _ in range(4):
            await text.press("Shift+Enter")
        await text.press_sequentially("five")
        assert (await text.bounding_box() or {})["height"] > height + 40
        await tab.reload()
        await expect(text).to_have_value("one\n\n\n\nfive")
        await text.fill("/mod")
        await expect(tab.get_by_role("option", name="/model")).to_be_visible()
        await text.press("Tab")
        await expect(text).to_have_value("/model ")
        await text.fill("look")
        await tab.evaluate(
            """() => {
              const data = new DataTransfer();
              const dot = atob('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk'
                + '+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==');
              const bytes = Uint8Array.from(dot, (each) => each.charCodeAt(0));
              data.items.add(new File([bytes], 'dot.png', { type: 'image/png' }));
              const area = document.getElementById('text');
              area.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
              const dropped = new DataTransfer();
              dropped.items.add(new File(['RIFF'], 'a.wav', { type: 'audio/wav' }));
              dropped.items.add(new File(['<svg onload="window.ran=1"/>'], '<b>.svg', { type: 'image/svg+xml' }));
              area.dispatchEvent(new DragEvent('drop', { dataTransfer: dropped, bubbles: true, cancelable: true }));
            }"""
        )
        await expect(tab.locator("#chosen li")).to_have_count(3)
        await tab.get_by_role("button", name="Send").click()
        await answered(tab, "You said: look")
        mine = tab.locator(".message.mine").last
        await expect(mine.locator(".picture img")).to_be_visible()
        await expect(mine.locator("audio")).to_be_visible()
        await expect(mine.locator("a.file")).to_contain_text("<b>.svg")
        await expect(tab.locator("#chosen li")).to_have_count(0)
        await say(tab, "!slow 600 first")
        await expect(tab.get_by_role("button", name="Stop")).to_be_visible()
        await say(tab, "second")
        await expect(tab.locator(".message.waits")).to_contain_text("Queued")
        await text.press("Escape")
        await answered(tab, "You said: second")
        await expect(tab.get_by_role("button", name="Stop")).to_be_hidden()
        await text.press("ArrowUp")
        await expect(tab.get_by_label("Edited message")).to_have_value("second")
        await tab.get_by_label("Edited message").press("Escape")
        await owner.set_offline(True)
        await expect(tab.get_by_text("You are offline.")).to_be_visible()
        await say(tab, "while away")
        await say(tab, "and later")
        await say(tab, "/whoami")
        await expect(tab.locator(".message.pending").first).to_contain_text("will be sent when the gateway is back")
        await expect(tab.locator(".message.pending")).to_have_count(3)
        await owner.set_offline(False)
        await answered(tab, "You said: and later")
        said = await tab.locator(".message.mine:not(.aside) .plain").all_inner_texts()
        assert said[-2:] == ["while away", "and later"]
        await expect(tab.get_by_text("You are offline.")).to_be_hidden()


async def test_undo_retry_edit_and_branch_show_in_every_tab_what_the_model_sees(
    shared: Opened, owner: BrowserContext
) -> None:
    address = f"{shared.url}/chat/versions"
    async with opened_tab(owner, address) as tab, opened_tab(owner, address) as other:
        await say(tab, "one")
        await answered(tab, "You said: one")
        await answered(other, "You said: one")
        await tab.get_by_label("Answer again").click()
        for each in (tab, other):
            await expect(each.locator(".message.answer .pager span")).to_have_text("2/2")
            await expect(each.locator(".message.answer:not(.running)")).to_have_count(1)
        await other.get_by_label("Edit and send again").click()
        await other.get_by_label("Edited message").fill("uno")
        await other.keyboard.press("Enter")
        for each in (tab, other):
            await answered(each, "You said: uno")
            await expect(each.locator(".message.mine .pager span")).to_have_text("3/3")
        await tab.get_by_label("Previous version").click()
        for each in (tab, other):
            await expect(each.locator(".pager span")).to_have_text("2/3")
            await answered(each, "You said: one")
        await expect(tab.locator("#chat-list [aria-current]")).to_have_count(1)
        await expect(tab.locator("#chat-list a[href='/chat/versions']")).to_have_count(1)
        await say(tab, "two")
        await answered(other, "You said: two")
        await other.get_by_label("Undo the last message").click()
        for each in (tab, other):
            await expect(each.get_by_text("You said: two")).to_have_count(0)
        await other.get_by_role("button", name="Redo").click()
        for each in (tab, other):
            await answered(each, "You said: two")
        await tab.get_by_label("Edit and send again").last.click()
        await tab.get_by_label("Edited message").fill("deux")
        await other.get_by_label("Undo the last message").click()
        await expect(other.get_by_text("You said: two")).to_have_count(0)
        await tab.get_by_role("button", name="Send", exact=True).first.click()
        await expect(tab.get_by_role("alert").first).to_contain_text("not part of the conversation any more")
        await expect(tab.get_by_label("Edited message")).to_have_value("deux")
        await tab.get_by_role("button", name="Cancel").click()
        await expect(tab.locator(".message.mine .plain")).to_have_text(["one"])
        await other.get_by_role("button", name="Redo").click()
        await answered(tab, "You said: two")
        await _branch(shared, tab, other)


APART = """([one, other]) => {
  const [a, b] = [one, other].map((each) => document.querySelector(each).getBoundingClientRect());
  return a.top >= b.bottom || b.top >= a.bottom;
}"""


async def _branch(shared: Opened, tab: Page, other: Page) -> None:
    """A branch has its own address and number; versions have neither."""
    address = tab.url
    await tab.locator("#chat-list [aria-current] + details summary").focus()
    await tab.keyboard.press("Enter")
    await tab.locator("#chat-list details[open]").get_by_role("button", name="Rename").click()
    await tab.get_by_label("Title").fill("Counting")
    await tab.keyboard.press("Enter")
    await tab.get_by_label("Branch from here").first.dblclick()
    await tab.wait_for_url(re.compile("/chat/[0-9a-f]{8}$"))
    await expect(tab.locator("#toast")).to_contain_text("This is a branch.")
    await expect(tab.locator("#text")).to_be_focused()
    assert await tab.evaluate(APART, ["#toast", "#scroll"]), "a toast covers no message"
    await expect(tab.locator("#chat-head h1")).to_have_text("Counting #2")
    await answered(other, "You said: two")
    for path, names in (("/sessions", "#sessions li"), ("/chat", "#chat-list .name")):
        await other.goto(f"{shared.url}{path}")
        await expect(other.locator(names).filter(has_text="Counting")).to_have_count(2)
    await expect(other).to_have_url(tab.url)
    await tab.get_by_role("button", name="Go back").click()
    await tab.wait_for_url(address)
    await answered(tab, "You said: two")
    await tab.get_by_label("Branch from here").first.click()
    await expect(tab.locator("#toast")).to_contain_text("This is a branch.")
    await say(tab, "three")
    await expect(tab.locator("#toast")).to_be_hidden()


async def test_tools_ask_by_a_button_and_a_conversation_has_its_model_and_instructions(
    shared: Opened, owner: BrowserContext
) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/tools") as tab:
        await say(tab, "!approve the plan")
        card = tab.locator(".card.tool")
        await expect(card).to_contain_text("waits for you")
        await expect(tab.locator("#chat-list [data-asks]")).to_have_count(1)
        await tab.get_by_role("button", name="Approve").click()
        await answered(tab, "You said: the plan")
        await expect(card).to_contain_text("done")
        answer = tab.locator(".message.answer").last
        good, bad = (answer.get_by_role("button", name=name) for name in ("Good answer", "Bad answer"))
        for button, pressed in ((good, "👍"), (bad, "👎")):
            await button.click()
            await expect(button).to_have_attribute("aria-pressed", "true")
            await expect(answer.get_by_label("Feedback")).to_have_text(pressed)
        await bad.click()
        await expect(answer.get_by_label("Feedback")).to_have_count(0)
        assert "/approve" not in await tab.locator("#messages").inner_text(), "a button is no message"
        await say(tab, '!use ask_user {"question": "Where <b>to</b>?", "choices": ["Paris", "Rome"]}')
        await expect(tab.locator(".card.asked.asks")).to_contain_text("Where <b>to</b>?")
        await tab.get_by_role("button", name="Rome").click()
        await answered(tab, "ask_user: Rome")
        await say(tab, '!use ask_user {"question": "And then?"}')
        await expect(tab.locator(".card.asked.asks")).to_contain_text("Write your answer below.")
        await say(tab, "home")
        await answered(tab, "ask_user: home")
        await expect(tab.locator(".message.mine").filter(has_text="home")).to_have_count(1)
        await tab.get_by_label("Model").select_option("loud")
        await expect(tab.locator("#toast")).to_contain_text("uses loud")
        await say(tab, "hush")
        await answered(tab, "YOU SAID: HUSH")
        await tab.get_by_label("Settings of this conversation").click()
        await expect(tab.locator("#settings")).to_contain_text("Profile")
        await tab.get_by_label("Instructions").fill("Answer in <b>Portuguese</b>.")
        await tab.get_by_role("button", name="Save").click()
        await expect(tab.locator("#toast")).to_contain_text("Saved.")
        await tab.reload()
        assert await tab.get_by_label("Instructions").input_value() == "Answer in <b>Portuguese</b>."
        await say(tab, "!fail now")
        await expect(tab.get_by_role("button", name="Try again")).to_be_visible()
        await expect(tab.get_by_role("link", name="Check the model")).to_have_attribute("href", "/settings/model")


async def test_conversations_are_listed_found_kept_and_deleted_with_a_way_back(
    shared: Opened, owner: BrowserContext
) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/listed") as tab:
        await say(tab, "a walrus on the beach")
        await answered(tab, "walrus")
        await tab.get_by_role("button", name="New conversation").click()
        await tab.wait_for_url(re.compile("/chat/[0-9a-f]{8}$"))
        await expect(tab.get_by_text("What can I do for you?")).to_be_visible()
        row = tab.locator("#chat-list li").filter(has_text="walrus")
        await tab.get_by_label("Search conversations").fill("wal")
        await expect(tab.locator("#chat-list h2")).to_have_text(["Found"])
        await expect(row).to_be_visible()
        await tab.get_by_label("Search conversations").fill("zebra")
        await expect(tab.locator("#chat-list h2")).to_have_text(["Nothing found"])
        await tab.get_by_label("Search conversations").fill("")
        await expect(tab.locator("#chat-list h2").first).to_have_text("Today")

        async def choose(action: str) -> None:
            await row.hover()
            await row.locator("summary").click()
            await row.get_by_role("button", name=action, exact=True).click()

        await choose("Pin")
        await expect(tab.locator("#chat-list h2").first).to_have_text("Pinned")
        await choose("Rename")
        await tab.get_by_label("Title").fill("The walrus <i>")
        await tab.keyboard.press("Enter")
        await expect(row.locator(".name")).to_have_text("The walrus <i>")
        await choose("Archive")
        await expect(row).to_have_count(0)
        async with opened_tab(owner, f"{shared.url}/chat/listed") as again:
            await say(again, "the walrus is back")
            await answered(again, "walrus is back")
        await expect(row).to_be_visible()
        await choose("Archive")
        await expect(row).to_have_count(0)
        await tab.get_by_role("button", name="Archived").click()
        await expect(row).to_have_count(1)
        await choose("Unarchive")
        await expect(row).to_have_count(0)
        await tab.get_by_role("button", name="Back to conversations").click()
        await choose("Delete")
        await expect(row).to_be_hidden()
        await tab.get_by_role("button", name="Undo", exact=True).click()
        await expect(row).to_be_visible()
        async with opened_tab(owner, f"{shared.url}/chat/listed") as busy:
            await say(busy, "!slow 600 about the walrus")
            await expect(busy.get_by_role("button", name="Stop")).to_be_visible()
        await choose("Delete")
        await tab.goto(f"{shared.url}/chat/another")
        await expect(row).to_have_count(0)
        async with opened_tab(owner, f"{shared.url}/chat/listed") as gone:
            await expect(gone.get_by_text("What can I do for you?")).to_be_visible()


async def test_what_was_unfolded_in_the_list_stays_when_something_happens(
    shared: Opened, owner: BrowserContext
) -> None:
    stage = Stage(shared.store, SystemClock().now() - timedelta(days=9))
    for number in range(45):
        place = Source(platform="web", chat_id=f"owner/old{number}", user_id="owner")
        await stage.exchange(place, f"old talk {number}", "yes")
    async with opened_tab(owner, f"{shared.url}/chat/unfolded") as tab:
        oldest = tab.locator("#chat-list").get_by_text("old talk 0", exact=True)
        more = tab.get_by_role("button", name="Show more")
        await expect(oldest).to_have_count(0)
        held, first = asyncio.Event(), await tab.locator("#chat-list .name").first.inner_text()
        await tab.route("**/chat/-/list?*", lambda _: held.set(), times=1)
        await more.click()
        await held.wait()
        # The list is read for this as well, and that takes the place of what is held.
        await stage.exchange(Source(platform="web", chat_id="owner/old44", user_id="owner"), "one more", "yes")
        await expect(oldest).to_have_count(1)
        focused = tab.locator("#chat-list li:focus-within .name")
        await expect(focused).to_contain_text("old talk")
        await expect(focused).not_to_have_text(first)
        await say(tab, "look at the list")
        await expect(tab.locator("#chat-list li").first).to_contain_text("look at the list")
        await expect(oldest).to_have_count(1)
        await tab.get_by_role("button", name="Archived").click()
        await expect(more).to_have_count(0)
        await tab.get_by_role("button", name="Back to conversations").click()
        await expect(more).to_have_count(1)


async def test_a_model_that_was_chosen_by_hand_and_then_by_a_command_is_shown(
    shared: Opened, owner: BrowserContext
) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/models") as tab:
        await say(tab, "hello")
        await answered(tab, "You said: hello")
        await tab.locator("#model").select_option("loud")
        await expect(tab.locator("#toast")).to_contain_text("loud")
        await say(tab, "/model default")
        await expect(tab.locator("#model")).to_have_value("default")


async def test_an_open_menu_stays_open_when_its_row_moves(shared: Opened, owner: BrowserContext) -> None:
    async with (
        opened_tab(owner, f"{shared.url}/chat/first") as other,
        opened_tab(owner, f"{shared.url}/chat/second") as tab,
    ):
        await say(other, "about one")
        await answered(other, "about one")
        await say(tab, "about two")
        await answered(tab, "about two")
        rows = tab.locator("#chat-list li")
        await expect(rows.first).to_contain_text("about two")
        await rows.first.locator("summary").focus()
        await tab.keyboard.press("Enter")
        for page, topmost in ((other, "about one"), (tab, "about two")):
            await page.evaluate(
                "document.getElementById('text').value = 'more'; document.getElementById('compose').requestSubmit()"
            )
            await expect(rows.first).to_contain_text(topmost)
            await expect(rows.filter(has_text="about two").get_by_role("button", name="Archive")).to_be_visible()
            await expect(tab.locator("#chat-list summary:focus")).to_have_count(1)


REACHED = """([name, focused]) => {
  const at = document.activeElement;
  const said = (at?.getAttribute('aria-label') || at?.textContent || '').trim();
  return said.startsWith(name) && (!focused || at.matches(focused));
}"""


async def reach(page: Page, name: str, *, back: bool = False, within: str = "") -> None:
    """Press Tab until something of this name has the focus."""
    for _ in range(200):
        await page.keyboard.press("Shift+Tab" if back else "Tab")
        if await page.evaluate(REACHED, [name, within]):
            return
    pytest.fail(f"no key leads to {name}")


async def test_a_whole_conversation_needs_no_mouse(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/keys") as tab:
        keys, text = tab.keyboard, tab.get_by_label("Message", exact=True)
        await expect(text).to_be_focused()
        await keys.type("salut")
        await keys.press("Enter")
        await answered(tab, "You said: salut")
        await keys.type("!slow 600 never")
        await keys.press("Enter")
        await expect(tab.get_by_role("button", name="Stop")).to_be_visible()
        await keys.press("Escape")
        await expect(tab.get_by_role("button", name="Stop")).to_be_hidden()
        await expect(text).to_be_focused()
        await keys.press("ArrowUp")
        await expect(tab.get_by_label("Edited message")).to_be_focused()
        await keys.press("Control+a")
        await keys.type("good evening")
        await keys.press("Enter")
        await answered(tab, "You said: good evening")
        await expect(text).to_be_focused()
        await reach(tab, "Previous version", back=True)
        await keys.press("Enter")
        await expect(tab.locator(".pager span")).to_have_text("1/2")
        await expect(tab.get_by_label("Next version")).to_be_focused()
        await keys.press("Enter")
        await expect(tab.locator(".pager span")).to_have_text("2/2")
        await answered(tab, "You said: good evening")
        await reach(tab, "Branch from here")
        await keys.press("Enter")
        await tab.wait_for_url(re.compile("/chat/[0-9a-f]{8}$"))
        await expect(text).to_be_focused()
        await keys.type("!approve a walk")
        await keys.press("Enter")
        await expect(tab.get_by_role("button", name="Approve")).to_be_visible()
        await reach(tab, "Approve", back=True)
        await keys.press("Enter")
        await answered(tab, "You said: a walk")
        await expect(text).to_be_focused()
        await _manage_by_keys(shared, tab)


async def _manage_by_keys(shared: Opened, tab: Page) -> None:
    """Rename, delete, take back and find again what is open."""
    keys = tab.keyboard
    await reach(tab, "More for salut #2", back=True)
    await keys.press("Enter")
    await reach(tab, "Rename")
    await keys.press("Enter")
    await keys.type("Without a mouse")
    await keys.press("Enter")
    await expect(tab.locator("#chat-head h1")).to_have_text("Without a mouse")
    row = tab.locator("#chat-list li").filter(has_text="Without a mouse")
    await expect(row.locator("a").first).to_be_focused()
    await reach(tab, "More for Without a mouse")
    await keys.press("Enter")
    await reach(tab, "Delete")
    await keys.press("Enter")
    await expect(row).to_be_hidden()
    await expect(tab.get_by_role("button", name="Undo", exact=True)).to_be_focused()
    await keys.press("Enter")
    await expect(row.locator("a").first).to_be_focused()
    await reach(tab, "", back=True, within="#chat-search")
    await keys.type("walk")
    await expect(tab.locator("#chat-list h2")).to_have_text(["Found"])
    await keys.press("ArrowDown")
    await expect(row.locator("a").first).to_be_focused()
    await keys.press("ArrowUp")
    await expect(tab.get_by_label("Search conversations")).to_be_focused()
    await tab.goto(shared.url)
    await keys.press("Control+k")
    await keys.type("without a m")
    await expect(tab.get_by_role("option", name="Without a mouse")).to_be_visible()
    await keys.press("Enter")
    await tab.wait_for_url(re.compile("/(sessions|chat)/"))
    await expect(tab.get_by_role("heading", name="Without a mouse")).to_be_visible()


async def test_a_conversation_from_elsewhere_is_continued_here_and_its_end_is_found(
    shared: Opened, owner: BrowserContext
) -> None:
    person = Person(terminal_socket(shared.config), "ann")
    async with person.present():
        await person.say("from the terminal")
    found = await shared.store.read(shared.store.session_list.recent_sessions(OPERATOR, 1))
    async with opened_tab(owner, f"{shared.url}/chat/s/{found[0].session.id}") as tab:
        await expect(tab.locator("#chat-head .from")).to_be_visible()
        await answered(tab, "You said: from the terminal")
        await say(tab, "from the browser")
        await answered(tab, "You said: from the browser")
        entries = await shared.store.read(shared.store.transcript.load_visible(found[0].session.id, OPERATOR))
        assert entries[-1].text == "You said: from the browser", "it is one conversation"
        await say(tab, "!slow 600 never")
        await expect(tab.get_by_role("button", name="Stop")).to_be_visible()
        await tab.get_by_label("Answer again").first.click()
        await expect(tab.locator("#toast")).to_have_text("It is still answering. Stop it or wait, then try again.")
        await tab.get_by_role("button", name="Stop").click()
        await expect(tab.get_by_role("button", name="Stop")).to_be_hidden()
        async with person.present():
            await person.say("and again")
            await answered(tab, "You said: and again")
    long = await shared.store.read(shared.store.sessions.find("A long talk", OPERATOR))
    async with opened_tab(owner, f"{shared.url}/chat/s/{long.id}") as tab:
        last = tab.get_by_text(f"question {LONG - 1}")
        await expect(last).to_be_in_viewport()
        first = tab.locator("#messages > li").first
        name = await first.get_attribute("id")
        pages = tab.locator("#messages > .page")
        await scroll_up(tab)
        await expect(pages).to_have_count(1)
        await expect(tab.locator(f"#{name}")).to_be_in_viewport()
        for number in range(2, 20):
            if await tab.get_by_text("question 0", exact=True).count():
                break
            await scroll_up(tab)
            await expect(pages).to_have_count(number)
        await expect(tab.locator("#messages > .page:empty").first).to_be_attached()
        shown = await tab.locator(".message").count()
        assert shown < 2 * LONG, "pages out of sight are empty"
        await tab.locator("#messages > .page:empty").last.scroll_into_view_if_needed()
        await expect(tab.locator("#messages > .page").last.locator(".message").first).to_be_visible()
        await tab.get_by_label("Jump to the newest message").click()
        await expect(last).to_be_in_viewport()
        await expect(pages).to_have_count(0)
        await scroll_up(tab)
        await expect(pages).not_to_have_count(0)


async def scroll_up(tab: Page) -> None:
    await tab.locator("#scroll").evaluate("(scroll) => { scroll.scrollTop = 0; }")


HIDE = """
Object.defineProperty(document, 'hidden', { get: () => window.isHidden === true, configurable: true });
window.told = [];
window.Notification = class extends EventTarget {
  static permission = 'granted';
  constructor(title, { body }) { super(); window.told.push(`${title}: ${body}`); }
};
"""


async def test_what_waits_is_announced_while_nobody_looks(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/hidden") as tab:
        await tab.add_init_script(HIDE)
        await tab.reload()
        await say(tab, "!slow 1 the news")
        await expect(tab.get_by_role("button", name="Stop")).to_be_visible()
        await expect(tab).to_have_title(re.compile("^(?!\\()"))
        await tab.evaluate("window.isHidden = true; document.dispatchEvent(new Event('visibilitychange'))")
        await expect(tab).to_have_title(re.compile(r"^\(\d\) "))
        await becomes(tab, "window.told.some((each) => each.endsWith('Answered.'))")
        await tab.evaluate("window.isHidden = false; document.dispatchEvent(new Event('visibilitychange'))")
        await expect(tab).to_have_title(re.compile("^(?!\\()"))


async def test_a_phone_in_the_dark_shows_everything_and_keeps_nobody_out(shared: Opened, chromium: Browser) -> None:
    context = await chromium.new_context(viewport=PHONE, color_scheme="dark", has_touch=True, is_mobile=True)
    page = await context.new_page()
    await page.goto(await shared.link())
    await page.wait_for_url(f"{shared.url}/")
    async with opened_tab(context, f"{shared.url}/chat/phone") as tab:
        await say(tab, ANSWER)
        await answered(tab, "Times change.")
        assert await tab.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        assert not await problems(tab)
        assert await tab.evaluate(APART, ["#chat-head h1", "#model"]), "the title has a line of its own"
        acts = tab.locator(".message.mine .acts")
        await expect(acts).to_have_css("height", "0px")
        await tab.locator(".message.mine .plain").tap()
        await expect(acts).not_to_have_css("height", "0px")
        await tab.get_by_label("Show conversations").click()
        await expect(tab.get_by_role("button", name="New conversation")).to_be_in_viewport()
        assert not await problems(tab)
        await tab.keyboard.press("Escape")
        await expect(tab.get_by_role("button", name="New conversation")).not_to_be_in_viewport()
    await context.close()


LOOK = "[typeof window.ran, document.querySelectorAll('#planted, #messages script, #messages iframe').length]"


async def test_nothing_that_is_said_named_or_attached_runs(shared: Opened, owner: BrowserContext) -> None:
    """Through the chat, its list and its search, the transcript, the search page and every export."""
    stage = Stage(shared.store, SystemClock().now())
    place, session = dm("evil"), ""
    for text in (*HOSTILE_MARKDOWN, *HOSTILE[:-1]):
        session = await stage.exchange(place, text, text, name=text[:200])
    await shared.store.transact(shared.store.titles.rename(session, "<img src=x onerror=window.ran=1>", OPERATOR))
    pages = [f"/chat/s/{session}", f"/sessions/{session}", "/search?q=script", "/sessions"]
    async with opened_tab(owner, f"{shared.url}/chat/evil") as tab:
        svg = {"name": "<svg onload=window.ran=1>.svg", "mimeType": "image/svg+xml", "buffer": b"<svg onload='ran=1'/>"}
        await tab.get_by_label("Files").set_input_files([svg])  # pyright: ignore[reportArgumentType]
        await say(tab, HOSTILE_MARKDOWN[0])
        await answered(tab, "click")
        await tab.get_by_label("Search conversations").fill("script")
        await expect(tab.locator("#chat-list h2")).to_have_text([re.compile("ound")])
        assert await tab.evaluate(LOOK) == ["undefined", 0]
        link = await tab.locator(".mine a.file").get_attribute("href")
        stored = await tab.request.get(f"{shared.url}{link}")
        assert (stored.headers["content-type"], stored.headers["content-disposition"][:10]) == (
            "application/octet-stream",
            "attachment",
        )
        for path in pages:
            answer = await tab.goto(f"{shared.url}{path}")
            assert answer
            assert "script-src 'self'" in answer.headers["content-security-policy"]
            assert "unsafe" not in answer.headers["content-security-policy"]
            assert await tab.evaluate(LOOK) == ["undefined", 0], path
        for form in ("md", "html", "jsonl"):
            exported = await tab.request.get(f"{shared.url}/sessions/{session}/export?format={form}")
            assert exported.headers["content-security-policy"] == "sandbox; default-src 'none'"
            if form == "html":
                blank = await owner.new_page()
                await blank.set_content(await exported.text())
                assert await blank.evaluate("typeof window.ran") == "undefined"
                await blank.close()
