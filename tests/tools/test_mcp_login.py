"""Logging in to a server that asks for OAuth, with a real authorisation server on this machine."""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import httpx2
import pytest

from palaver.tools.mcp import McpServer
from palaver.tools.mcp_login import LoginFailed, log_in_to
from palaver.tools.mcp_transport import HttpServer
from tests.tools.servers import over_http, serving, text

CONFIG = "tools: {{servers: {{web: {{url: '{url}'}}}}}}\n"


async def test_a_login_lasts_through_restarts_and_is_refreshed(tmp_path: Path) -> None:
    file = tmp_path / "home" / "mcp" / "web.json"
    async with over_http("login") as (url, _):
        async with serving("web", HttpServer(url=url, login=file)) as server:
            assert await server.tools() == []
            assert server.problem == "It asks for a login. Run palaver mcp login web."
        (tmp_path / "palaver.yaml").write_text(CONFIG.format(url=url))
        assert await log_in_from_terminal(tmp_path) == "You are logged in to web."
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        for _ in range(2):
            async with serving("web", HttpServer(url=url, login=file)) as server:
                assert await server.tools()
                assert await text(server, "web__add", {"a": 1, "b": 2}) == "3"
        before = json.loads(file.read_text())
        file.write_text(json.dumps({**before, "expires": 1.0}))
        async with serving("web", HttpServer(url=url, login=file)) as server:
            assert await text_of_listed(server) == "3"
        after = json.loads(file.read_text())
        assert after["tokens"]["access_token"] != before["tokens"]["access_token"]
        # The old refresh token was used up: nobody can refresh with it again.
        file.write_text(json.dumps({**before, "expires": 1.0}))
        async with serving("web", HttpServer(url=url, login=file)) as server:
            assert await server.tools() == []
            assert server.problem == "It asks for a login. Run palaver mcp login web."
    async with over_http() as (other, _), serving("web", HttpServer(url=other, login=file)) as server:
        assert await text_of_listed(server) == "3"
        assert await log_in_to(tmp_path / "other.json", other, {}, show=pytest.fail) is False


async def text_of_listed(server: McpServer) -> str:
    await server.tools()
    return await text(server, "web__add", {"a": 1, "b": 2})


async def log_in_from_terminal(folder: Path) -> str:
    """Run the command, open the address that it prints, and return its last line."""
    env = {
        **os.environ,
        "PALAVER_CONFIG": str(folder / "palaver.yaml"),
        "PALAVER_HOME": str(folder / "home"),
        "BROWSER": "true",
    }
    command = (sys.executable, "-m", "palaver", "mcp", "login", "web")
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, env=env, cwd=folder)
    assert process.stdout
    address = ""
    while not address.startswith("http"):
        line = await process.stdout.readline()
        assert line, "the command ended early"
        address = line.decode().strip()
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        page = await browser.get(address)
    assert "You are logged in" in page.text
    rest, _ = await process.communicate()
    assert process.returncode == 0
    return rest.decode().strip()


async def test_a_refused_login_says_why(tmp_path: Path) -> None:
    async def refuse(address: str) -> None:
        redirect = httpx2.URL(address).params["redirect_uri"]
        async with httpx2.AsyncClient() as browser:
            assert (await browser.get(redirect.replace("callback", "favicon.ico"))).status_code == 404
            page = await browser.get(redirect, params={"error": "access_denied", "error_description": "not today"})
        assert "failed" in page.text

    async with over_http("login") as (url, _):
        opened = set[asyncio.Task[None]]()
        (tmp_path / "l.json").write_text(before := json.dumps({"url": url, "tokens": {"access_token": "old"}}))
        with pytest.raises(LoginFailed, match="The server refused: not today"):
            await log_in_to(
                tmp_path / "l.json", url, {}, show=lambda address: opened.add(asyncio.create_task(refuse(address)))
            )
        await asyncio.gather(*opened)
        assert (tmp_path / "l.json").read_text() == before, "the old login stays until another one has succeeded"
