"""Pictures of the dashboard for the documentation: `python -m tests.web.screenshots` writes docs/pictures/.

The chat is with the small local model, whose answers are its own; everything else shows invented people.
"""

import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Browser, Page

from palaver.protocols.clock import SystemClock
from tests.web.conftest import Opened, config_file, opened, started_chromium
from tests.web.demo_data import furnish

FOLDER = Path(__file__).parents[2] / "docs/pictures"
_SIZES = {"desktop": (1200, 800), "phone": (390, 780)}
_PAGES = {
    "home": "/",
    "settings": "/settings/general",
    "chat": "/chat/questions",
    "sessions": "/sessions",
    "transcript": "Lisbon by train",
    "search": "/search?q=train",
    "turns": "/turns",
    "messages": "/messages",
    "people": "/people",
    "usage": "/usage?days=30",
    "platforms": "/platforms",
    "explain": "/explain?platform=telegram&kind=group&chat=-100&user=7",
}
_ALSO = {
    "home": ("phone", "dark"),
    "transcript": ("desktop", "dark"),
    "sessions": ("phone", "dark"),
    "chat": ("phone", "dark"),
}
"""Every page is taken on the desktop in light colours; these also otherwise."""
_MODEL = "agent:\n  name: local\n  temperature: 0\n"
_QUESTIONS = (
    "What is the capital of Portugal?",
    "Write a Python function that checks whether a number is even.",
)
_SLOWEST_ANSWER_MS = 300_000


async def take(folder: Path, names: Sequence[str] = (), *, everything: bool = False) -> None:
    with tempfile.TemporaryDirectory() as home:
        url = f"{home}/palaver.db"
        await furnish(url, SystemClock().now())
        file = config_file(Path(home), _MODEL)
        async with opened(file.load().config, file=file) as window, started_chromium() as browser:
            if not names or set(names) - {"transcript", "settings"}:
                await _talk(browser, window)
            for size, (width, height) in _SIZES.items():
                for theme in ("light", "dark"):
                    page = await _tab(browser, window, width, height, theme)
                    for name, path in _PAGES.items():
                        usual = (size, theme) == ("desktop", "light") or (size, theme) == _ALSO.get(name)
                        if (everything or usual or name in {"sessions", "transcript"}) and (not names or name in names):
                            await _picture(page, window, path, folder / f"{name}-{size}-{theme}.png")
                    await page.context.close()


async def take_guide(folder: Path) -> None:
    """The first minutes: nothing is configured, so the guide answers."""
    with tempfile.TemporaryDirectory() as home:
        file = config_file(Path(home))
        async with opened(file.load().config, file=file) as window, started_chromium() as browser:
            page = await _tab(browser, window, *_SIZES["desktop"], "light")
            await page.goto(f"{window.url}/chat")
            await page.screenshot(path=folder / "first-desktop-light.png")
            for text in ("remind me in 1 hour to call Ann", "run date"):
                await page.get_by_label("Message", exact=True).fill(text)
                await page.keyboard.press("Enter")
                await page.locator("#messages").get_by_text("Ann").first.wait_for()
            await page.get_by_role("button", name="Approve").click()
            await page.get_by_text("exit code 0").last.wait_for()
            await page.screenshot(path=folder / "guide-desktop-light.png")
            phone = await _tab(browser, window, *_SIZES["phone"], "dark")
            await phone.goto(page.url)
            await phone.get_by_text("exit code 0").last.wait_for()
            await phone.screenshot(path=folder / "guide-phone-dark.png")


async def _talk(browser: Browser, window: Opened) -> None:
    """Ask the local model, in the window itself."""
    page = await _tab(browser, window, *_SIZES["desktop"], "light")
    await page.goto(f"{window.url}{_PAGES['chat']}")
    for place, question in enumerate(_QUESTIONS):
        await page.get_by_label("Message", exact=True).fill(question)
        await page.keyboard.press("Enter")
        done = page.locator("#messages .answer:not(.running) .acts").nth(place)
        await done.wait_for(state="attached", timeout=_SLOWEST_ANSWER_MS)
    await page.context.close()


async def _tab(browser: Browser, window: Opened, width: int, height: int, theme: str) -> Page:
    context = await browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if theme == "dark" else "light"
    )
    page = await context.new_page()
    await page.goto(await window.link())
    await page.wait_for_url(f"{window.url}/")
    return page


async def _picture(page: Page, window: Opened, path: str, file: Path) -> None:
    if not path.startswith("/"):
        await page.goto(f"{window.url}/sessions")
        path = await page.get_by_role("link", name=path).get_attribute("href") or ""
    await page.goto(f"{window.url}{path}")
    # The path of the configuration is of this run alone.
    await page.evaluate("document.querySelector('.section > .faint')?.setAttribute('hidden', '')")
    await page.screenshot(path=file)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    if sys.argv[1:] in ([], ["guide"]):
        asyncio.run(take_guide(FOLDER))
    if sys.argv[1:] != ["guide"]:
        asyncio.run(take(FOLDER, sys.argv[1:]))
