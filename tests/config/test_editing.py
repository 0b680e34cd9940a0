"""A change of the configuration file: whole or not at all."""

import os
import stat
from pathlib import Path

import pytest

from palaver.config.editor import ConfigFile, Edit, EditsRefused, FileNotWritable
from palaver.config.loader import Loaded
from palaver.model.errors import BadArgument

_BEFORE = "# mine\ntimezone: UTC # here\n"


def _file(folder: Path, **environ: str) -> ConfigFile:
    path = folder / "palaver.yaml"
    return ConfigFile(folder=folder, environ={"PALAVER_CONFIG": str(path), "PALAVER_HOME": str(folder), **environ})


def _ignore(_: Loaded) -> None:
    pass


def test_a_change_is_written_used_and_its_secret_kept_apart(tmp_path: Path) -> None:
    file, used = _file(tmp_path), list[Loaded]()
    file.path.write_text(_BEFORE)
    edits = [Edit(("agent",), {"name": "model", "model": "openai:small", "key_file": "keys/openai"})]
    loaded = file.change([*edits, Edit(("timezone",), "Europe/Berlin")], {"keys/openai": "sk-1"}, used.append)
    assert used == [loaded]
    assert str(loaded.config.timezone) == "Europe/Berlin"
    assert file.content().startswith("# mine\ntimezone: Europe/Berlin # here\n")
    key = tmp_path / "keys" / "openai"
    assert key.read_text() == "sk-1\n"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert not list(tmp_path.glob(".*"))


def test_a_mistake_changes_nothing_and_names_the_file(tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.path.write_text(_BEFORE)
    # Of what you are changing, it says no line: the file has it only in the draft.
    wrong = [Edit(("reset", "at_hour"), "99"), Edit(("timezone",), "Mars")]
    with pytest.raises(EditsRefused) as refused:
        file.change(wrong, {"keys/x": "secret"}, _ignore)
    assert [line.partition(". ")[0] for line in str(refused.value).splitlines()] == [
        "timezone cannot be 'Mars'",
        "reset.at_hour cannot be '99'",
    ]
    assert file.content() == _BEFORE
    # Of a mistake that the file has already, it says the line of the file as it is.
    file.path.write_text("agent:\n  name: echo\nbusy: nonsense\n")
    with pytest.raises(EditsRefused, match=r"^palaver\.yaml, line 3: busy cannot be 'nonsense'"):
        file.change([Edit(("agent", "streams"), "true"), Edit(("agent", "delay"), "1s")], {}, _ignore)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["palaver.yaml"]


def test_what_the_gateway_refuses_is_put_back_with_its_secrets(tmp_path: Path) -> None:
    file = _file(tmp_path)
    file.path.write_text(_BEFORE)
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "old").write_text("before\n")

    def refuse(_: Loaded) -> None:
        raise BadArgument("no", found="", allowed="", example="")

    with pytest.raises(BadArgument):
        file.change([Edit(("busy",), "interrupt")], {"keys/old": "after", "keys/new": "x"}, refuse)
    assert file.content() == _BEFORE
    assert (tmp_path / "keys" / "old").read_text() == "before\n"
    assert not (tmp_path / "keys" / "new").exists()


def test_a_first_change_makes_the_file_and_the_command_line_keeps_its_store(tmp_path: Path) -> None:
    file = ConfigFile(folder=tmp_path, environ={"XDG_CONFIG_HOME": str(tmp_path / "etc")}, store="other.db")
    assert file.problem() == ""
    loaded = file.change([Edit(("titles",), "false")], {}, _ignore)
    assert (loaded.config.titles, loaded.config.store) == (False, "other.db")
    assert file.path.read_text() == "titles: false\n"
    assert file.change([Edit(("titles",), None)], {}, _ignore).config.titles
    assert file.content() == ""


def test_a_file_that_is_not_ours_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = _file(tmp_path)
    file.path.write_text(_BEFORE)

    def refuses(*_: object) -> bool:
        return False

    monkeypatch.setattr(os, "access", refuses)
    assert "cannot write" in file.problem()
    with pytest.raises(FileNotWritable, match="change it where it is kept"):
        file.change([Edit(("titles",), "false")], {}, _ignore)
    assert file.content() == _BEFORE
