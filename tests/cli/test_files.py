"""`palaver file`: the operator gets a file by its id."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.turn import Inbound
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store
from palaver.store.queue import inbox
from tests.store.world import World, dm, key_of


async def _content() -> AsyncIterator[bytes]:
    yield b"hello"


async def _sent(home: Path) -> str:
    kept = await BlobStore(home / "files").keep(_content(), 9)
    async with await open_store(f"sqlite:///{home}/palaver.db") as store:
        world, source = World(store), dm(message_id="photo")
        file = Attachment(Label("a\u202eb.txt"), "text/plain", kept.size, kept.sha256)
        inbound = Inbound(source=source, text="", at=world.now, files=(file,))
        await store.transact(inbox.accept(inbound, key_of(source), world.now))
        await world.begin()
    return kept.sha256[:16]


def test_a_file_is_described_and_copied_but_over_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    name, output = asyncio.run(_sent(tmp_path)), tmp_path / "out.txt"
    assert main(["file", name]) == 0
    assert "ab.txt, text/plain, 5 bytes: at " in capsys.readouterr().out
    assert main(["file", name, "-o", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["id"] == name
    assert output.read_bytes() == b"hello"
    assert main(["file", name, "-o", str(output)]) == 2
    capsys.readouterr()
    assert main(["file", name, "-o", "-"]) == 0
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("hello", "ab.txt, text/plain, 5 bytes: on standard output\n")
    assert main(["file", "0" * 16]) == 1
    assert "There is no file" in capsys.readouterr().err
