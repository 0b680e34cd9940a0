"""A third party adds commands by installing them; a plugin that is broken is named and left out."""

import logging
import sys
from pathlib import Path

import pytest

from palaver.commands.builtin import builtin_commands
from palaver.commands.plugins import with_plugins
from palaver.commands.registry import Registry
from palaver.store.opening import open_store
from tests.commands.test_registry import said

CODE = """
from palaver.commands.registry import CommandHandler, reply
from palaver.model.command import Command

def dice(store):
    return [CommandHandler(Command(name="dice", help="throw dice", example="/dice"), lambda *_: reply("a six"))]

def clash(store):
    return [CommandHandler(Command(name="new", help="another", example="/new"), lambda *_: reply("mine"))]

def unsayable(store):
    return [CommandHandler(Command(name="Two Words", help="", example=""), lambda *_: reply(""))]

def wrong(store):
    return ["no handler"]

def broken(store):
    raise RuntimeError("the words of somebody")
"""
POINTS = "\n".join(
    f"{name} = {module}"
    for name, module in {
        "dice": "dice_plugin:dice",
        "a-clash": "dice_plugin:clash",
        "b-unsayable": "dice_plugin:unsayable",
        "c-wrong": "dice_plugin:wrong",
        "d-broken": "dice_plugin:broken",
        "e-missing": "no_such_module:x",
    }.items()
)


@pytest.fixture
def plugged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "dice_plugin-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: dice-plugin\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[palaver.commands]\n{POINTS}\n")
    (tmp_path / "dice_plugin.py").write_text(CODE)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


async def _registry(tmp_path: Path) -> Registry:
    async with await open_store(str(tmp_path / "p.db")) as store:
        return with_plugins(builtin_commands(store), store)


@pytest.mark.usefixtures("plugged")
async def test_a_plugin_adds_its_commands_to_the_rest(tmp_path: Path) -> None:
    registry = await _registry(tmp_path)
    assert await said(registry, "/dice") == "a six"
    assert "/dice: throw dice" in await said(registry, "/help")
    assert "Start a new conversation" in await said(registry, "/help new")


@pytest.mark.usefixtures("plugged")
async def test_a_broken_plugin_is_named_and_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    await _registry(tmp_path)
    told = [record.getMessage() for record in caplog.records]
    assert [line.partition(":")[0].rpartition(" ")[2] for line in told] == [
        *("a-clash", "b-unsayable", "c-wrong", "d-broken", "e-missing"),
    ]
    assert "/new is declared twice" in told[0]
    assert "the words of somebody" not in caplog.text
