"""`palaver config check` finds what a gateway could not use, and its suggestions can be pasted."""

import base64
import pkgutil
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

import palaver.engine
import palaver.gateway
import palaver.tools
from palaver.cli.main import main
from palaver.model.tools import BUILT_IN_TOOLS
from palaver.protocols.tools import Tool

NO_PROC = "/proc/1/x"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").touch()
    (tmp_path / "two").write_text("sk-a\nsk-b\n")
    (tmp_path / "blanks").write_text("sk a b\n")
    return tmp_path


def check(text: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    Path("own.yaml").write_text(text)
    code = main(["config", "check", "own.yaml"])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        *(
            (f"agent: {{name: model, model: 'openai:gpt-5', key_file: {file}}}", said)
            for file, said in (("gone", "cannot be read"), ("empty", "'nothing'"), ("two", "'2 lines'"))
        ),
        ("agent: {name: model, model: 'openai:gpt-5', key_file: blanks}", "'blanks or characters that no key has'"),
        ("agent: {name: model, model: 'openai:gpt-5', key: 'a b'}", "The key in key cannot be 'blanks or"),
        ("encryption: {key_file: gone}", "encryption.key_file: Cannot read a secret from"),
        ("encryption: {key_file: empty}", "encryption.key_file: Cannot read a secret from"),
        ("encryption: {key_file: two}", "encryption.key_file: the encryption key is not one that palaver encryption"),
        ("tools: {terminal: {backend: ssh, ssh: {host: a, key_file: gone}}}", "tools.terminal.ssh.key_file: "),
        ("tools: {member: searhc}", "tools.member: there is no tool 'searhc'. Did you mean search?"),
        ("tools: {member: [search, searhc]}", "tools.member: there is no tool 'searhc'. Did you mean search?"),
        ("tools: {allowed: {treminal: ask}}", "there is no tool 'treminal'. Did you mean terminal?"),
        ("platforms: {telegram: {tools: xyz}}", "platforms.telegram.tools: there is no tool 'xyz'. Use ask_user, "),
        ("tools: {allowed: {terminal: sometimes}}", "Use always, ask, never, for example terminal: always"),
        ("web: {origins: 'a.example'}", "for example origins: https://app.example.org, http://localhost:5173"),
        ("web: {origins: ['https://a.example/x']}", "web.origins"),
        (
            "backup: {every: 1d}\nstore: postgresql://a@b/c",
            "own.yaml:1: backup.every: Palaver makes no backups of a store on PostgreSQL. Set it to off. Run pg_dump",
        ),
    ],
)
def test_what_cannot_work_is_found(text: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out = check(text, capsys)
    assert (code, said in out) == (2, True), out


def test_what_works_is_valid(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "key").write_text("sk-1\n")
    (home / "own.key").write_text(base64.b64encode(bytes(32)).decode())
    text = """
agent: {name: model, model: 'openai:gpt-5', key_file: key}
encryption: {key_file: own.key}
backup: {every: 1d}
web: {origins: [https://app.example.org, "http://localhost:5173"]}
tools: {member: "search, notes__read, file_*", admin: all, guest: off, allowed: {terminal: always, notes__x: ask}}
"""
    assert check(text, capsys)[0] == 0
    assert sorted(each.name for each in home.iterdir()) == ["blanks", "empty", "key", "own.key", "own.yaml", "two"]


@pytest.mark.linux
def test_a_data_directory_that_cannot_be_made_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PALAVER_HOME")
    code, out = check(f"data_dir: {NO_PROC}", capsys)
    assert (code, f"{NO_PROC}, which cannot be made or written" in out) == (2, True), out


def test_backups_of_postgresql_are_refused_where_the_store_is_a_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("own.yaml").write_text("backup: {every: 1d}")
    monkeypatch.setenv("PALAVER_CONFIG", "own.yaml")
    url = "postgresql://nobody@127.0.0.1:9/none"
    assert main(["up", "--store", url]) == 2
    assert "Run pg_dump on a schedule" in capsys.readouterr().err
    monkeypatch.setenv("PALAVER_STORE", url)
    assert main(["config", "check"]) == 2
    assert "own.yaml:1: backup.every: " in capsys.readouterr().out


def _tools(found: object) -> Iterable[str]:
    if isinstance(found, Tool):
        yield found.name
    elif isinstance(found, tuple | list):
        for each in found:  # pyright: ignore[reportUnknownVariableType] - anything in a module
            yield from _tools(each)  # pyright: ignore[reportUnknownArgumentType]


def test_the_names_of_tools_are_those_that_there_are() -> None:
    found = set[str]()
    for package in (palaver.tools, palaver.engine, palaver.gateway):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in vars(import_module(each.name)).values():
                found |= set(_tools(value))
    assert found == BUILT_IN_TOOLS
