"""An archive has the contents of files and what was used; doctor notices files that are gone."""

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from palaver.cli.main import main

CONTENT = b"four and a half \x00 pages"
NAME = hashlib.sha256(CONTENT).hexdigest()
SESSION = "01kmjz3d80ann0h011day00000"
COUNTS = {"input_tokens": 52, "output_tokens": 4, "cached_tokens": 30, "cost_micros": 7, "unpriced_tokens": 9}
USED = COUNTS | {"input_tokens": 55, "output_tokens": 5}
"""With what the title used."""
AT = "2026-03-25T09:00:00Z"
ADDRESS = {"chat_id": "7", "chat_kind": "dm", "platform": "telegram", "profile": "main", "user_id": "7"}
LINES: list[dict[str, Any]] = [
    {"format": "palaver-sessions", "version": 1},
    {"file": {"sha256": NAME, "content": base64.b64encode(CONTENT).decode()}},
    {
        "session": {
            "id": SESSION,
            "key": "agent:main:telegram:dm:7",
            "profile": "main",
            "platform": "telegram",
            "owner": "telegram:7",
            "origin": ADDRESS,
            **dict.fromkeys(("started", "last_human", "last_active"), AT),
            "next_seq": 4,
            "turn_count": 1,
            **COUNTS,
            "participants": ["telegram:7"],
            "routes": [{"key": "agent:main:telegram:dm:7", "address": ADDRESS}],
            "turns": [
                {"state": "done", "started": AT, "ended": AT, "identity": "telegram:7", "model": "m"}
                | COUNTS
                | {"prompt_tokens": 56, "title": {"at": AT, "model": "small", "input_tokens": 3, "output_tokens": 1}},
                {"state": "failed", "started": AT, "ended": AT, "error": "no", "identity": "telegram:7"},
            ],
        }
    },
    {
        "entry": {
            "seq": 1,
            "role": "user",
            "at": AT,
            "text": "Read this",
            "turn": 1,
            "sender": {"id": "7", "name": "Ann"},
            "files": [{"name": "plan.pdf", "media_type": "application/pdf", "size": len(CONTENT), "sha256": NAME}],
        }
    },
    {"entry": {"seq": 2, "role": "assistant", "at": AT, "text": "I did", "turn": 1}},
    {"entry": {"seq": 3, "role": "user", "at": AT, "text": "And?", "turn": 2, "sender": {"id": "7"}}},
    {"end": {"session": SESSION, "entries": 3}},
]


class Place:
    """Runs commands in one data directory or another."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], patch: pytest.MonkeyPatch) -> None:
        self.folder, self._capsys, self._patch = folder, capsys, patch

    def __call__(self, *args: str, home: str = "one", code: int = 0) -> str:
        self._patch.setenv("PALAVER_HOME", str(self.folder / home))
        assert main(list(args)) == code, self._capsys.readouterr().err
        return self._capsys.readouterr().out

    def stored(self, home: str = "one") -> Path:
        return self.folder / home / "files" / NAME[:2] / NAME


@pytest.fixture
def palaver(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place with one session, which has a file."""
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    place = Place(tmp_path, capsys, monkeypatch)
    (tmp_path / "given.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in LINES))
    assert place("sessions", "import", str(tmp_path / "given.jsonl")) == "1 imported\n"
    return place


def test_files_and_usage_come_back(palaver: Place, tmp_path: Path) -> None:
    archive = str(tmp_path / "archive.jsonl")
    palaver("sessions", "export", "--all", "-o", archive)
    assert [json.loads(line) for line in Path(archive).read_text().splitlines()] == LINES
    assert palaver("sessions", "import", archive, home="two") == "1 imported\n"
    assert palaver.stored("two").read_bytes() == CONTENT
    again = str(tmp_path / "again.jsonl")
    palaver("sessions", "export", "--all", "-o", again, home="two")
    assert Path(again).read_bytes() == Path(archive).read_bytes()
    for _ in range(2):
        used = json.loads(palaver("usage", "--by", "person", "--since", "2026-01-01", "--json", home="two"))
        assert used == {"person": [{"person": "telegram:7", "turns": 1, **USED}]}
        palaver("sessions", "import", archive, home="two")
    for home in ("one", "two"):
        palaver("sessions", "delete", SESSION, "--yes", home=home)
        assert palaver("sessions", "import", archive, home=home) == "1 imported\n"
        used = json.loads(palaver("usage", "--by", "person", "--since", "2026-01-01", "--json", home=home))
        assert used == {"person": [{"person": "telegram:7", "turns": 1, **USED}]}, "it was not used again"


def test_a_missing_file_comes_back_with_an_import_and_a_false_one_is_refused(palaver: Place, tmp_path: Path) -> None:
    palaver.stored().unlink()
    false = (tmp_path / "given.jsonl").read_text().replace(base64.b64encode(CONTENT).decode(), "AAAA")
    (tmp_path / "false.jsonl").write_text(false)
    palaver("sessions", "import", str(tmp_path / "false.jsonl"), code=1)
    assert not palaver.stored().exists()
    assert palaver("sessions", "import", str(tmp_path / "given.jsonl")) == "1 already there, unchanged\n"
    assert palaver.stored().read_bytes() == CONTENT


def test_an_export_of_a_person_has_the_contents_of_files(
    palaver: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "ann.jsonl"
    palaver("people", "export", "telegram:7", "-o", str(file))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert LINES[1] in lines
    assert "Complete and unchanged" in palaver("people", "verify", str(file))
    palaver.stored().unlink()
    assert main(["people", "export", "telegram:7", "-o", str(file), "--force"]) == 0
    assert "1 file could not be exported: the content is not on this machine." in capsys.readouterr().err


def test_doctor_notices_files_that_are_gone_or_damaged(palaver: Place) -> None:
    def attachments(code: int) -> str:
        checks = json.loads(palaver("doctor", "--json", code=code))["checks"]
        return next(check["found"] for check in checks if check["name"] == "attachments")

    assert attachments(0) == "1 file, complete and unchanged"
    palaver.stored().write_bytes(b"something else")
    assert attachments(1) == f"0 missing, 1 damaged: {NAME[:16]}"
    palaver.stored().unlink()
    assert attachments(1) == f"1 missing, 0 damaged: {NAME[:16]}"
