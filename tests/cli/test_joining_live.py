"""A bot on Telegram is set up at a terminal, as a person does it: against a server that speaks the Bot API."""

import asyncio
import stat
import time
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE
from tests.cli.test_setup import Terminal
from tests.platforms.telegram.server import serving
from tests.platforms.telegram.world import BOT, TOKEN, World

WRONG = f"43:{'B' * 35}"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(tmp_path / "own.yaml"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    return tmp_path / "own.yaml"


def walk(terminal: Terminal) -> None:
    terminal.shows("@BotFather and send /newbot")
    terminal.shows("Token (hidden while you type)")
    time.sleep(0.2)  # like a person; before, the terminal may still show what is typed
    terminal.types("no token\n")
    terminal.shows("The token is not valid. Use a token from @BotFather")
    terminal.shows("Try again? [Y/n]")
    terminal.types("\n")
    terminal.shows("Token (hidden")
    time.sleep(0.2)
    terminal.types(f"{WRONG}\n")
    terminal.shows("Telegram does not know this token.")
    terminal.shows("Try again? [Y/n]")
    terminal.types("y\n")
    terminal.shows("Token (hidden")
    time.sleep(0.2)
    terminal.types(f"{TOKEN}\n")
    terminal.shows("Your own Telegram user id")
    terminal.types("7\n")
    terminal.shows("Added telegram:main to")
    terminal.shows(f": @{BOT['username']}.")
    terminal.shows("telegram:7 is its owner.")
    terminal.shows("No gateway runs here. Next: run palaver up")
    terminal.shows("1. In Telegram, write to your bot.")
    terminal.shows("/setprivacy")
    assert terminal.process.wait(PATIENCE) == 0


async def walked() -> str:
    """What was shown."""
    async with serving(World()) as server:
        terminal = Terminal("setup", "telegram", "--set", f"api_url={server.url}")
        try:
            await asyncio.to_thread(walk, terminal)
        finally:
            terminal.close()
    return terminal.shown


def test_a_person_is_walked_through_a_bot_on_telegram(own: Path) -> None:
    shown = asyncio.run(walked())
    key = own.parent / "keys/telegram-main-token"
    assert (key.read_text(), stat.S_IMODE(key.stat().st_mode)) == (f"{TOKEN}\n", 0o600)
    assert "token_file: keys/telegram-main-token" in own.read_text()
    assert not any(secret in shown + own.read_text() for secret in (TOKEN, WRONG))
