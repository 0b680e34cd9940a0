"""Forms take what their fields take: all of them at once, and the longest text in any script."""

import re
from pathlib import Path

import httpx
from playwright.async_api import Browser, expect

from tests.web.conftest import config_file, opened
from tests.web.test_chat import until_said

MODEL = "agent:\n  name: model\n  model: openai:gpt-5-mini\n  key: nobody-uses-it\n"
WIDE = "語"
"""Nine bytes in a form."""


async def test_a_section_of_settings_is_saved_with_all_its_fields(tmp_path: Path, browser: Browser) -> None:
    file = config_file(tmp_path, MODEL)
    async with opened(file.load().config, file=file) as window:
        tab = await browser.new_page()
        await tab.goto(await window.link())
        await tab.wait_for_url(f"{window.url}/")
        for section, label, text in (
            ("data", "Keep this many backups", "5"),
            ("instructions", "What the agent should know", WIDE * 20_000),
        ):
            await tab.goto(f"{window.url}/settings/{section}")
            await tab.get_by_label(label).fill(text)
            form = tab.locator(f"form[action='/settings/{section}']")
            await form.get_by_role("button", name="Save").click()
            await expect(tab.locator("#notice")).to_contain_text("Saved in palaver.yaml")


async def test_what_a_person_writes_in_the_chat_is_as_long_in_every_script(client: httpx.AsyncClient) -> None:
    await client.post("/chat/main", data={"text": "one", "id": "1"})
    await until_said(client, 2)
    client.headers["accept"] = "*/*"
    page = (await client.get("/chat/main")).text
    session, entry = re.findall(r'data-session="([^"]+)" data-title|data-seq="(\d+)"', page)[:2]
    told = await client.post(f"/chat/-/{session[0]}/instructions", data={"instructions": WIDE * 8_000})
    assert told.status_code == 200, told.text
    again = await client.post(f"/chat/-/{session[0]}/again", data={"entry": entry[1], "text": WIDE * 200_000})
    assert again.status_code == 200, again.text
