"""`palaver` where the world is unkind: full disks, closed pipes, poor encodings, stores that may only be read."""

import codecs
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from palaver.cli.main import main

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "docs/examples/sessions.jsonl"
NOBODY = 65534
COMMANDS = ["sessions list", "sessions list --json", "sessions export --all", "--help", "--version", "explain --help"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    assert main(["sessions", "import", str(ARCHIVE)]) == 0
    capsys.readouterr()
    return tmp_path


def palaver(command: str, shell: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own, with what the shell puts behind it."""
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", f"{sys.executable} -m palaver {command} {shell}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


@pytest.mark.usefixtures("home")
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_sentence(command: str) -> None:
    done = palaver(command, "> /dev/full")
    assert (done.returncode, done.stderr) == (1, "palaver: the system refused: No space left on device\n")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", COMMANDS)
def test_whoever_stops_reading_is_told_nothing(command: str) -> None:
    done = palaver(command, "| true")
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", COMMANDS)
def test_what_has_nowhere_to_go_is_no_success(command: str) -> None:
    done = palaver(command, ">&-")
    assert (done.returncode, done.stderr) == (
        1,
        "palaver: standard output is closed, so there was nowhere to write to\n",
    )
    assert palaver(command, ">&- 2>&- <&-").returncode == 1
    assert palaver(command, "2>&- <&-").returncode == 0


@pytest.mark.usefixtures("home")
def test_what_the_encoding_does_not_have_is_written_as_numbers() -> None:
    done = palaver("sessions list", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"R\xfcgen it is" in done.stdout
    found = json.loads(palaver("sessions list --json", PYTHONIOENCODING="ascii").stdout)
    assert found["sessions"][0]["last_said"] == "Rügen it is. Which train?"
    assert "Rügen" in palaver("sessions export --all", PYTHONIOENCODING="ascii").stdout
    assert r"'\xfc'" in palaver("explain target ü", PYTHONIOENCODING="ascii").stderr


@pytest.mark.usefixtures("home")
def test_lines_have_no_spaces_at_their_end() -> None:
    for command in ("sessions list", "sessions stats", "sessions show Holiday", "tour"):
        printed = palaver(command).stdout
        assert printed
        assert not [line for line in printed.splitlines() if line != line.rstrip()]


@contextmanager
def nobody() -> Generator[None]:
    """As somebody who may write only what is open to everybody: the permissions of root would be no test."""
    if os.geteuid():
        yield
        return
    codecs.lookup("utf-16-le")  # is imported late, from where perhaps only root may look
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def frozen(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store in a place where anybody may look, and nobody may write."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        file = place / "palaver.db"
        file.write_bytes((home / "palaver.db").read_bytes())
        file.chmod(0o444)
        place.chmod(0o555)
        monkeypatch.setenv("PALAVER_HOME", name)
        yield place
        place.chmod(0o755)


@pytest.mark.parametrize("mode", [0o555, 0o777])
def test_a_store_that_may_only_be_read_can_be_looked_at(
    frozen: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen.chmod(mode)
    with nobody():
        for command in ("list", "show Holiday", "search train", "stats", "export --all"):
            assert main(["sessions", *command.split()]) == 0, capsys.readouterr().err
            printed = capsys.readouterr()
            assert printed.err == ""
            assert "train" in printed.out or command == "stats"
        assert main(["doctor"]) == 0
        capsys.readouterr()
        assert main(["sessions", "rename", "Holiday", "x"]) == 1
    assert "readonly" in capsys.readouterr().err
    assert {path.name for path in frozen.iterdir()} <= {"palaver.db", "palaver.db.search"}


def test_what_a_gateway_is_writing_can_be_looked_at(frozen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its log is there and readable: what stands only in it is seen."""
    writer = (
        "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute(\"UPDATE sessions SET title = 'Wadden Sea'"
        " WHERE title = 'Holiday'\"); db.commit(); print(flush=True); sys.stdin.read()"
    )
    file = frozen / "palaver.db"
    frozen.chmod(0o755)
    file.chmod(0o644)
    command = [sys.executable, "-c", writer, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        for path in frozen.iterdir():
            path.chmod(0o444)
        frozen.chmod(0o555)
        with nobody():
            assert main(["sessions", "list"]) == 0, capsys.readouterr().err
        assert "Wadden Sea" in capsys.readouterr().out
        process.communicate(b"")
