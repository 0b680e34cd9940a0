"""How far one message has to go through the code, and how often its text is parsed."""

import re
from pathlib import Path

import pytest

from bench.path import Recorder, functions_by_module, record_hello
from palaver.engine.intake import command_dispatch
from palaver.model.command import Command, Invocation, parse_command
from tests.engine.gateway import running

ARCHITECTURE = Path(__file__).parents[2] / "docs/architecture.md"
MOST_MODULES = 42
"""A message that needs more modules than this is hard to follow."""


async def test_one_message_passes_few_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    # What maintenance does meanwhile is in one of them, if in any; on a slow machine the index is filled in each.
    monkeypatch.setattr("palaver.store.search.search.QUIET_SECONDS", 3600.0)
    recorders = [Recorder(), Recorder(), Recorder()]
    for recorder in recorders:
        await record_hello(recorder)
    modules = set[str].intersection(*(set(functions_by_module(recorder)) for recorder in recorders))
    assert len(modules) <= MOST_MODULES, modules
    table = ARCHITECTURE.read_text().partition("| stage | modules |")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([\w.]+)`", table)) == modules


@pytest.mark.parametrize("text", ["hello", "/status"])
async def test_a_message_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    parsed: list[str] = []

    def count(text: str, table: dict[str, Command], **more: bool) -> Invocation | None:
        parsed.append(text)
        return parse_command(text, table, **more)

    monkeypatch.setattr(command_dispatch, "parse_command", count)
    async with running(tmp_path / "p.db") as here:
        alice = here.world.person("alice")
        await here.world.dm(alice).say(alice, text)
        await here.settled()
    assert parsed == ([text] if text.startswith("/") else [])
