"""What one caller can use: connections, memory and time; what is left for the others."""

import asyncio
import base64
import resource
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.hostile import KINDS, Attack, Probe, head, message
from bench.streams import Stream
from palaver.config.model import Config, PlatformConfig
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.web import bodies
from palaver.web.tokens import issue_token
from tests.cli.processes import PATIENCE, Place
from tests.platforms.webhook.loopback import SECRET
from tests.ports import free_port
from tests.web.conftest import Opened, opened
from tests.web.test_api import PEOPLE, program, say, token


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, store=str(tmp_path / "palaver.db"), grants=PEOPLE)


def limited(config: Config, **web: Any) -> Config:
    return config.model_copy(update={"web": config.web.model_copy(update=web)})


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(window: Opened, *sent: bytes) -> AsyncGenerator[list[Connection]]:
    """Connections that have sent just this."""
    found: list[Connection] = []
    for content in sent:
        reader, writer = await asyncio.open_connection("127.0.0.1", window.config.web.port)
        writer.write(content)
        await writer.drain()
        found.append((reader, writer))
    try:
        async with asyncio.timeout(PATIENCE):
            yield found
    finally:
        for _, writer in found:
            writer.close()


async def status(connection: Connection) -> int:
    return int((await connection[0].readline()).split()[1])


async def is_closed(connection: Connection) -> bool:
    with suppress(ConnectionError):
        await connection[0].read()
    return True


def half_upload(port: int, token: str) -> bytes:
    """All but the end of a megabyte."""
    lines = (f"Authorization: Bearer {token}", "Content-Type: application/json", "Content-Length: 1100000")
    return head(port, "POST /api/v1/messages HTTP/1.1", *lines) + b'{"text": "' + b"x" * 1_000_000


async def test_half_sent_bodies_of_one_caller_leave_room_for_the_others(config: Config) -> None:
    small = config.limits.model_copy(update={"file_size": 1_000_000, "files_per_message": 1})
    async with opened(config.model_copy(update={"limits": small})) as window, program(window, "api:bob") as bob:
        port, alice = window.config.web.port, await token(window, "api:alice")
        async with connected(window, *[half_upload(port, alice)] * 3) as halves:
            assert await next(asyncio.as_completed(map(status, halves))) == 503
            async with connected(window, message(port, alice, b'{"text": "a short one"}')) as [short]:
                assert await status(short) in {200, 202}, "short messages always have room, answered already or not"
            file = {"name": "x", "content": base64.b64encode(bytes(900_000)).decode()}
            assert (await say(bob, "look", files=[file]))["answer"]


async def test_half_sent_bodies_of_strangers_leave_room_for_the_others(config: Config) -> None:
    webhook = PlatformConfig(accounts={"ci": {"secret": SECRET, "scheme": "token"}})
    async with (
        opened(config.model_copy(update={"platforms": {"webhook": webhook}})) as window,
        program(window, "api:bob") as bob,
    ):
        lines = ("Content-Length: 1000000", "Content-Type: application/json")
        half = head(window.config.web.port, "POST /in/webhook/ci HTTP/1.1", *lines) + b"x" * 990_000
        async with connected(window, *[half] * 18) as many:
            assert await next(asyncio.as_completed(map(status, many))) == 503
            file = {"name": "x", "content": base64.b64encode(bytes(900_000)).decode()}
            assert (await say(bob, "look", files=[file]))["answer"]
            async with httpx.AsyncClient(timeout=60, base_url=window.url) as caller:
                right = {"authorization": f"Bearer {SECRET}"}
                answer = await caller.post("/in/webhook/ci", json={"build": 7}, headers=right)
                assert answer.status_code == 403, "a short call always has room; it has no grant"


async def test_every_body_comes_in_time_or_is_refused(window: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_WINDOW_SECONDS", 0.2)
    port, alice = window.config.web.port, await token(window, "api:alice")
    halves = [KINDS[kind](port, alice) for kind in ("half form", "half message")]
    async with connected(window, *halves) as half, window.visit() as owner:
        assert [await status(each) for each in half] == [408, 408]
        csrf = owner.headers.pop("x-csrf-token")
        cookie = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
        form = ("Content-Type: application/x-www-form-urlencoded", "Content-Length: 900", f"Cookie: {cookie}")
        async with connected(window, head(port, "POST /chat HTTP/1.1", *form) + f"csrf={csrf}".encode()) as [page]:
            assert await status(page) == 408


async def test_a_body_is_never_slower_than_the_least_rate(window: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_WINDOW_SECONDS", 0.5)
    port, alice = window.config.web.port, await token(window, "api:alice")
    async with connected(window, half_upload(port, alice)) as [(reader, writer)]:
        answer = asyncio.create_task(status((reader, writer)))
        while not answer.done():  # it comes byte by byte
            writer.write(b"x")
            await asyncio.sleep(0.05)
        assert await answer == 408


async def test_a_body_has_a_time_limit_however_fast_it_is(config: Config) -> None:
    async with opened(limited(config, body_limit=timedelta(seconds=1))) as window:
        large = ("Content-Type: application/json", "Content-Length: 200000000")
        alice = await token(window, "api:alice")
        start = head(window.config.web.port, "POST /api/v1/messages HTTP/1.1", f"Authorization: Bearer {alice}", *large)
        async with connected(window, start) as [(reader, writer)]:
            answer = asyncio.create_task(status((reader, writer)))
            while not answer.done():
                writer.write(b" " * 70_000)
                await asyncio.sleep(0.05)
            assert await answer == 408


async def test_who_has_no_key_is_refused_before_any_of_the_body_is_read(window: Opened) -> None:
    async with connected(window, half_upload(window.config.web.port, "pal_wrong")) as [wrong]:
        assert await status(wrong) == 401


async def test_connections_that_are_not_used_are_closed(config: Config) -> None:
    async with opened(limited(config, idle_limit=timedelta(seconds=1))) as window:
        port, health = window.config.web.port, head(window.config.web.port, "GET /health HTTP/1.1")
        refused = half_upload(port, "pal_wrong")
        sent = {"idle": b"", "half head": KINDS["half head"](port, ""), "kept alive": health, "refused": refused}
        async with connected(window, *sent.values()) as connections:
            ended = await asyncio.gather(*map(is_closed, connections))
        assert dict(zip(sent, ended, strict=True)) == dict.fromkeys(sent, True)


async def test_a_client_that_reads_nothing_is_cut_off(config: Config) -> None:
    """The answer is larger than what fits between the two."""
    async with opened(limited(config, idle_limit=timedelta(seconds=1))) as window, program(window) as owner:
        content = bytes(15_000_000)
        told = await say(owner, "keep this", files=[{"name": "x", "content": base64.b64encode(content).decode()}])
        entries = (await owner.get(f"/sessions/{told['session']}/entries")).json()["entries"]
        file = entries[0]["files"][0]["id"]
        asked = head(
            window.config.web.port,
            f"GET /api/v1/files/{file} HTTP/1.1",
            f"Authorization: {owner.headers['authorization']}",
        )
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, "127.0.0.1", window.config.web.port)
        transport.pause_reading()
        transport.write(asked)
        assert (await owner.get(f"/files/{file}")).content == content
        async with asyncio.timeout(PATIENCE):
            while not transport.is_closing():  # a write fails once the other side is gone
                transport.write(b"x")
                await asyncio.sleep(0.05)


async def test_a_full_server_closes_who_sends_nothing_and_refuses_the_rest(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(limited(config, connections=16)) as window:
        port = window.config.web.port
        probe = Probe(port, head(port, "GET /health HTTP/1.1"))
        async with connected(window, *[b""] * 20) as idle:
            assert await probe.ask() == "200"
            assert await is_closed(idle[0])
        tokens = [await token(window, "api:alice") for _ in range(4)]
        streams = [await Stream.open(port, f"Bearer {each}") for each in tokens for _ in range(4)]
        async with connected(window, probe.request) as [refused]:
            whole = await refused[0].read()
        assert whole.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 5" in whole
        assert whole.endswith(b"Too many connections are open. Try again later.\n")
        streams.pop().close()
        async with asyncio.timeout(PATIENCE):
            while await probe.ask() != "200":  # noqa: ASYNC110 - as soon as there is room
                await asyncio.sleep(0.02)
        for stream in streams:
            stream.close()
    told = [record.getMessage() for record in caplog.records if getattr(record, "action", "") == "web.full"]
    assert [text.partition(":")[0] for text in told] == ["all 16 connections are in use"], "at once, and not each time"


async def test_one_token_takes_a_quarter_of_the_connections(config: Config) -> None:
    async with opened(limited(config, connections=16)) as window, program(window, "api:alice") as alice:
        port, key = window.config.web.port, alice.headers["authorization"]
        streams = [await Stream.open(port, key) for _ in range(4)]
        more = await alice.get("/me")
        assert (more.status_code, more.headers["retry-after"]) == (429, "5")
        async with program(window, "api:bob") as bob:
            assert (await bob.get("/me")).status_code == 200
        for stream in streams:
            stream.close()
        async with asyncio.timeout(PATIENCE):
            while (await alice.get("/me")).status_code == 429:  # noqa: ASYNC110 - they end
                await asyncio.sleep(0.02)


async def test_a_token_sends_so_many_messages_a_minute(config: Config) -> None:
    async with opened(limited(config, messages_per_minute=3)) as window, program(window, "api:alice") as alice:
        asked = {"model": "palaver", "messages": [{"role": "user", "content": "hello"}]}
        response = {"model": "palaver", "input": "hello"}
        ways: list[Callable[[], Any]] = [
            lambda: alice.post("/messages", json={"text": "hello"}),
            lambda: alice.post(f"{window.url}/v1/chat/completions", json=asked),
            lambda: alice.post(f"{window.url}/v1/responses", json=response),
        ]
        assert all([(await send()).is_success for send in ways])
        for send in ways:
            refused = await send()
            assert (refused.status_code, 0 < int(refused.headers["retry-after"]) <= 60) == (429, True)
            assert "3 messages per minute" in refused.text
        async with program(window, "api:alice") as other:
            assert (await other.post("/messages", json={"text": "hello"})).is_success
        async with program(window) as owner:
            chat = f"{window.url}/chat/c1"
            sent = [(await owner.post(chat, data={"text": "hello"})).status_code for _ in range(4)]
            assert sent == [200, 200, 200, 429]


def test_hostile_connections_keep_nobody_out_and_nothing_running(tmp_path: Path) -> None:
    """Real processes: few descriptors, more hostile connections than are accepted, and an end while all are open."""
    place = Place(tmp_path)
    try:
        port = free_port()
        place.configure(f"web: {{port: {port}, connections: 64, idle_limit: 2s}}\ngrants: [{{platform: api}}]")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        try:
            process = place.up()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        limits = Path(f"/proc/{process.pid}/limits").read_text()
        assert f"Max open files            {min(hard, 65_536)}" in limits
        asyncio.run(_attack(port, place.home / "palaver.db", lambda: process.send_signal(signal.SIGTERM)))
        assert process.wait(PATIENCE) == 0
        assert process.stderr
        assert "error" not in process.stderr.read()
    finally:
        place.close()


async def _attack(port: int, database: Path, end: Callable[[], None]) -> None:
    async with await open_store(str(database)) as store:
        now = SystemClock().now()
        hostile, _ = await issue_token(store, now, name="hostile", identity="api:alice")
        honest, _ = await issue_token(store, now, name="honest", identity="api:bob")
    attack = Attack(port, dict.fromkeys(KINDS, hostile))
    try:
        await attack.grow(140)
        for request in (head(port, "GET /health HTTP/1.1"), message(port, honest, b'{"text": "hello", "wait": 20}')):
            assert await Probe(port, request, patience=PATIENCE).ask() == "200"
        end()
        await asyncio.sleep(0.5)  # they stay while it ends
    finally:
        attack.end()
