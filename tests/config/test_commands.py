"""Which role a command needs can be chosen; a name that is none, or a role that is none, is a mistake."""

from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from palaver.commands.plugins import GROUP
from palaver.config import model
from palaver.config.effective import effective_settings
from palaver.config.errors import MalformedConfig, Mistake
from palaver.config.loader import load, load_with_sources
from palaver.model.access import AccessRole

OWN = {"PALAVER_CONFIG": "own.yaml"}


def _installed(found: tuple[EntryPoint, ...], group: str) -> tuple[EntryPoint, ...]:
    assert group == GROUP
    return found


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(model, "find_plugins", partial(_installed, ()))


def _mistake(text: str, file: str = "own.yaml") -> Mistake:
    Path("own.yaml").touch()
    Path(file).write_text(text)
    with pytest.raises(MalformedConfig) as caught:
        load(Path(), OWN)
    (mistake,) = caught.value.mistakes
    return mistake


def test_a_role_is_chosen_for_a_command_and_shown() -> None:
    Path("own.yaml").write_text("commands:\n  model: admin\n  status: guest\n")
    loaded = load_with_sources(Path(), OWN)
    assert loaded.config.settings().command_roles == {"model": AccessRole.ADMIN, "status": AccessRole.GUEST}
    shown = {setting.field: (setting.value, str(setting.position)) for setting in effective_settings(loaded)}
    assert shown["commands.model"] == ("admin", "own.yaml:2")


def test_a_command_that_there_is_not_is_named_with_the_one_that_was_meant() -> None:
    mistake = _mistake("commands: {modle: admin}")
    assert (mistake.problem, mistake.found, mistake.example) == (
        "commands: there is no command",
        "modle",
        "commands: {model: admin}",
    )
    assert str(mistake).endswith("Did you mean model?")
    assert "Did you mean" not in str(_mistake("commands: {frobnicate: admin}"))
    assert _mistake("commands: {queue: admin}").found == "queue"


def test_a_role_that_there_is_not_is_named_with_those_that_there_are() -> None:
    mistake = _mistake("commands:\n  model: king")
    assert (str(mistake.position), mistake.problem, mistake.found) == ("own.yaml:2", "commands.model cannot be", "king")
    assert (mistake.allowed, mistake.example) == ("guest, member, admin, owner", "model: member")


def test_with_plugins_any_name_can_be_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = EntryPoint("dice", "dice:all", GROUP)
    monkeypatch.setattr(model, "find_plugins", partial(_installed, (dice,)))
    Path("own.yaml").write_text("commands: {dice: admin}")
    assert load(Path(), OWN).commands == {"dice": AccessRole.ADMIN}


def test_a_project_opens_no_command_to_others() -> None:
    assert (
        _mistake("commands: {platforms: guest}", "palaver.yaml").problem
        == "commands cannot be set in a project's file."
    )
