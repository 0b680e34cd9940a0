"""What somebody has written, opened or chosen in the chat stays while the connection and other tabs change."""

import asyncio
import json
import re
from datetime import timedelta

import pytest
from playwright.async_api import Browser, BrowserContext, Page, Route, expect

from palaver.model.source import Source
from palaver.protocols.clock import SystemClock
from tests.web.conftest import Opened, becomes
from tests.web.demo_data import OPERATOR, Stage
from tests.web.test_chat_window import HIDE, answered, opened_tab, owner, say, scroll_up, shared

__all__ = ["owner", "shared"]

pytestmark = pytest.mark.asyncio(loop_scope="module")

CLOSE, OPEN = (f"dispatchEvent(new PageTransitionEvent('page{what}'))" for what in ("hide", "show"))


async def lose_place(tab: Page) -> None:
    """Let the stream begin again from a place that the gateway does not know, so that it says `reset`."""

    async def lose(route: Route) -> None:
        await route.continue_(url=re.sub("after=[^&]*", "after=lost", route.request.url))

    await tab.route("**/events?*", lose, times=1)
    await tab.evaluate(CLOSE)
    await tab.evaluate(OPEN)


async def test_a_stream_that_begins_again_takes_nothing_from_a_writer(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/begun") as tab, shared.visit() as other:
        await say(tab, "one")
        await answered(tab, "You said: one")
        await tab.get_by_label("Edit and send again").click()
        edited = tab.get_by_label("Edited message")
        await edited.fill("one and a half")
        await tab.get_by_label("Files").set_input_files({"name": "a.txt", "mimeType": "text/plain", "buffer": b"a"})
        await tab.evaluate(CLOSE)
        await other.post("/chat/begun", data={"text": "two", "id": "2"})
        await lose_place(tab)
        await answered(tab, "You said: two")
        await expect(edited).to_have_value("one and a half")
        await expect(tab.locator("#chosen li")).to_have_count(1)
        await tab.evaluate("window.isSame = true")
        await lose_place(tab)
        await other.post("/chat/begun", data={"text": "three", "id": "3"})
        await answered(tab, "You said: three")
        assert await tab.evaluate("window.isSame"), "the page was not loaded again"


async def test_an_edit_of_an_old_message_stays_in_its_place(shared: Opened, owner: BrowserContext) -> None:
    long = await shared.store.read(shared.store.sessions.find("A long talk", OPERATOR))
    async with opened_tab(owner, f"{shared.url}/chat/s/{long.id}") as tab:
        pages = tab.locator("#messages > .page")
        for number in (1, 2, 3):
            await scroll_up(tab)
            await expect(pages).to_have_count(number)
        old = tab.locator("#messages > .page").first.locator(".message.mine").first
        await old.get_by_label("Edit and send again").click(force=True)
        edited = tab.get_by_label("Edited message")
        await edited.fill("in other words")
        await lose_place(tab)
        await tab.get_by_label("Jump to the newest message").click()
        await expect(tab.get_by_text("question 119")).to_be_in_viewport()
        await expect(edited).to_have_value("in other words")
        for _ in range(4):
            await edited.scroll_into_view_if_needed()
            await scroll_up(tab)
        numbers = [int(each.split()[1]) for each in await tab.locator(".message.mine .plain").all_inner_texts()]
        assert numbers == sorted(numbers)


async def test_escape_closes_what_is_open_and_does_not_stop_the_answer(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/escape") as tab:
        stops: list[str] = []
        tab.on("request", lambda request: stops.append(request.url) if request.url.endswith("/command") else None)
        await say(tab, "!slow 600 never")
        stop = tab.get_by_role("button", name="Stop")
        await expect(stop).to_be_visible()
        await tab.get_by_text("Diagnostics").first.click()
        await expect(tab.get_by_role("link", name="Doctor")).to_be_visible()
        await tab.keyboard.press("Escape")
        await expect(tab.get_by_role("link", name="Doctor")).to_be_hidden()
        await tab.locator("#text").dispatch_event("keydown", {"key": "Escape", "isComposing": True})
        assert not stops
        await tab.keyboard.press("Escape")
        await expect(stop).to_be_hidden()
        assert len(stops) == 1


async def test_files_that_are_chosen_one_after_the_other_are_all_sent(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/chosen") as tab:
        for name in ("a.txt", "b.txt"):
            await tab.get_by_label("Files").set_input_files({"name": name, "mimeType": "text/plain", "buffer": b"a"})
        await expect(tab.locator("#chosen li")).to_have_text([re.compile("a.txt"), re.compile("b.txt")])
        await tab.get_by_label("Remove a.txt").click()
        await expect(tab.locator("#chosen li")).to_have_text([re.compile("b.txt")])


async def test_a_list_that_loads_slower_than_things_happen_is_shown(shared: Opened, owner: BrowserContext) -> None:
    async def slow(route: Route) -> None:
        await asyncio.sleep(1)
        await route.continue_()

    async with opened_tab(owner, f"{shared.url}/chat/slow") as tab, shared.visit() as other:
        await tab.route("**/chat/-/list?*", slow)
        await tab.evaluate("setInterval(() => document.dispatchEvent(new Event('visibilitychange')), 100)")
        await other.post("/chat/news", data={"text": "what is new", "id": "1"})
        await expect(tab.locator("#chat-list a[href='/chat/news']")).to_be_visible()
        await tab.unroute_all(behavior="ignoreErrors")


async def test_what_was_seen_while_the_gateway_was_away_is_marked_later(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/seen") as tab:
        await tab.route("**/mark", lambda route: route.abort("internetdisconnected"))
        await say(tab, "look")
        await answered(tab, "You said: look")
        await tab.unroute("**/mark")
        async with tab.expect_response("**/mark"):
            await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")


async def test_an_answer_that_starts_over_leaves_nothing_of_the_first(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/over") as tab:
        await say(tab, "!slow 600 never")
        running = tab.locator(".message.answer.running")
        await expect(running).to_be_visible()
        session = await tab.locator("#chat-head").get_attribute("data-session")
        turn = (await running.get_attribute("id") or "").removeprefix("t-")
        growths = [
            {"closed": ["<p>one</p>", "<p>two</p>"], "open": "<p>three</p>"},
            {"closed": [""], "open": "<p>over</p>"},
        ]
        place = {"session": session, "turn": int(turn), "part": 0, "after": 0}
        body = "".join(f"event: growth\ndata: {json.dumps({**place, **each})}\n\n" for each in growths)
        headers = {"content-type": "text/event-stream"}
        await tab.route("**/events?*", lambda route: route.fulfill(headers=headers, body=body), times=1)
        await tab.evaluate(CLOSE)
        await tab.evaluate(OPEN)
        await expect(running.locator(".md > p")).to_have_text(["over"])
        await tab.get_by_role("button", name="Stop").click()


async def test_a_hidden_tab_listens_once_the_one_that_did_is_closed(shared: Opened, owner: BrowserContext) -> None:
    hide = "window.isHidden = true; document.dispatchEvent(new Event('visibilitychange'))"
    address = f"{shared.url}/chat/tabs"
    async with opened_tab(owner, address) as tab, shared.visit() as other:
        await other.post("/chat/tabs", data={"text": "one", "id": "1"})
        await answered(tab, "You said: one")
        async with opened_tab(owner, address) as first:
            for each in (first, tab):
                await each.add_init_script(HIDE)
                await each.reload()
                await answered(each, "You said: one")
                await each.evaluate(hide)
            await becomes(first, "navigator.locks.query().then(({ held }) => held.length === 1)")
        await other.post("/chat/tabs", data={"text": "two", "id": "2"})
        await expect(tab).to_have_title(re.compile(r"^\(\d\) "))


async def test_who_was_logged_out_elsewhere_is_not_called_offline(shared: Opened, chromium: Browser) -> None:
    context = await chromium.new_context()
    tab = await context.new_page()
    await tab.goto(await shared.link())
    await tab.wait_for_url(f"{shared.url}/")
    await tab.goto(f"{shared.url}/chat/logged-out")
    await say(tab, "one")
    await answered(tab, "You said: one")
    await tab.get_by_label("Edit and send again").click()
    await tab.get_by_label("Edited message").fill("one and a half")
    await context.clear_cookies()
    await tab.evaluate(CLOSE)
    await tab.evaluate(OPEN)
    banner = tab.get_by_role("status").filter(has_text="You were logged out.")
    await expect(banner.get_by_role("link", name="Log in")).to_be_visible()
    async with tab.expect_response("**/login?*"):
        await tab.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    await expect(tab.get_by_label("Edited message")).to_have_value("one and a half")
    await expect(banner).to_be_visible()
    await context.close()


RIGHT = (
    "(part) => { const range = document.createRange(); range.selectNodeContents(part); return"
    " range.getBoundingClientRect().right > part.getBoundingClientRect().right - 20; }"
)


async def test_text_from_right_to_left_begins_at_the_right(shared: Opened, owner: BrowserContext) -> None:
    words = "مرحبا، كيف الحال؟"
    async with opened_tab(owner, f"{shared.url}/chat/right") as tab:
        await say(tab, f"hello\n\n{words}\n\n- {words}")
        await answered(tab, words)
        answer = tab.locator(".message.answer .md")
        assert await answer.locator("p").last.evaluate(RIGHT)
        assert await answer.locator("li").evaluate(RIGHT)
        assert not await answer.locator("p").first.evaluate(RIGHT)
        text = tab.get_by_label("Message", exact=True)
        await text.fill(words)
        assert await text.evaluate("(text) => text.matches(':dir(rtl)')")


async def test_a_list_that_goes_on_has_each_heading_once_and_whole_titles(
    shared: Opened, owner: BrowserContext
) -> None:
    title = "x" * 99 + "z"
    stage = Stage(shared.store, SystemClock().now() - timedelta(days=100))
    for number in range(50):
        await stage.exchange(Source(platform="web", chat_id=f"owner/h{number}", user_id="owner"), "hello", "hi")
    async with opened_tab(owner, f"{shared.url}/chat/headings") as tab, shared.visit() as other:
        await say(tab, "hello")
        await answered(tab, "You said: hello")
        session = await tab.locator("#chat-head").get_attribute("data-session")
        assert (await other.post(f"/chat/-/{session}/rename", data={"title": title})).status_code == 200
        row = tab.locator(f"#c-{session}")
        await expect(row.locator(".name")).to_have_text(title)
        rows = tab.locator("#chat-list li")
        await expect(rows).to_have_count(40)
        await tab.get_by_role("button", name="Show more").click()
        await expect(rows).not_to_have_count(40)
        headings = await tab.locator("#chat-list h2").all_inner_texts()
        assert len(headings) == len(set(headings))
        counts = await tab.locator("#chat-list ul").evaluate_all("(lists) => lists.map((each) => each.children.length)")
        assert sum(counts) == await rows.count()


async def test_who_does_not_see_the_page_hears_how_the_answer_goes_on(shared: Opened, owner: BrowserContext) -> None:
    async with opened_tab(owner, f"{shared.url}/chat/heard") as tab:
        heard = tab.get_by_role("status").filter(has_text=re.compile("^(Answer|Stop|Wait)"))
        await expect(heard).to_have_count(0)
        await say(tab, "hello")
        await expect(heard).to_have_text("Answered.")
        await say(tab, "!slow 600 never")
        await expect(heard).to_have_text("Answering.")
        await tab.get_by_role("button", name="Stop").click()
        await expect(heard).to_have_text("Stopped.")
        await say(tab, "!approve it")
        await expect(heard).to_have_text("Waits for you.")
        await tab.reload()
        await expect(tab.get_by_role("button", name="Approve")).to_be_visible()
        await expect(heard).to_have_count(0)
