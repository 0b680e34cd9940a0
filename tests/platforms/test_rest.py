"""Requests to a platform's HTTP API, against a server on this machine."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from palaver import platforms
from palaver.platforms.dingtalk import adapter as dingtalk
from palaver.platforms.feishu import stream as feishu
from palaver.platforms.homeassistant.adapter import HomeAssistantAdapter, HomeAssistantOptions
from palaver.platforms.relayed.adapter import join
from palaver.protocols import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
    announced,
    parse_retry_after,
    proxy_of,
)
from palaver.protocols.rest import RestApi, read_receipt

_CONNECTS = re.compile(r"\bconnect\(\s*\w[^)]*").findall
_FILE = bytes(range(256)) * 1000


async def _answer(request: web.Request) -> web.StreamResponse:
    match request.path.removeprefix("/api/"):
        case "echo":
            who = request.headers["authorization"]
            return web.json_response({"who": who, "key": request.query["key"], "said": await request.json()})
        case "file":
            return web.Response(body=_FILE)
        case "empty":
            return web.Response()
        case "page":
            return web.Response(text="<html>")
        case "cut":
            assert request.transport
            request.transport.close()
            return web.Response()
        case status:
            headers = {"retry-after": "7"} if status == "429" else {}
            return web.json_response({"code": status}, status=int(status), headers=headers)


def _explain(response: httpx2.Response) -> PlatformError | None:
    return SendRefused("too old") if response.json()["code"] == "422" else None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("1.5", 1.5),
        (" 2 ", 2.0),
        ("999999999999", 3600.0),
        ("9" * 5000, 3600.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Sun, 06 Nov 2094 08:49:37 GMT", 3600.0),
        ("", None),
        ("-1", None),
        ("nan", None),
        ("1e3", None),
        ("\u0663", None),
        ("soon", None),
        ("Wed, 99 Oct 2015 07:28:00 GMT", None),
    ],
)
def test_how_long_to_wait_is_a_number_or_a_date(header: str, seconds: float | None) -> None:
    assert parse_retry_after(header) == seconds


@pytest.fixture
async def server() -> AsyncGenerator[TestServer]:
    app = web.Application()
    app.router.add_route("*", "/api/{name}", _answer)
    server = TestServer(app)
    async with server:
        yield server


def _api(server: TestServer) -> RestApi:
    return RestApi(
        "Pigeon",
        str(server.make_url("/api")),
        headers={"authorization": "Bearer x"},
        params={"key": "k"},
        fix="Get another ring.",
        gone=(404,),
        explain=_explain,
    )


async def test_json_goes_out_and_comes_back_inside_and_outside_a_connection(server: TestServer) -> None:
    api = _api(server)
    answer = {"who": "Bearer x", "key": "k", "said": {"text": "hi"}}
    assert await api.call("POST", "/echo", json={"text": "hi"}) == answer
    async with api.opened() as client:
        assert await api.call("POST", "/echo", json={"text": "hi"}) == answer
        assert not client.is_closed
    assert client.is_closed
    assert await api.call("POST", "/empty") is None


async def test_only_what_sends_is_announced_and_can_be_stopped(server: TestServer) -> None:
    api, left = _api(server), list[str]()

    class Stopped(Exception):
        pass

    async def leave() -> None:
        left.append("request")

    async def stop() -> None:
        raise Stopped

    with announced(leave):
        for sending in (False, True, False):
            await api.call("POST", "/empty", sending=sending)
    assert left == ["request"]

    async def fail() -> None:
        try:
            await api.call("POST", "/empty", sending=True)
        except Stopped as stopped:  # as a client library does
            raise httpx2.HTTPError("it failed") from stopped

    with pytest.raises(Stopped), announced(stop), api.errors.sends():
        await fail()


async def test_a_file_comes_in_chunks(server: TestServer) -> None:
    chunks = [chunk async for chunk in _api(server).download("/file")]
    assert b"".join(chunks) == _FILE
    assert len(chunks) > 1
    with pytest.raises(SendRefused):
        _ = [chunk async for chunk in _api(server).download("/404")]


async def test_an_error_says_whether_a_message_may_have_arrived(server: TestServer) -> None:
    api = _api(server)
    for path, of_request, of_send in (
        ("/429", PlatformBusy, PlatformBusy),
        ("/401", PlatformRefused, PlatformRefused),
        ("/404", TargetGone, TargetGone),
        ("/422", SendRefused, SendRefused),
        ("/301", PlatformDown, SendUnclear),
        ("/502", PlatformDown, SendUnclear),
        ("/page", PlatformDown, SendUnclear),
        ("/cut", PlatformDown, SendUnclear),
    ):
        for sending, meant in ((False, of_request), (True, of_send)):
            with pytest.raises(PlatformError) as raised:
                await api.call("POST", path, sending=sending)
            assert type(raised.value) is meant, path
            assert getattr(raised.value, "after", 7) == 7
    with pytest.raises(SendRefused, match="too old"):
        await api.call("POST", "/422")
    await server.close()
    with pytest.raises(PlatformDown):
        await api.call("POST", "/echo", sending=True)


def test_an_answer_without_the_id_of_the_message_leaves_it_open_whether_it_was_sent() -> None:
    assert read_receipt("Pigeon", {"messages": [{"id": 7}]}, "messages", 0, "id") == "7"
    answers: tuple[object, ...] = ({"messages": []}, {"messages": None}, ["id"], "id", None)
    for answer in answers:
        with pytest.raises(SendUnclear, match="Pigeon did not say which message was sent"):
            read_receipt("Pigeon", answer, "messages", 0, "id")


async def test_certificates_are_loaded_once_for_all_requests(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _api(server).call("GET", "/empty")
    monkeypatch.setattr(httpx2, "create_ssl_context", lambda: pytest.fail("loaded again"))
    await _api(server).call("GET", "/empty")


async def _nothing(*_: object) -> None: ...


@pytest.mark.parametrize(
    "connected",
    [
        lambda: dingtalk.listen({"endpoint": "ws://far.example/x", "ticket": "t"}, _nothing, _nothing),
        lambda: feishu.listen("ws://far.example/x?service_id=1", 30, _nothing, _nothing),
        lambda: join("ws://far.example/x", "code", "key"),
        lambda: HomeAssistantAdapter(
            "main", HomeAssistantOptions.model_validate({"url": "http://far.example", "token": "t", "notify": "phone"})
        ).check(),
    ],
    ids=["dingtalk", "feishu", "relay", "homeassistant"],
)
async def test_a_websocket_goes_through_the_proxy_of_the_environment(
    connected: Callable[[], Awaitable[object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n"))
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as proxy:
        _set_proxies(monkeypatch, http_proxy=f"http://127.0.0.1:{proxy.sockets[0].getsockname()[1]}")
        with pytest.raises(PlatformDown):
            await connected()
    assert asked == [b"CONNECT far.example:80 HTTP/1.1\r\n"]


def test_a_websocket_uses_the_proxy_that_a_request_to_the_same_host_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    _set_proxies(monkeypatch, https_proxy="secure:8080", no_proxy="127.0.0.1,.local.example")
    assert proxy_of("wss://far.example/x") == "http://secure:8080"
    assert proxy_of("ws://far.example/x") is None, "only secure connections have one"
    assert proxy_of("wss://ha.local.example:8123/x") is proxy_of("wss://127.0.0.1/x") is None
    _set_proxies(monkeypatch, http_proxy="http://plain:8080", all_proxy="socks5://other:1080")
    assert proxy_of("ws://far.example/x") == "http://plain:8080"
    assert proxy_of("wss://far.example/x") == "socks5://other:1080"


def test_every_websocket_asks_for_the_proxy() -> None:
    adapters = [path.read_text("utf-8") for path in Path(platforms.__file__).parent.glob("*/*.py")]
    opened = [
        call
        for text in adapters
        if "import websockets" in text or "from websockets" in text
        for call in _CONNECTS(text)
    ]
    assert len(opened) >= 8
    assert [call for call in opened if "proxy=proxy_of(" not in call] == []


def _set_proxies(monkeypatch: pytest.MonkeyPatch, **proxies: str) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name.upper(), raising=False)
        monkeypatch.delenv(name, raising=False)
    for name, value in proxies.items():
        monkeypatch.setenv(name, value)
