"""`palaver retention` from the outside: it shows what would go, deletes that, and leaves no word of it in any file."""

import io
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main

ARCHIVE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"
NOW = datetime(2026, 3, 29, 12, tzinfo=UTC)

Palaver = Callable[..., str]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "place"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    monkeypatch.setattr(shared_options, "now", lambda: NOW)
    return tmp_path / "place"


@pytest.fixture
def palaver(home: Path, capsys: pytest.CaptureFixture[str]) -> Palaver:
    assert not home.exists()

    def run(*args: str) -> str:
        assert main(list(args)) == 0
        return capsys.readouterr().out

    run("sessions", "import", str(ARCHIVE))
    return run


def test_what_is_shown_is_what_goes_and_its_words_are_in_no_file(
    palaver: Palaver, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert palaver("retention", "preview") == "Nothing is over its limits.\n"
    assert palaver("retention", "run") == "Nothing is over its limits.\n"
    monkeypatch.setenv("PALAVER_RETENTION__CHAT__AGE", "2d")
    palaver("sessions", "search", "shelf")
    shown = palaver("retention", "preview").splitlines()
    assert shown[0].split() == ["class", "would", "go", "size", "last", "used", "before"]
    assert shown[1].split()[:3] == ["chat", "1", "conversations"]
    found = json.loads(palaver("retention", "preview", "--json"))["found"]
    assert [(each["class"], each["items"]) for each in found] == [("chat", 1), ("observed", 0), ("settled", 0)]
    with closing(sqlite3.connect(home / "palaver.db")) as gateway:
        gateway.execute("SELECT * FROM meta").fetchall()
        assert _files_with(home, b"oak shelf")
        assert "1 item deleted." in palaver("retention", "run", "--yes")
        assert _files_with(home, b"oak shelf") == []
    assert len(json.loads(palaver("sessions", "list", "--json"))["sessions"]) == 2
    deleted = json.loads(palaver("retention", "run", "--yes", "--json"))["deleted"]
    assert deleted == []


def test_without_a_terminal_it_says_how_to_confirm(
    palaver: Palaver, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_RETENTION__CHAT__AGE", "2d")
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert main(["retention", "run"]) == 2
    assert capsys.readouterr().err.endswith("for example palaver retention run --yes\n")
    assert len(json.loads(palaver("sessions", "list", "--json"))["sessions"]) == 3


def test_a_wrong_limit_says_what_is_allowed(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not home.exists()
    for name, wrong, allowed in (("AGE", "soon", "90d"), ("AGE", "1h", "from 1d"), ("SIZE", "much", "2GB")):
        monkeypatch.setenv(f"PALAVER_RETENTION__CHAT__{name}", wrong)
        assert main(["retention", "preview"]) == 2
        assert allowed in capsys.readouterr().err
        monkeypatch.delenv(f"PALAVER_RETENTION__CHAT__{name}")


def _files_with(folder: Path, words: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if file.is_file() and words in file.read_bytes()]
