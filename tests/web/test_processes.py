"""Background processes in the dashboard and the API: who sees them, their output as it comes, and their end."""

import json
from pathlib import Path

import httpx
import pytest
from playwright.async_api import Page, expect

from palaver.config.model import Config
from palaver.model.access import AccessRole, Grant
from palaver.processes.directory import ProcessDirectory
from palaver.processes.launcher import kill
from palaver.protocols.clock import SystemClock
from palaver.settings.terminal import BackendName, StopMode, TerminalConfig
from palaver.settings.tools import ToolsConfig
from palaver.settings.web import WebConfig
from palaver.store.conversations.sessions import join
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.engine.gateway import until as soon
from tests.store.world import dm
from tests.web.conftest import READERS, Opened, opened
from tests.web.test_pages import say, until


@pytest.fixture
def config(tmp_path: Path) -> Config:
    terminal = TerminalConfig(backend=BackendName.LOCAL, on_stop=StopMode.END)
    return Config(
        data_dir=tmp_path,
        store=str(tmp_path / "palaver.db"),
        web=WebConfig(),
        tools=ToolsConfig(terminal=terminal),
        grants=READERS,
    )


async def start(window: Opened, command: str) -> None:
    arguments = json.dumps({"command": command, "background": True})
    assert "Started p" in await say(window, f"!use terminal {arguments}")


async def test_the_api_lists_reads_and_kills(window: Opened) -> None:
    await start(window, "echo 'hello <b>there</b>'; cat")
    now = SystemClock().now()
    token, _ = await issue_token(window.store, now, name="t", rights=frozenset(Right))
    other, _ = await issue_token(window.store, now, name="o", rights=frozenset(Right), identity="telegram:7")
    async with httpx.AsyncClient(timeout=60, base_url=f"{window.url}/api/v1") as client:
        client.headers["authorization"] = f"Bearer {token}"
        answer = await client.get("/processes", params={"live": "true"})
        assert answer.status_code == 200, answer.text
        (process,) = answer.json()["processes"]
        assert (process["name"], process["state"], process["exit_code"]) == ("p1", "running", None)
        assert (await client.get("/processes", params={"session": process["session"]})).json()["processes"] == [process]

        async def has_output() -> bool:
            return (await client.get("/processes/p1/output")).json()["text"] == "hello <b>there</b>\n"

        await until(has_output)
        found = (await client.get("/processes/p1/output", params={"offset": 6})).json()
        assert (found["offset"], found["next"], found["size"], found["text"]) == (6, 19, 19, "<b>there</b>\n")
        for path in ("/processes/p1", "/processes/p1/output"):
            answer = await client.get(path, headers={"authorization": f"Bearer {other}"})
            assert answer.status_code == 404
        listed = await client.get("/processes", headers={"authorization": f"Bearer {other}"})
        assert listed.json() == {"processes": []}
        killed = await client.post("/processes/p1/kill", headers={"authorization": f"Bearer {other}"})
        assert killed.status_code == 404
        assert (await client.post("/processes/p1/kill")).json() == {"done": True}

        async def has_ended() -> bool:
            return (await client.get("/processes/p1")).json()["state"] == "ended"

        await until(has_ended)
        assert (await client.post("/processes/p1/kill")).json() == {"done": False}
        assert (await client.get("/processes/p9")).status_code == 404


async def test_the_api_refuses_people_whom_the_chat_refuses(window: Opened) -> None:
    await start(window, "cat")
    now, store = SystemClock().now(), window.store
    await store.transact(join(1, dm("7")))
    await store.transact(store.grants.add(Grant(platform="telegram", role=AccessRole.MEMBER), now, by="test"))
    token, _ = await issue_token(store, now, name="m", rights=frozenset(Right), identity="telegram:7")
    async with httpx.AsyncClient(timeout=60, base_url=f"{window.url}/api/v1") as client:
        client.headers["authorization"] = f"Bearer {token}"
        (session,) = (await client.get("/sessions")).json()["sessions"]
        for path in ("/processes/p1", "/processes/p1/output", f"/processes?session={session['id']}"):
            assert (await client.get(path)).status_code == 403, path
        assert (await client.get("/processes")).json() == {"processes": []}


async def test_the_page_shows_the_output_as_it_comes_and_ends_the_process(
    window: Opened, tab: Page, tmp_path: Path
) -> None:
    await start(window, "echo first; while ! test -e go; do sleep 0.05; done; echo '<i>second</i>'; cat")
    await tab.goto(f"{window.url}/processes")
    await tab.get_by_role("link", name="p1", exact=True).click()
    await expect(tab.locator("#output")).to_have_text("first\n")
    (tmp_path / "work/go").touch()
    await expect(tab.locator("#output")).to_have_text("first\n<i>second</i>\n")
    tab.on("dialog", lambda dialog: dialog.accept())
    await tab.get_by_role("button", name="Kill").click()
    await expect(tab.locator("#facts")).to_contain_text("killed by signal 15")
    await expect(tab.get_by_role("button", name="Kill")).to_have_count(0)


async def test_only_the_owner_sees_the_pages(window: Opened) -> None:
    await start(window, "cat")
    async with window.visit("telegram:7") as client:
        for path in ("/processes", "/processes/p1"):
            assert (await client.get(path)).status_code == 403
    async with window.visit() as client:
        assert "p1" in (await client.get("/processes")).text
        assert (await client.get("/processes/p9")).status_code == 404


async def test_processes_end_with_the_gateway_only_if_that_is_wanted(config: Config, tmp_path: Path) -> None:
    async with opened(config) as window:
        await start(window, "cat")
    (status,) = (tmp_path / "processes").glob("*/*/status")
    assert "ended" in status.read_text()
    keep = config.tools.terminal.model_copy(update={"on_stop": StopMode.KEEP})
    async with opened(config.model_copy(update={"tools": ToolsConfig(terminal=keep)})) as window:
        await start(window, "echo $PALAVER_PROCESS; cat")
    (kept,) = {file.parent for file in (tmp_path / "processes").glob("*/*/status")} - {status.parent}
    directory = ProcessDirectory(kept)
    assert directory.is_supervised()
    assert await kill(directory, 0)
    await soon(lambda: not directory.is_supervised())
