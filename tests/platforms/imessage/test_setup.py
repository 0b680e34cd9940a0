"""`palaver setup imessage` and `palaver platforms check imessage`, as a person runs them."""

import asyncio
from collections.abc import Generator
from pathlib import Path
from threading import Thread

import pytest

from palaver.cli.main import main
from tests.platforms.imessage.server import PASSWORD, Server, serving
from tests.platforms.imessage.world import Mac


@pytest.fixture
def server() -> Generator[Server]:
    """In a thread of its own: a command blocks."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    try:
        context = serving(Mac())
        yield asyncio.run_coroutine_threadsafe(context.__aenter__(), loop).result(10)
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_an_account_is_tried_written_and_checked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.yaml"
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(own))
    monkeypatch.setenv("BLUEBUBBLES", PASSWORD)
    setup = ["setup", "imessage", "--account", "mac", "--set", f"url={server.url}", "--set", "password=${BLUEBUBBLES}"]
    assert main([*setup, "--owner", "12345"]) == 2, "not an address"
    assert main([*setup, "--owner", "+15551234567"]) == 0
    assert "${BLUEBUBBLES}" in own.read_text()
    capsys.readouterr()
    assert main(["platforms", "check", "imessage"]) == 0
    assert "helper@example.org (BlueBubbles 1.9.9" in capsys.readouterr().out
    monkeypatch.setenv("BLUEBUBBLES", "wrong")
    assert main(["platforms", "check", "imessage"]) == 1
    printed = capsys.readouterr()
    assert "Copy the server password from its settings on the Mac" in printed.out + printed.err
    assert PASSWORD not in printed.out + printed.err
