"""The example of docs/adapters.md is an adapter like any other: it passes the suite."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from palaver.domain.source import Source
from palaver.platforms.kit.conformance import AdapterConformance, CannotHappen, Rig, Shown
from palaver.ports.adapter import Adapter

EXAMPLE = Path(__file__).parents[3] / "docs/examples/folder_adapter.py"


def example() -> Any:
    spec = importlib.util.spec_from_file_location("folder_adapter", EXAMPLE)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class FolderRig:
    chat_id = "7"
    thread_id = None

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._module = example()
        (folder / "chats.txt").write_text("7\n")
        (folder / "in.jsonl").touch()
        (folder / "out.jsonl").touch()

    def adapter(self) -> Adapter:
        return self._module.FolderAdapter(self._folder)

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        assert thread_id is None
        line = {"chat": "7", "user": "a", "name": name, "text": text, "at": 0}
        with (self._folder / "in.jsonl").open("ab") as file:
            place = file.tell()
            file.write(json.dumps(line).encode() + b"\n")
        return Source(platform="folder", chat_id="7", user_id="a", message_id=str(place))

    async def shown(self) -> list[Shown]:
        lines = map(json.loads, (self._folder / "out.jsonl").read_text().splitlines())
        return [Shown(chat_id=line["chat"], text=line["text"]) for line in lines]

    async def cut(self) -> None:
        """The folder is away for a moment."""
        (self._folder / "in.jsonl").rename(self._folder / "away")
        (self._folder / "away").rename(self._folder / "in.jsonl")

    async def limit_rate(self) -> None:
        raise CannotHappen("files take any number of lines")

    async def lose_send(self, *, shown: bool) -> None:
        del shown
        raise CannotHappen("a line is written or not, and we know which")

    async def close_chat(self) -> None:
        (self._folder / "chats.txt").write_text("")


class TestExample(AdapterConformance):
    @pytest.fixture
    def rig(self, tmp_path: Path) -> Rig:
        return FolderRig(tmp_path)
