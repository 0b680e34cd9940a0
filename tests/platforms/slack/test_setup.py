"""`palaver setup slack` and `palaver platforms check slack`, with Slack at the other end."""

import asyncio
from pathlib import Path

import pytest

from palaver.cli.main import main
from tests.platforms.slack.server import Server
from tests.platforms.slack.world import APP_TOKEN, BOT_TOKEN, No


async def test_an_app_is_set_up_and_checked_with_both_tokens(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PALAVER_CONFIG", str(own := tmp_path / "own.yaml"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setenv("SLACK_BOT_TOKEN", BOT_TOKEN)
    (tmp_path / "app").write_text(APP_TOKEN)
    (tmp_path / "app").chmod(0o600)
    options = ["bot_token=${SLACK_BOT_TOKEN}", f"app_token_file={tmp_path}/app", f"api_url={server.url}/api"]
    given = [word for option in options for word in ("--set", option)]

    assert await asyncio.to_thread(main, ["setup", "slack", *given, "--owner", "U024BE7LH"]) == 0
    assert "@helper in Example" in capsys.readouterr().out
    assert "secret" not in own.read_text()
    assert await asyncio.to_thread(main, ["platforms", "check", "slack"]) == 0
    assert "@helper in Example" in capsys.readouterr().out

    server.world.refuses["apps.connections.open"].append(No("missing_scope", needed="connections:write"))
    assert await asyncio.to_thread(main, ["platforms", "check", "slack"]) == 1
    said = capsys.readouterr()
    assert "connections:write" in said.out + said.err
    assert "secret" not in said.out + said.err
