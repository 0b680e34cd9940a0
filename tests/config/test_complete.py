"""The annotated complete configuration: it loads, names every setting, and says the defaults."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.config.loader import load
from palaver.config.model import Config
from palaver.settings.types import Section

FILE = Path(__file__).parents[2] / "docs/examples/complete.yaml"
CHOSEN = {"agent", "platforms", "kinds", "profiles", "grants", "commands", "caps"}
"""Fields with examples instead of defaults."""
ENVIRON = {"PALAVER_HOME": "/data", "ANTHROPIC_API_KEY": "k", "TELEGRAM_TOKEN": "7:t"}


def names(part: Section) -> Iterator[str]:
    for name in type(part).model_fields:
        yield name
        if isinstance(inner := getattr(part, name), Section) and name not in {*CHOSEN, "relay"}:
            yield from names(inner)


def read(file: Path) -> Config:
    return load(Path(), {**ENVIRON, "PALAVER_CONFIG": str(file)})


def test_it_is_valid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in {**ENVIRON, "PALAVER_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    assert main(["config", "check", str(FILE)]) == 0, capsys.readouterr().out


def test_it_names_every_setting_and_copying_the_rest_changes_nothing(tmp_path: Path) -> None:
    (empty := tmp_path / "empty.yaml").touch()
    complete, default = read(FILE), read(empty)
    written = set(re.findall(r"^ *(?:# )?([a-z_]+):", FILE.read_text(), re.MULTILINE))
    assert set(names(default)) <= written
    for name in Config.model_fields.keys() - CHOSEN:
        assert getattr(complete, name) == getattr(default, name), name
