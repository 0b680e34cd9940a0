"""`palaver config`: right or wrong, what counts, and where it is."""

import json
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.cli.up import Reloader, config_file
from palaver.config.model import Config
from palaver.gateway.gateway import Gateway


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setenv("PALAVER_CONFIG", "own.yaml")
    monkeypatch.setenv("WORD", "sesame")
    Path("own.yaml").write_text("busy: steer\nstore: postgresql://me:${WORD}@db/x\n")
    Path("palaver.yaml").write_text("titles: true\ntools: {allowed: {search: never}}\n")
    return tmp_path


@pytest.mark.usefixtures("here")
def test_a_right_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check"]) == 0
    assert capsys.readouterr().out == "The configuration is valid.\n"
    assert main(["config", "check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"ok": True, "mistakes": [], "cautions": []}


@pytest.mark.usefixtures("here")
def test_a_limit_on_an_unknown_price_is_a_warning_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "agent: {name: model, model: 'openai:nobody-knows', key: k}\ncaps: {day: {cost: 5}}\n"
    Path("own.yaml").write_text(text)
    assert main(["config", "check"]) == 0
    warning, valid = capsys.readouterr().out.splitlines()
    assert "own.yaml:2: The price of openai:nobody-knows is unknown" in warning
    assert valid == "The configuration is valid, with 1 warning."
    assert main(["doctor", "--store", "x.db", "--no-test"]) == 0
    shown = capsys.readouterr().out
    assert "warn  limits: The price of openai:nobody-knows is unknown" in shown
    assert shown.endswith("Everything works. Read the warnings above.\n")


@pytest.mark.usefixtures("here")
def test_a_wrong_configuration_ends_with_two_and_every_mistake(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text("busy: x\nlog: {level: y}\n")
    assert main(["config", "check", "other.yaml"]) == 2
    first, second, count = capsys.readouterr().out.splitlines()
    assert first.startswith("other.yaml:1: busy cannot be 'x'. Use queue")
    assert second.startswith("other.yaml:2: log.level cannot be 'y'. Use debug")
    assert count == "2 mistakes."
    assert main(["config", "check", "other.yaml", "--json"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert not said["ok"]
    assert said["mistakes"][0] == {
        "file": "other.yaml",
        "line": 1,
        "field": "busy",
        "problem": "busy cannot be",
        "found": "x",
        "allowed": "queue, collect, interrupt, steer",
        "example": "busy: queue",
    }


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("command", "code"), [("config check own.yaml", 2), ("doctor --store x.db", 1), ("chat -m x", 2)]
)
def test_a_model_of_no_provider_is_refused_alike_no_matter_where_it_is_looked_at(
    command: str, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(here))
    Path("own.yaml").write_text("profiles:\n  work:\n    agent: {name: model, model: 'nothing:x'}\n")
    assert main(command.split()) == code
    said = capsys.readouterr()
    assert "Unknown model 'nothing:x'. Use provider:model, with " in said.out + said.err
    assert ("own.yaml:3: profiles.work.agent: " in said.out) == command.startswith("config")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("command", ["config show", "sessions list"])
def test_commands_that_need_a_right_configuration_say_what_is_wrong(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text("busy: x")
    assert main(command.split()) == 2
    assert capsys.readouterr().err.startswith("palaver: own.yaml:1: busy cannot be 'x'. Use queue")


@pytest.mark.usefixtures("here")
def test_what_counts_and_where_it_comes_from(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PALAVER_HOME", "/data")
    assert main(["config", "show"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines()]
    assert ["busy", "steer", "own.yaml:1"] in rows
    assert ["tools.allowed.search", "never", "palaver.yaml:2"] in rows
    assert ["data_dir", "/data", "PALAVER_HOME"] in rows
    assert ["agent.streams", "false", "default"] in rows
    assert ["store", "postgresql://me:(set)@db/x", "own.yaml:2"] in rows
    assert main(["config", "show", "--json"]) == 0
    shown = capsys.readouterr().out
    settings = {row["field"]: (row["value"], row["from"]) for row in json.loads(shown)["settings"]}
    assert settings["titles"] == (True, "palaver.yaml:1")
    assert settings["agent.streams"] == (False, "default")
    assert "sesame" not in printed + shown


SECRETS_IN_SETTINGS = """
agent: {name: http, url: "https://sesame@agents.example/run?v=2&key=sesame"}
profiles:
  b: {agent: {name: program, command: [node, agent.js, --api-key, sesame, --key-file, shown.txt]}}
  c: {agent: {name: model, model: "openai:x", base_url: "https://llm.example/v1?api_version=7&code=sesamesesamesesame"}}
tools:
  servers:
    one: {command: notes, args: [--token, sesame, --max-tokens, "500", --auth=sesame, -secret, sesame]}
    two: {url: "https://tools.example/s/sesame0sesame1sesame2sesame3/mcp?sig=sesame"}
    four: {url: "https://tools2.an-inner-network.example.org/mcp"}
    three: {command: sh, args: [-c, "serve --token sesame -v", "API_KEY=sesame", "PASSWORD=sesame run"]}
"""


@pytest.mark.usefixtures("here")
def test_no_secret_is_shown_that_stands_in_an_address_or_an_argument(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text(SECRETS_IN_SETTINGS)
    assert main(["config", "show"]) == 0
    printed = capsys.readouterr().out
    assert main(["config", "show", "--json"]) == 0
    shown = capsys.readouterr().out
    assert "sesame" not in printed + shown
    values = {row["field"]: row["value"] for row in json.loads(shown)["settings"]}
    assert values["agent.url"] == "https://(set)@agents.example/run?v=2&key=(set)"
    assert values["profiles.b.agent.command[5]"] == "shown.txt"
    assert values["profiles.c.agent.base_url"] == "https://llm.example/v1?api_version=7&code=(set)"
    assert values["tools.servers.one.args[3]"] == "500"
    assert values["tools.servers.two.url"] == "https://tools.example/s/(set)/mcp?sig=(set)"
    assert values["tools.servers.four.url"] == "https://tools2.an-inner-network.example.org/mcp"
    assert values["tools.servers.three.args[1]"] == "serve --token (set) -v"
    Path("own.yaml").write_text("agent: {name: http, url: 'ftp://x/?token=sesame'}")
    assert main(["config", "check"]) == 2
    assert "sesame" not in capsys.readouterr().out


@pytest.mark.usefixtures("here")
def test_items_are_shown_as_far_as_they_were_said(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text("grants:\n  - {platform: irc}\nplatforms:\n  irc:\n    reset: {at_hour: 3}\n")
    main(["config", "show", "--json"])
    rows = [(row["field"], row["value"], row["from"]) for row in json.loads(capsys.readouterr().out)["settings"]]
    assert [row for row in rows if row[0].startswith(("grants", "platforms"))] == [
        ("platforms.irc.reset.at_hour", 3, "own.yaml:5"),
        ("grants[0].platform", "irc", "own.yaml:2"),
    ]


def test_where_it_is(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").unlink()
    assert main(["config", "path", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "files": [
            {"whose": "user", "path": str(here / "own.yaml"), "exists": False},
            {"whose": "project", "path": str(here / "palaver.yaml"), "exists": True},
        ]
    }
    assert main(["config", "path"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["user", "project"]


@pytest.mark.usefixtures("here")
def test_sessions_are_those_of_the_configured_store(capsys: pytest.CaptureFixture[str]) -> None:
    Path("own.yaml").write_text("store: kept.db")
    archive = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"
    assert main(["sessions", "import", str(archive)]) == 0
    assert Path("kept.db").exists()
    assert main(["sessions", "list", "--store", "kept.db"]) == 0
    assert "Holiday" in capsys.readouterr().out


def test_a_role_without_a_limit_of_its_own_shows_the_one_for_everybody(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "own.yaml").write_text("caps: {person_day: {tokens: 5}, guest: {person_day: {tokens: 1}}}")
    assert main(["config", "show", "--json"]) == 0
    shown = {each["field"]: each["value"] for each in json.loads(capsys.readouterr().out)["settings"]}
    assert [shown[f"caps.{role}.person_day.tokens"] for role in ("member", "guest")] == [5, 1]


def test_a_reload_that_stays_wrong_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "mine.yaml"
    monkeypatch.setenv("PALAVER_CONFIG", str(file))
    reloader = Reloader(
        Gateway(Config(data_dir=tmp_path, store=f"sqlite:///{tmp_path}/palaver.db"), file=config_file(None))
    )
    for text in ("nonsense: 1", "nonsense: 1", "rubbish: 1", "busy: queue", "rubbish: 1"):
        file.write_text(text)
        reloader.reload()
    rejected = [each for each in caplog.records if vars(each).get("action") == "reload.rejected"]
    assert ["nonsense" in each.getMessage() for each in rejected if each.levelname == "ERROR"] == [True, False, False]
