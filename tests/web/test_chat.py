"""The web chat: said, answered, grown, kept while nobody looks, and nobody else's."""

import asyncio
import re
from collections.abc import AsyncGenerator
from datetime import timedelta

import httpx
import pytest
from playwright.async_api import Browser, Page, expect

from palaver.config.model import Config
from palaver.settings.agents import EchoAgentConfig
from palaver.settings.quotas import GrantConfig
from tests.web.conftest import READERS, Opened, opened
from tests.web.demo_data import OPERATOR

LINE = re.compile(
    r'<li id="[^"]*" class="message ?([^"]*)".*?<div class="(?:plain|md)">(?:<p>)?(.*?)(?:</p>)?</div>', re.DOTALL
)


def lines(page: str) -> list[tuple[bool, str]]:
    found = LINE.findall(page.partition('<ol id="messages"')[2])
    return [("mine" in kind, text.replace("<br>", "\n")) for kind, text in found if "note" not in kind]


async def until_said(client: httpx.AsyncClient, count: int, name: str = "main") -> list[tuple[bool, str]]:
    """Wait until so much is said, and no answer is still empty."""
    found: list[tuple[bool, str]] = []
    async with asyncio.timeout(60):
        while len(found) < count or (False, "") in found:
            await asyncio.sleep(0.02)
            found = lines((await client.get(f"/chat/{name}")).text)
    return found


async def until_shown(client: httpx.AsyncClient, text: str) -> str:
    """Wait until the page of the chat has a text; return the page."""
    page = ""
    async with asyncio.timeout(60):
        while text not in page:
            await asyncio.sleep(0.02)
            page = (await client.get("/chat/main")).text
    return page


async def test_what_was_said_and_answered_is_there_no_matter_when_one_looks(client: httpx.AsyncClient) -> None:
    """Nobody listens while the answer is made."""
    assert (await client.post("/chat/main", data={"text": "hello <b>you</b>", "id": "1"})).status_code == 200
    said = [(True, "hello &lt;b&gt;you&lt;/b&gt;"), (False, "You said: hello &lt;b&gt;you&lt;/b&gt;")]
    assert await until_said(client, 2) == said
    assert (await client.post("/chat/main", data={"text": "hello <b>you</b>", "id": "1"})).status_code == 200
    assert (await client.post("/chat/main", data={"text": "/whoami", "id": "2"})).status_code == 200
    assert len(await until_said(client, 4)) == 4, "said again under the same id it is the same message"


async def test_what_a_job_says_stands_in_the_chat_that_set_it(client: httpx.AsyncClient) -> None:
    for number, text in enumerate(("/jobs add 1h Feed the cat", "/jobs run 1")):
        assert (await client.post("/chat/main", data={"text": text, "id": str(number)})).status_code == 200
    async with asyncio.timeout(60):
        while (False, "You said: Feed the cat") not in await until_said(client, 4):
            pass


async def test_conversations_are_apart(client: httpx.AsyncClient) -> None:
    begun = await client.post("/chat")
    name = begun.headers["location"].rpartition("/")[2]
    await client.post("/chat/main", data={"text": "one", "id": "1"})
    await client.post(f"/chat/{name}", data={"text": "two", "id": "1"})
    assert await until_said(client, 2) == [(True, "one"), (False, "You said: one")]
    assert await until_said(client, 2, name) == [(True, "two"), (False, "You said: two")]
    newest = await client.get("/chat")
    assert (newest.status_code, newest.headers["location"]) == (303, f"/chat/{name}")
    assert f'href="/chat/{name}"' in (await client.get("/chat/main")).text
    assert (await client.get("/chat/..%2Fowner")).status_code == 404
    assert (await client.get("/chat/No%20such")).status_code == 404


async def test_everybody_has_chats_of_their_own_and_no_others(config: Config) -> None:
    grants = tuple(GrantConfig(platform="web", user_id=name) for name in ("alice", "bob"))
    async with opened(config.model_copy(update={"grants": (*grants, *READERS)})) as window:
        async with window.visit() as owner, window.visit("web:alice") as alice, window.visit("web:bob") as bob:
            await alice.post("/chat/main", data={"text": "for alice alone", "id": "1"}, files=[("files", b"")])
            await until_said(alice, 2)
            await bob.post("/chat/main", data={"text": "I am bob", "id": "1"})
            assert await until_said(bob, 2) == [(True, "I am bob"), (False, "You said: I am bob")]
            assert lines((await owner.get("/chat/main")).text) == []
            for other in (bob, owner):
                assert "alone" not in (await other.get("/chat/main")).text
            assert "alone" not in (await bob.get("/")).text
        async with window.visit("telegram:7") as elsewhere:
            assert (await elsewhere.get("/chat/main")).status_code == 403


async def test_files_go_up_and_come_down_and_run_nothing(client: httpx.AsyncClient) -> None:
    files = [
        ("files", ("../../etc/<b>page.html", b"<script>alert(1)</script>", "text/html")),
        ("files", ("dot.png", b"\x89PNG\r\n\x1a\n", "image/png")),
    ]
    assert (await client.post("/chat/main", data={"text": "look", "id": "1"}, files=files)).status_code == 200
    await until_said(client, 2)
    page = (await client.get("/chat/main")).text
    links = re.findall(r'class="(?:file|picture)" href="([^"]+)"', page)
    assert len(links) == 2
    first, second = [await client.get(link) for link in links]
    assert first.content == b"<script>alert(1)</script>"
    assert first.headers["content-type"] == "application/octet-stream"
    assert first.headers["content-disposition"] == "attachment; filename*=UTF-8''%3Cb%3Epage.html"
    assert first.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert second.headers["content-type"] == "image/png"
    assert second.headers["content-disposition"].startswith("inline")
    assert (await client.get(links[0] + "0")).status_code == 404


async def test_a_file_stays_for_as_long_as_its_message_waits(window: Opened, client: httpx.AsyncClient) -> None:
    await client.post("/chat/main", data={"text": "!approve it", "id": "1"})
    await until_shown(client, "/approve")
    files = [("files", ("plan.txt", b"the plan", "text/plain"))]
    await client.post("/chat/main", data={"text": "/queue look", "id": "2"}, files=files)
    engine = window.gateway._engine  # pyright: ignore[reportPrivateUsage]
    assert engine
    await engine._attachments.clean_up(timedelta(seconds=-1))  # pyright: ignore[reportPrivateUsage]
    await client.post("/chat/main", data={"text": "/deny", "id": "3"})
    (link,) = re.findall(r'class="file" href="([^"]+)"', await until_shown(client, "You said: look"))
    assert (await client.get(link)).content == b"the plan"


async def test_a_file_that_is_too_large_is_refused_and_nothing_is_said(config: Config) -> None:
    small = config.model_copy(update={"limits": config.limits.model_copy(update={"file_size": 1000})})
    async with opened(small) as window, window.visit() as client:
        answer = await client.post(
            "/chat/main", data={"text": "look", "id": "1"}, files=[("files", ("big.bin", b"0" * 2000))]
        )
        assert (answer.status_code, "big.bin is larger than 1 kB" in answer.text) == (413, True)
        much = await client.post("/chat/main", data={"text": "look"}, files=[("files", ("x", b"0" * 3_000_000))])
        assert much.status_code == 413, "refused before it is read"
        assert lines((await client.get("/chat/main")).text) == []


async def test_text_that_turns_around_or_is_huge_is_shown_as_it_is_and_never_cut_unsaid(
    client: httpx.AsyncClient,
) -> None:
    await client.post("/chat/main", data={"text": "photo \u202egnp.exe", "id": "1"})
    assert (True, "photo \\u202egnp.exe") in await until_said(client, 2)
    too_long = await client.post("/chat/main", data={"text": "x" * 200_001, "id": "2"})
    assert (too_long.status_code, "at most 200,000 characters, not 200,001" in too_long.text) == (413, True)
    await client.post("/chat/main", data={"text": "y" * 70_000, "id": "3"})
    await until_said(client, 3)
    page = (await client.get("/chat/main")).text
    assert ("y" * 60_000 in page, "y" * 60_001 in page) == (True, False)
    assert "The transcript has all 70000 characters" in page


async def test_lines_end_as_they_were_typed_no_matter_what_a_browser_makes_of_them(
    window: Opened, client: httpx.AsyncClient
) -> None:
    await client.post("/chat/main", data={"text": "one\r\ntwo", "id": "1"})
    assert await until_said(client, 2) == [(True, "one\ntwo"), (False, "You said: one\ntwo")]
    found = await window.store.read(window.store.session_list.recent_sessions(OPERATOR, 1))
    entries = await window.store.read(window.store.transcript.load_all(found[0].session.id, OPERATOR))
    assert [entry.text for entry in entries[-2:]] == ["one\ntwo", "You said: one\ntwo"]


async def test_words_alone_are_never_large(client: httpx.AsyncClient) -> None:
    assert (await client.post("/chat/main", data={"text": "x" * 3_000_000})).status_code == 413


async def test_what_does_not_say_how_long_it_is_is_not_read(client: httpx.AsyncClient) -> None:
    async def endless() -> AsyncGenerator[bytes]:
        yield b"x"

    kind = {"content-type": "multipart/form-data; boundary=x"}
    assert (await client.post("/chat/main", content=endless(), headers=kind)).status_code == 411


async def test_talking_in_a_browser(window: Opened, tab: Page) -> None:
    await tab.goto(f"{window.url}/chat")
    await tab.get_by_label("Message", exact=True).fill("hello there")
    await tab.keyboard.press("Enter")
    await expect(tab.locator("#messages .message:not(.note)")).to_have_text(
        [re.compile("hello there"), re.compile("You said: hello")]
    )
    await tab.get_by_label("Message", exact=True).fill("/wh")
    await expect(tab.get_by_role("option", name="/whoami")).to_be_visible()
    await tab.keyboard.press("Tab")
    await expect(tab.get_by_label("Message", exact=True)).to_have_value("/whoami ")
    await tab.keyboard.press("Enter")
    await expect(tab.locator("#messages .message:not(.note)")).to_have_count(4)
    await tab.reload()
    await expect(tab.locator("#messages .message:not(.note)")).to_have_count(4)


async def test_an_answer_grows_and_can_be_allowed_by_a_button(config: Config, browser_page: Page) -> None:
    choice = EchoAgentConfig(streams=True, delay=timedelta(milliseconds=150))
    async with opened(config.model_copy(update={"agent": choice})) as window:
        tab = browser_page
        await tab.goto(await window.link())
        await tab.wait_for_url(f"{window.url}/")
        await tab.goto(f"{window.url}/chat")
        await tab.get_by_label("Message", exact=True).fill("one two three four five six")
        await tab.keyboard.press("Enter")
        await expect(tab.locator("#messages .growing")).to_be_visible()
        await expect(tab.locator("#messages .message:not(.growing)").last).to_contain_text(
            "You said: one two three four five six"
        )
        await tab.get_by_label("Message", exact=True).fill("!approve this")
        await tab.keyboard.press("Enter")
        await tab.get_by_role("button", name="Approve").click()
        await expect(tab.locator("#messages")).to_contain_text("You said: this")


@pytest.fixture
async def browser_page(browser: Browser) -> Page:
    return await browser.new_page()


async def test_who_waits_for_approval_reads_that_and_is_answered_then(window: Opened) -> None:
    async with window.visit("web:eve") as eve, window.visit() as owner:
        for number in range(12):
            await eve.post("/chat/main", data={"text": f"hello {number}", "id": str(number)})
        await until_said(eve, 12 - 1)
        page = (await eve.get("/chat/main")).text
        assert "Refused" not in page
        assert page.count('faint">Not answered yet: it waits until the owner of this gateway approves you.') == 10
        assert page.count("Not kept: enough of your messages wait for approval.") == 2
        assert (await owner.post("/people/approve", data={"identity": "web:eve"})).status_code == 200
        assert (False, "You said: hello 0") in await until_said(eve, 22)
