"""The window as the gateway serves it: opened, closed, waited for, and what anybody may ask."""

import asyncio
import socket
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from playwright.async_api import Page

from palaver.config.model import Config
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Transaction, waiting_of_request
from palaver.gateway.gateway import Gateway
from palaver.gateway.metrics import open_meter
from palaver.gateway.terminal import terminal_socket
from palaver.model.errors import StoreUnavailable
from palaver.protocols.clock import SystemClock
from palaver.protocols.installation import install_line
from palaver.web import server
from palaver.web.tokens import issue_link
from tests.cli.processes import Place
from tests.platforms.terminal.people import Person
from tests.ports import free_port
from tests.store.conftest import fresh_store
from tests.web.conftest import Opened, opened


async def test_anybody_can_ask_whether_it_is_alive_and_ready_and_learns_nothing_else(window: Opened) -> None:
    async with httpx.AsyncClient(timeout=60, base_url=window.url) as client:
        assert ((await client.get("/health")).status_code, (await client.get("/health")).text) == (200, "ok\n")
        async with asyncio.timeout(60):
            while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - a probe asks again
                await asyncio.sleep(0.02)


async def test_an_account_that_nobody_wants_any_more_keeps_nobody_waiting(window: Opened) -> None:
    long_ago = SystemClock().now() - timedelta(days=100)
    hold = window.store.accounts.acquire("telegram", "gone", "w0", long_ago, timedelta(seconds=30))
    await window.store.transact(hold)
    async with httpx.AsyncClient(base_url=window.url) as client, asyncio.timeout(60):
        while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - a probe asks again
            await asyncio.sleep(0.02)


@pytest.mark.drops_transactions
async def test_a_disk_on_which_nothing_can_be_written_is_said_at_once(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Transaction that changes nothing is still done, and so are the accounts held for a while."""
    is_full, really = False, SqliteDatabase.transact

    async def transact(database: SqliteDatabase, work: Transaction[Any]) -> Any:
        if is_full:
            raise StoreUnavailable("the disk is full")
        return await really(database, work)

    monkeypatch.setattr(SqliteDatabase, "transact", transact)
    async with opened(config) as window, window.visit() as client:
        async with asyncio.timeout(60):
            while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - a probe asks again
                await asyncio.sleep(0.02)
        is_full = True
        said = await client.post("/chat/main", data={"text": "hello", "id": "1"})
        ready = await client.get("/ready")
        is_full = False
        mended = await client.get("/ready")
    assert (said.status_code, ready.status_code, mended.status_code) == (503, 503, 200)
    assert said.headers["retry-after"] == "2"
    assert ready.text == "the store refuses writes\n"
    untaken = [record for record in caplog.records if getattr(record, "action", "") == "message.not_stored"]
    assert [(record.levelname, getattr(record, "account", "")) for record in untaken] == [("ERROR", "web:")]


async def test_a_gateway_whose_writes_nobody_confirms_is_not_ready(
    window: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with window.visit() as client:
        async with asyncio.timeout(60):
            while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - a probe asks again
                await asyncio.sleep(0.02)
        monkeypatch.setattr(SqliteDatabase, "is_stalled", True)
        stalled = await client.get("/ready")
        monkeypatch.undo()
        confirmed = await client.get("/ready")
    assert (stalled.status_code, stalled.text) == (503, "the store confirms no writes\n")
    assert confirmed.status_code == 200


async def test_a_message_is_stored_as_part_of_its_request_and_answered_as_no_part_of_it(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a request does not wait long for a database that does not answer, and the gateway does."""
    plain = SqliteDatabase.transact
    of_request: list[bool] = []

    async def transact(self: SqliteDatabase, work: Transaction[Any]) -> Any:
        of_request.append(waiting_of_request() is not None)
        return await plain(self, work)

    async with opened(config) as window, window.visit() as client:
        monkeypatch.setattr(SqliteDatabase, "transact", transact)
        assert (await client.post("/chat/main", data={"text": "hello", "id": "1"})).is_success
        assert True in of_request
        async with asyncio.timeout(60):
            while "You said: hello" not in (await client.get("/chat/main")).text:  # noqa: ASYNC110 - it answers soon
                await asyncio.sleep(0.02)
        assert False in of_request


async def test_a_gateway_whose_clock_is_wrong_says_so(
    config: Config, postgres_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(SystemClock):
        def now(self) -> datetime:
            return super().now() - timedelta(minutes=10)

    monkeypatch.setattr("palaver.gateway.gateway.SystemClock", Wrong)
    shared = config.model_copy(update={"store": await fresh_store(postgres_server)})
    problem = "this machine's clock is 600 seconds behind the database server's: compare both, and set the wrong one"
    async with opened(shared) as window, window.visit() as client, asyncio.timeout(60):
        while (ready := await client.get("/ready")).text != f"{problem}\n":  # noqa: ASYNC110 - a probe asks again
            await asyncio.sleep(0.02)
        assert ready.status_code == 503
        assert (await client.get("/health")).text == f"ok\n{problem}\n"
        assert "This gateway serves nothing" in (await client.get("/platforms")).text
        assert "600 seconds behind" in (await client.get("/doctor")).text


async def test_files_have_names_that_change_with_them_and_are_kept_for_ever(client: httpx.AsyncClient) -> None:
    home = (await client.get("/")).text
    style = home.partition('rel="stylesheet" href="')[2].partition('"')[0]
    answer = await client.get(style)
    assert answer.headers["content-type"].startswith("text/css")
    assert "immutable" in answer.headers["cache-control"]
    old = await client.get("/static/000000000000/palaver.css")
    assert (old.status_code, old.headers["cache-control"]) == (200, "no-cache")
    assert (await client.get("/static/000000000000/..%2Fapp.py")).status_code == 404


async def test_a_window_whose_port_is_taken_is_said_and_the_gateway_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = Config(data_dir=tmp_path, store=str(tmp_path / "p.db"))
    config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
    with socket.socket() as other:
        other.bind(("127.0.0.1", config.web.port))
        other.listen()
        gateway = Gateway(config, show_login=lambda _: pytest.fail("there is no window"))
        serving = asyncio.create_task(gateway.serve())
        alice = Person(terminal_socket(config), "main")
        async with alice.present() as paper:
            await alice.say("hello")
            assert paper.texts == ["You said: hello"]
        gateway.stop()
        assert await serving
    told = [record for record in caplog.records if getattr(record, "action", "") == "web.port_taken"]
    assert len(told) == 1
    assert f"cannot use 127.0.0.1 port {config.web.port}" in told[0].getMessage()


async def test_a_store_that_is_away_when_it_opens_costs_neither_the_window_nor_the_end(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = [StoreUnavailable("away"), StoreUnavailable("still away")]

    async def tried(*args: Any) -> str:
        if tries:
            raise tries.pop()
        return await issue_link(*args)

    monkeypatch.setattr(server, "issue_link", tried)
    async with opened(config) as window, window.visit() as client:
        assert (await client.get("/")).status_code == 200
    assert not tries


async def test_a_window_that_breaks_opens_again(
    config: Config, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    left = [RuntimeError("once")]
    made = uvicorn.Config

    def breaks(*args: Any, **more: Any) -> uvicorn.Config:
        if left:
            raise left.pop()
        return made(*args, **more)

    monkeypatch.setattr(uvicorn, "Config", breaks)
    monkeypatch.setattr(server, "_RETRY_SECONDS", 0.01)
    async with opened(config) as window, window.visit() as client:
        assert (await client.get("/")).status_code == 200
    assert "web.error" in [getattr(record, "action", "") for record in caplog.records]


async def test_a_log_has_a_link_only_where_nobody_has_come_yet(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path, store=str(tmp_path / "p.db"))
    config = config.model_copy(update={"web": config.web.model_copy(update={"port": free_port()})})
    told: list[str] = []
    for count in (1, 2):
        gateway = Gateway(config, show_login=told.append, is_logged=True)
        serving = asyncio.create_task(gateway.serve())
        async with asyncio.timeout(60):
            while len(told) < count:  # noqa: ASYNC110 - it opens
                await asyncio.sleep(0.01)
        gateway.stop()
        assert await serving
    assert [("/login#" in each, "palaver web link" in each) for each in told] == [(True, False), (False, True)]


async def test_what_is_said_elsewhere_appears_without_being_asked_for(window: Opened, tab: Page) -> None:
    assert await tab.get_by_text("No conversations yet.").is_visible()
    alice = Person(terminal_socket(window.config), "main")
    async with alice.present():
        await alice.say("hello from the <b>terminal</b>")
    await tab.locator("#recent small").get_by_text("hello from the <b>terminal</b>").wait_for()


HIDE = """hides => {
  Object.defineProperty(document, "hidden", { get: () => hides, configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


async def test_a_tab_that_nobody_sees_holds_no_connection_and_goes_on_when_it_is_shown(
    window: Opened, tab: Page
) -> None:
    alice = Person(terminal_socket(window.config), "main")
    async with alice.present():
        await alice.say("before")
        await tab.locator("#recent small").get_by_text("before").wait_for()
        async with tab.expect_event("requestfailed", lambda request: "/events?" in request.url):
            await tab.evaluate(HIDE, True)
        await alice.say("meanwhile")
        async with tab.expect_request("**/events?*") as asked:
            await tab.evaluate(HIDE, False)
    await tab.locator("#recent small").get_by_text("meanwhile").wait_for()
    # ChatUpdate where it was: from the beginning it would be told everything again.
    assert "after=0.0" not in (await asked.value).url


async def test_figures_are_for_those_who_can_read(config: Config) -> None:
    with open_meter(None, web=True) as meter:
        async with opened(config, meter) as window, window.visit() as client:
            figures = await client.get("/metrics")
            assert "palaver_step_seconds" in figures.text
            assert figures.headers["content-type"].startswith("text/plain")
            async with httpx.AsyncClient(timeout=60, base_url=window.url) as nobody:
                assert (await nobody.get("/metrics")).status_code == 401


async def test_without_a_meter_it_is_said_what_to_install(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert (answer.status_code, install_line("metrics") in answer.text) == (404, True)


def test_a_chat_can_have_a_window_and_says_its_link(tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        port = free_port()
        place.configure(f"web: {{port: {port}}}")
        done = place.run("chat", "--window", says="hello\n")
    finally:
        place.close()
    assert done.stdout == "You said: hello\n"
    assert f"Open http://127.0.0.1:{port}/login#" in done.stderr


def test_up_says_its_link_on_standard_output_and_not_in_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path)
    try:
        place.configure(f"web: {{port: {free_port()}}}")
        process = place.up()
        assert process.stdout
        assert process.stdout.readline().startswith("Open http://127.0.0.1:")
        process.terminate()
        _, log = process.communicate(timeout=60)
    finally:
        place.close()
    assert "/login#" not in log
