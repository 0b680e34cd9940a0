"""`palaver migrate` from the outside."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from palaver.cli.main import main
from tests.cli.test_output import Terminal
from tests.store.conftest import fresh_database
from tests.store.older import make_older

ARCHIVE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"


def test_a_store_moves_to_postgresql_and_back(
    postgres_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    server = asyncio.run(fresh_database(postgres_server))
    assert main(["migrate", server]) == 1
    assert "no store yet" in capsys.readouterr().err
    assert main(["sessions", "import", str(ARCHIVE)]) == 0
    assert main(["migrate", str(tmp_path / "b.db")]) == 2
    assert "same kind of database" in capsys.readouterr().err
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", screen := Terminal())
        assert main(["migrate", server]) == 0
    assert "copy entries" in screen.getvalue()
    assert screen.getvalue().endswith("\r\x1b[K"), "the result begins on a line of its own"
    said = capsys.readouterr().out
    assert "and compared each" in said
    assert "Remove it when you no longer need it" in said
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", "sqlite:///b.db", "--from", server, "--json"]) == 0
    moved = json.loads(capsys.readouterr().out)
    assert moved["rows"] > 12
    assert moved["to"] == str(tmp_path / "b.db"), "in the configuration a relative path is another one"
    for place in (server, str(tmp_path / "b.db"), str(tmp_path / "palaver.db")):
        assert main(["sessions", "search", "shelf", "--store", place, "--json"]) == 0
        assert "oak shelf" in capsys.readouterr().out


def test_an_older_store_is_copied_into_a_new_one_of_the_same_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    filled, older, new = tmp_path / "filled.db", tmp_path / "older.db", tmp_path / "new.db"
    assert main(["sessions", "import", str(ARCHIVE), "--store", str(filled)]) == 0
    asyncio.run(make_older(filled, str(older)))
    assert main(["sessions", "list", "--store", str(older)]) == 1
    assert "palaver migrate" in capsys.readouterr().err
    assert main(["migrate", str(new), "--from", str(older)]) == 0
    assert main(["sessions", "search", "shelf", "--store", str(new), "--json"]) == 0
    assert "oak shelf" in capsys.readouterr().out
