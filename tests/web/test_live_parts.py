"""Parts of a page that change under their reader: what is open stays open, and the focus stays with what it was on."""

import asyncio
import re

import httpx
from playwright.async_api import Page, expect

from palaver.model.key import Scope, derive_key
from palaver.model.label import Label
from palaver.model.source import Labels, Source
from palaver.model.turn import Inbound
from palaver.protocols.clock import SystemClock
from tests.web.conftest import Opened
from tests.web.demo_data import Stage, dm


async def ask_to_be_let_in(window: Opened, user: str, code: str) -> None:
    now = SystemClock().now()
    source = Source(platform="telegram", account="helper", chat_id=user, user_id=user, message_id=user)
    inbound = Inbound(source=source, text="hello?", at=now, labels=Labels(user=Label(f"Eve {user}")))
    await window.store.transact(
        window.store.pairing.request(inbound, derive_key(source, Scope()), now, code=code, answer=())
    )


async def test_who_is_about_to_approve_somebody_does_not_approve_the_next(window: Opened, tab: Page) -> None:
    for user, code in (("1", "K7QM3XPR"), ("2", "K7QM3XPS"), ("3", "K7QM3XPT")):
        await ask_to_be_let_in(window, user, code)
    for number, address in enumerate(("/people", "/"), 1):
        await tab.goto(f"{window.url}{address}")
        stranger = tab.locator("li").filter(has=tab.get_by_role("button", name="Approve")).filter(has_text="Eve")
        await expect(stranger).to_have_count(4 - number)
        second = stranger.filter(has_text=f"Eve {number + 1}").get_by_role("button", name="Approve")
        await second.focus()
        async with window.visit() as other:
            denied = await other.post("/people/deny", data={"identity": f"telegram:{number}"})
            assert denied.status_code == 200, denied.text
        await expect(stranger).to_have_count(3 - number)
        await expect(second).to_be_focused()


async def park(client: httpx.AsyncClient) -> list[tuple[str, str]]:
    """Have the agent ask for approval; return the id and the question of each button that approves."""
    await client.post("/chat/main", data={"text": "!approve it", "id": "1"})
    found: list[tuple[str, str]] = []
    async with asyncio.timeout(60):
        while not found:
            found = re.findall(r'<button id="([^"]+)"[^>]* value="/approve ([^"]+)"', (await client.get("/turns")).text)
    return found


async def test_what_was_opened_to_be_read_stays_open(window: Opened, client: httpx.AsyncClient, tab: Page) -> None:
    await park(client)
    stage = Stage(window.store, SystemClock().now())
    session = await stage.exchange(dm("7"), "hello", "hi")
    for address, fold in (("/", "What exactly"), (f"/sessions/{session}", "last used")):
        await tab.goto(f"{window.url}{address}")
        shown = tab.locator("details").filter(has=tab.locator("summary", has_text=fold))
        await shown.locator("summary").click()
        await ask_to_be_let_in(window, f"{len(address)}", "K7QM3XPR")
        await stage.exchange(dm("7"), "and now?", "still here")
        await expect(tab.locator("main")).to_contain_text("Eve" if address == "/" else "2 turns")
        await expect(shown).to_have_attribute("open", "")


async def test_a_button_that_decides_is_known_by_its_question(client: httpx.AsyncClient) -> None:
    """Else the focus would go on to what the agent asks next."""
    assert all(question in name for name, question in await park(client))
