"""A third party's adapter, installed in a temporary place: letters out of one folder, answers into another."""

import sys
from pathlib import Path

import pytest

__all__ = ["install"]

_METADATA = "Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n"
_CODE = """
import asyncio
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from pigeon_facts import PLATFORM
from pydantic import BaseModel, SecretStr

from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound
from palaver.protocols.adapter import Limits

HAPPENED = []


class Options(BaseModel):
    folder: Path
    speed: int = 1
    token: SecretStr | None = None


class Pigeon:
    platform = PLATFORM
    options = Options
    limits = Limits()

    def __init__(self, account, folder):
        self.account = account
        self._folder = folder

    @classmethod
    def make(cls, account, options):
        if options.speed > 100:
            raise RuntimeError("pigeons are not that fast")
        return cls(account, options.folder)

    async def run(self, inlet):
        await inlet.connected()
        for letter in sorted(self._folder.glob("*.in")):
            chat, text = letter.read_text().split(": ")
            source = Source(platform="pigeon", account=self.account, chat_id=chat, user_id=chat, message_id=letter.stem)
            await inlet.receive(Inbound(source=source, text=text, at=datetime.now(UTC)), Trust())
        await asyncio.Event().wait()

    async def send(self, outbound, *, idempotency_key):
        (self._folder / f"{uuid4().hex}.out").write_text(f"{outbound.chat_id}: {outbound.text}")
        return idempotency_key


class NoPigeon: ...


async def tell(happening):
    HAPPENED.append(happening.kind)


def deaf(happening): ...
"""

_FACTS = """
from palaver.protocols import Platform

PLATFORM = Platform(
    name="pigeon", title="Pigeon post", adapter="pigeon_post:Pigeon", extra_kinds=("loft",), user_rule=str.upper
)
WRONG = Platform(name="wrong", title="Wrong", adapter="pigeon_post:NoPigeon")
BROKEN = Platform(name="broken", title="Broken", adapter="pigeon_post:Nobody")
"""


def install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `pip install` would: its metadata, and a module that nobody has imported yet."""
    facts = folder / "pigeon_post-1.0.dist-info"
    facts.mkdir(parents=True)
    (facts / "METADATA").write_text(_METADATA)
    (facts / "entry_points.txt").write_text(
        "[palaver.platforms]\npigeon = pigeon_facts:PLATFORM\n"
        "wrong = pigeon_facts:WRONG\nbroken = pigeon_facts:BROKEN\n"
        "other = pigeon_facts:WRONG\nnothing = pigeon_facts:NOTHING\ntelegram = pigeon_facts:PLATFORM\n"
        "terminal = pigeon_facts:PLATFORM\nNot A Name = pigeon_facts:PLATFORM\n"
    )
    (folder / "pigeon_facts.py").write_text(_FACTS)
    (folder / "pigeon_post.py").write_text(_CODE)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    for module in ("pigeon_facts", "pigeon_post"):
        monkeypatch.delitem(sys.modules, module, raising=False)
