"""`palaver backup` and `palaver restore` from the outside."""

import asyncio
import json
import os
import tarfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from palaver.cli import shared_options
from palaver.cli.main import main
from palaver.store.backup.backups import Backups
from tests.store.test_backup import fill

ARCHIVE = Path(__file__).parents[2] / "docs/examples/sessions.jsonl"
CONFIG = """\
# an old token: 123:NEVERSHOWN
timezone: Europe/Berlin
agent:
  name: model
  model: openai:gpt-5-mini
  key: sk-very-secret-key-0123456789
platforms:
  telegram:
    accounts:
      helper: {token: "123:VERYSECRET"}
      other: {token: "${TELEGRAM}"}
      third: {token_file: token.txt}
grants:
  - {platform: telegram, user_id: "7", role: owner}
"""

Palaver = Callable[..., str]


@pytest.fixture
def palaver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Palaver:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "place"))
    monkeypatch.delenv("PALAVER_STORE", raising=False)

    def run(*args: str, code: int = 0) -> str:
        assert main(list(args)) == code
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    return run


def sessions(palaver: Palaver) -> list[object]:
    return json.loads(palaver("sessions", "list", "--json"))["sessions"]


def test_back_up_lose_the_disk_and_restore(palaver: Palaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no store yet" in palaver("backup", code=1)
    palaver("sessions", "import", str(ARCHIVE))
    before = sessions(palaver)
    assert "There are no backups" in palaver("backup", "list")
    made = json.loads(palaver("backup", "--json"))
    assert made["configuration"] == "no"
    (listed,) = json.loads(palaver("backup", "list", "--json"))["backups"]
    assert listed["file"] == made["file"]
    assert Path(made["file"]).name in palaver("backup", "list")
    said = palaver("backup", "verify", made["file"])
    assert "The backup is complete and restores." in said
    assert [line.split() for line in said.splitlines()][6:9] == [
        ["conversations", "3"],
        ["entries", "12"],
        ["people", "3"],
    ]
    assert "is not empty" in palaver("restore", made["file"], code=1)
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path / "new"))
    assert "as of" in palaver("restore", made["file"])
    assert sessions(palaver) == before
    content = Path(made["file"]).read_bytes()
    Path(made["file"]).write_bytes(content.replace(b"oak shelf", b"oak table"))
    assert "was changed" in palaver("backup", "verify", made["file"], code=2)


def test_one_file_has_the_configuration_without_its_secrets(
    palaver: Palaver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(CONFIG)
    (tmp_path / "token.txt").write_text("456:ALSOSECRET")
    monkeypatch.setenv("PALAVER_CONFIG", str(own))
    monkeypatch.setenv("TELEGRAM", "789:FROMOUTSIDE")
    palaver("sessions", "import", str(ARCHIVE))
    file = tmp_path / "all.tar"
    assert str(file) in palaver("backup", "-o", str(file))
    assert "already exists" in palaver("backup", "-o", str(file), code=2)
    assert "is no regular file" in palaver("backup", "-o", "", code=2), "an unset variable of a script"
    os.mkfifo(device := file.with_name("device"))
    assert "is no regular file" in palaver("backup", "-o", str(device), "--force", code=2)
    assert device.is_fifo()
    assert str(file) in palaver("backup", "-o", str(file), "--force")
    with tarfile.open(file) as tar:
        part = tar.extractfile("configuration.yaml")
        assert part
        text = part.read().decode()
    assert "SECRET" not in file.read_bytes().decode(errors="replace")
    for word in ("NEVERSHOWN", "very-secret", "FROMOUTSIDE"):
        assert word not in text
    assert 'timezone: "Europe/Berlin"' in text or "timezone: Europe/Berlin" in text
    assert "(set)" in text
    assert "${TELEGRAM}" in text
    assert "token_file" in text
    assert '"role": "owner"' in text


def test_a_backup_without_some_files_is_not_called_complete(palaver: Palaver, tmp_path: Path) -> None:
    place = tmp_path / "place"
    backups = Backups(database=place / "palaver.db", files=place / "files", folder=place / "backups")
    asyncio.run(fill(backups, b"missing"))
    next((place / "files").glob("??/*")).unlink()
    made = json.loads(palaver("backup", "--json"))["file"]
    said = palaver("backup", "verify", made)
    assert "The backup restores, but 1 file could not be backed up." in said
    assert "complete" not in said


def test_a_clock_that_is_behind_is_noticed(palaver: Palaver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small computer without a clock of its own starts in the past, and its backups are the first to be removed."""
    palaver("sessions", "import", str(ARCHIVE))
    assert "The clock" not in palaver("backup")
    monkeypatch.setattr(shared_options, "now", lambda: datetime(2020, 1, 1, tzinfo=UTC))
    said = palaver("backup")
    assert "The clock is wrong, or was: this backup is dated 2020-01-01 00:00 UTC" in said
    assert "Set the clock, then make another backup." in said
    made = json.loads(palaver("backup", "--json"))
    assert made["misdated"]
    assert "complete and restores" in palaver("backup", "verify", made["file"])


def test_postgresql_has_its_own_tools(palaver: Palaver) -> None:
    for command in (["backup"], ["backup", "list"]):
        said = palaver(*command, "--store", "postgresql://nobody@127.0.0.1:1/none", code=1)
        assert "pg_dump" in said
        assert "files" in said
