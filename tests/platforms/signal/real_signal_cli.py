"""The adapter on a real signal-cli, as far as that works without an account. `make signal` runs it.

It needs a signal-cli of version 0.13 or later with its Java: set SIGNAL_CLI to the program.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from palaver.model.turn import Outbound
from palaver.platforms.signal.adapter import SignalAdapter, SignalOptions
from palaver.platforms.signal.daemon import Daemon, MethodMissing
from palaver.protocols.adapter import PlatformRefused
from palaver.testkit.recorder import Recorder
from tests.platforms.signal.server import ALICE, NUMBER
from tests.ports import free_port

_START_SECONDS = 90


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str]:
    program = shutil.which(os.environ.get("SIGNAL_CLI", "signal-cli"))
    if program is None:
        pytest.fail("There is no signal-cli. Install it and its Java, and set SIGNAL_CLI to the program.")
    port = free_port()
    arguments = ("--config", str(tmp_path), "daemon", "--http", f"127.0.0.1:{port}", "--receive-mode", "on-connection")
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(program, *arguments, stdout=log, stderr=log)
    try:
        await _started(process, f"http://127.0.0.1:{port}", tmp_path / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _started(process: asyncio.subprocess.Process, url: str, log: Path) -> None:
    async with asyncio.timeout(_START_SECONDS), httpx2.AsyncClient() as client:
        while True:
            if process.returncode is not None:
                pytest.fail(f"signal-cli does not start:\n{await asyncio.to_thread(log.read_text)}")
            try:
                assert (await client.get(f"{url}/api/v1/check")).status_code == 200
            except httpx2.ConnectError:
                await asyncio.sleep(0.2)
            else:
                return


async def test_the_daemon_says_what_our_own_server_says(url: str) -> None:
    adapter = SignalAdapter("helper", SignalOptions(number=NUMBER, url=url))
    async with httpx2.AsyncClient() as client:
        asked: dict[str, Any] = {"jsonrpc": "2.0", "method": "version", "id": 1}
        found = (await client.post(f"{url}/api/v1/rpc", json=asked)).json()
        assert found["result"]["version"] >= "0.13"
        assert (await client.get(f"{url}/api/v1/events", params={"account": NUMBER})).status_code == 400
    for asking in (
        adapter.check(),
        adapter.run(Recorder()),
        adapter.send(Outbound(platform="signal", chat_id=ALICE["sourceUuid"], text="hi"), idempotency_key="1"),
        adapter.typing(Outbound(platform="signal", chat_id=ALICE["sourceUuid"], text="")),
        _listen(url),
    ):
        with pytest.raises(PlatformRefused, match="has no account"):
            await asking
    with pytest.raises(MethodMissing):
        await Daemon(url, NUMBER).call("nonsense")


async def _listen(url: str) -> None:
    async with Daemon(url, NUMBER).events():
        raise AssertionError("it has no account")
