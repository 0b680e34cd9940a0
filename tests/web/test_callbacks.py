"""Calls of platforms over HTTP: who is heard, how much of it, and what a stranger learns."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from palaver.config.model import Config, PlatformConfig
from palaver.gateway.gateway import Gateway
from palaver.model.session import Principal
from palaver.settings.web import WebConfig
from palaver.web import bodies
from tests.web.callback_platform import CallerAdapter, install
from tests.web.conftest import Opened, opened

RIGHT = {"x-secret": "s3cret"}
PUBLIC = {"host": "hooks.example.org"}


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    install(tmp_path / "packages", monkeypatch)
    accounts = {"main": {"secret": "s3cret"}, "a/b": {"secret": "s3cret"}}
    return Config(
        data_dir=tmp_path,
        store=str(tmp_path / "palaver.db"),
        web=WebConfig(),
        platforms={"caller": PlatformConfig(accounts=accounts)},
    )


@pytest.fixture
async def stranger(window: Opened) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(timeout=60, base_url=window.url, headers=PUBLIC) as client:
        yield client


async def test_a_call_reaches_the_adapter_of_its_account_and_what_it_brought_is_safe(
    window: Opened, stranger: httpx.AsyncClient
) -> None:
    headers = {**RIGHT, "cookie": "palaver-8787=login", "X-Twice": "a"}
    answer = await stranger.post("/in/caller/main/up/date%2F1?id=9&q=x", content=b"hello", headers=headers)
    assert (answer.status_code, answer.text) == (200, "<b>heard</b>")
    [call] = CallerAdapter.heard
    assert (call.method, call.path, call.body) == ("POST", "up/date/1", b"hello")
    assert call.query == {"id": "9", "q": "x"}
    assert call.headers["x-twice"] == "a"
    assert "cookie" not in call.headers
    assert await _messages(window) == [("main", "9")]
    assert (await stranger.post("/in/caller/a%2Fb?id=3", content=b"hello", headers=RIGHT)).status_code == 200
    assert ("a/b", "3") in await _messages(window)


async def _messages(window: Opened) -> list[tuple[str | None, str | None]]:
    arrivals = await window.store.read(window.store.overview.list_inbound(Principal.operator()))
    sources = [each.inbound.source for each in arrivals if each.inbound]
    return [(source.account, source.message_id) for source in sources]


async def test_an_answer_can_neither_set_a_cookie_nor_become_a_page_of_ours(stranger: httpx.AsyncClient) -> None:
    answer = await stranger.post("/in/caller/main", headers=RIGHT, content=b"hi")
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-own"] == "kept"


@pytest.mark.parametrize("path", ["/in/", "/in/caller", "/in/caller/nobody", "/in/telegram/main", "/in/../in/x/y"])
async def test_there_is_nothing_but_the_accounts_that_are_configured(stranger: httpx.AsyncClient, path: str) -> None:
    answer = await stranger.post(path, headers=RIGHT)
    assert (answer.status_code, answer.text) == (404, "Not found.\n")
    assert not CallerAdapter.heard


async def test_pages_keep_their_checks_of_names_and_logins(stranger: httpx.AsyncClient) -> None:
    assert (await stranger.get("/sessions")).status_code == 421
    assert (await stranger.get("/in", headers={"host": "127.0.0.1"})).status_code == 401
    assert (await stranger.delete("/in/caller/main", headers=RIGHT)).status_code == 405


async def test_what_goes_wrong_is_reported_as_far_as_the_caller_has_to_know(
    stranger: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    busy = await stranger.post("/in/caller/main/busy", headers=RIGHT)
    assert (busy.status_code, busy.headers["retry-after"]) == (503, "7")
    for trouble in ("outage", "down"):
        away = await stranger.post(f"/in/caller/main/{trouble}", headers=RIGHT)
        assert (away.status_code, away.text) == (503, "Try again later.\n")
    broken = await stranger.post("/in/caller/main/broken?q=words", headers=RIGHT, content=b"body")
    assert broken.status_code == 500
    [told] = [record for record in caplog.records if getattr(record, "action", "") == "callback.error"]
    assert "RuntimeError" in told.getMessage()
    for secret in ("s3cret", "words", "body"):
        assert secret not in broken.text + told.getMessage()


async def test_a_body_is_as_large_as_allowed_and_comes_in_time(
    window: Opened, stranger: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = await stranger.post("/in/caller/main", headers=RIGHT, content=b"x" * 4_000_001)
    assert large.status_code == 413
    monkeypatch.setattr(bodies, "_WINDOW_SECONDS", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", window.config.web.port)
    writer.write(b"POST /in/caller/main HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nx")
    async with asyncio.timeout(60):
        assert b" 408 " in await reader.readline()
    writer.close()
    assert not CallerAdapter.heard


async def test_who_calls_wrongly_again_and_again_has_to_wait_and_locks_nobody_out(
    stranger: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    answers = [await stranger.post("/in/caller/main") for _ in range(62)]
    assert [answer.status_code for answer in answers] == [401] * 60 + [429] * 2
    assert int(answers[-1].headers["retry-after"]) > 0
    assert (await stranger.post("/in/caller/main", headers=RIGHT)).status_code == 200
    told = [record for record in caplog.records if getattr(record, "action", "") == "callback.refused"]
    assert len(told) == 60, "a log is not filled from outside"


async def test_without_a_window_an_account_that_is_called_gets_a_notice(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = Gateway(config)
    serving = asyncio.create_task(gateway.serve())
    await asyncio.sleep(0)
    gateway.stop()
    assert await serving
    told = [record for record in caplog.records if getattr(record, "action", "") == "account.unreachable"]
    assert [record.levelno for record in told] == [logging.ERROR] * 2
    assert "caller:main receives nothing" in told[0].getMessage()
    assert "web: {enabled: true}" in told[0].getMessage()


async def test_with_one_it_is_not(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    async with opened(config):
        pass
    assert "account.unreachable" not in {getattr(record, "action", "") for record in caplog.records}
