"""`palaver` where the world is unkind: full disks, closed pipes, poor encodings, stores that may only be read."""

import codecs
import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest

from palaver.cli.main import main
from palaver.config.writer import replace_file
from palaver.store.backup.backups import Backups
from palaver.store.encryption.vault import new_key
from tests.cli.processes import run_on_full_disk
from tests.forkserver import start_module
from tests.needs import NOBODY, without_rights
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
ARCHIVE = ROOT / "docs/examples/sessions.jsonl"
COMMANDS = ["sessions export --all", "--help"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.setenv("PALAVER_HOME", str(tmp_path))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    assert main(["sessions", "import", str(ARCHIVE)]) == 0
    capsys.readouterr()
    return tmp_path


def palaver(command: str, shell: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    """The command in a new interpreter, with what the shell puts behind it."""
    return subprocess.run(
        ["/bin/bash", "-o", "pipefail", "-c", f"{sys.executable} -m palaver {command} {shell}"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | environment,
    )


def complaint(
    command: str, stdout: int = subprocess.DEVNULL, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """How the command ends that writes there, and what it complains about."""
    process = start_module(
        "palaver", *command.split(), stdout=stdout, stderr=subprocess.PIPE, env={**os.environ, **(environment or {})}
    )
    complaints = process.communicate()[1]
    return process.returncode, complaints


@pytest.mark.usefixtures("home")
@pytest.mark.linux
@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_one_sentence(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        told = "palaver: No space left on device: standard output. Make room there, and try again.\n"
        assert complaint(command, full.fileno()) == (1, told)


@pytest.mark.linux
@pytest.mark.parametrize(("command", "code"), [("trace", 2), ("sessions show x", 1), ("up", 0)])
def test_a_standard_error_without_room_leaves_the_exit_code(home: Path, command: str, code: int) -> None:
    variables = {**os.environ, "PALAVER_HOME": str(home), "PALAVER_WEB__PORT": str(free_port()), "PYTHONUNBUFFERED": ""}
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(
            [sys.executable, "-m", "palaver", *command.split()],
            stdout=subprocess.PIPE,
            stderr=full,
            env=variables,
            text=True,
        )
        if command == "up":
            assert process.stdout
            assert "http://127.0.0.1" in process.stdout.readline()
            process.terminate()
        process.communicate()
    assert process.returncode == code


def test_a_file_for_which_the_disk_has_no_room_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(home / "x.tar"))

    monkeypatch.setattr(Backups, "make_single", fail)
    assert main(["backup", "-o", str(home / "x.tar")]) == 1
    assert f"No space left on device: {home}/x.tar. Make room there" in capsys.readouterr().err


@pytest.mark.usefixtures("home")
def test_a_bundle_for_which_the_disk_has_no_room_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    assert main(["doctor", "--no-test", "--bundle", str(tmp_path / "x.zip")]) == 1
    assert f"No space left on device: {tmp_path}/x.zip. Make room there" in capsys.readouterr().err


def test_what_makes_a_file_does_not_write_to_one_called_minus(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home)
    for command in ("backup -o -", "doctor --bundle -", "people forget telegram:7 --yes --receipt -"):
        assert main(command.split()) == 2
        assert "This cannot go to 'standard output'. Use" in capsys.readouterr().err
    assert not (home / "-").exists()
    for command in ("backup -o", "doctor --no-test --bundle"):  # of the whole path nobody means standard output
        main([*command.split(), str(home / "-")])
        assert (home / "-").is_file()
        (home / "-").unlink()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_client_that_stops_reading_gets_nothing(command: str) -> None:
    unread, written = os.pipe()
    os.close(unread)
    assert complaint(command, written) == (1, "")
    os.close(written)


@pytest.mark.usefixtures("home")
def test_what_has_nowhere_to_go_is_no_success() -> None:
    for command in COMMANDS:
        done = palaver(command, ">&-")
        assert (done.returncode, done.stderr) == (1, "palaver: Standard output is closed.\n")
    assert palaver(COMMANDS[0], ">&- 2>&- <&-").returncode == 1
    assert palaver(COMMANDS[0], "2>&- <&-").returncode == 0


@pytest.mark.usefixtures("home")
def test_what_the_encoding_does_not_have_is_written_as_numbers() -> None:
    done = palaver("sessions list", PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert r"R\xfcgen it is" in done.stdout
    found = json.loads(palaver("sessions list --json", PYTHONIOENCODING="ascii").stdout)
    assert found["sessions"][0]["last_said"] == "Rügen it is. Which train?"
    assert r"'\xfc'" in palaver("explain target ü", PYTHONIOENCODING="ascii").stderr


@pytest.mark.usefixtures("home")
def test_lines_have_no_spaces_at_their_end(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("sessions list", "sessions stats", "sessions show Holiday"):
        assert main(command.split()) == 0
        printed = capsys.readouterr().out
        assert printed
        assert not [line for line in printed.splitlines() if line != line.rstrip()]


@contextmanager
def nobody() -> Generator[None]:
    """As somebody who may write only what is open to everybody: the permissions of root would be no test."""
    codecs.lookup("utf-16-le")  # is imported late, from where perhaps only root may look
    for name in ("chat", "doctor", "gateway_client", "up"):  # likewise
        import_module(f"palaver.cli.{name}")
    with without_rights():
        yield


@pytest.mark.needs("root")
def test_what_root_makes_belongs_to_the_user_of_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service could not open what `sudo palaver backup` left in its data directory."""
    place, key, config = tmp_path / "service", tmp_path / "palaver.key", tmp_path / "palaver.yaml"
    place.mkdir()
    key.write_text(new_key())
    config.write_text(f"encryption: {{key_file: {key}}}")
    for each in (place, key, config):
        os.chown(each, NOBODY, NOBODY)
    monkeypatch.setenv("PALAVER_CONFIG", str(config))
    monkeypatch.setenv("PALAVER_HOME", str(place))
    monkeypatch.delenv("PALAVER_STORE", raising=False)
    for command in (
        f"sessions import {ARCHIVE}",
        "backup",
        "doctor",
        "encryption rotate",
        "encryption renew",
        "sessions search shelf",
    ):
        assert main(command.split()) == 0, command
    replace_file(config, config.read_text())
    made = [key, config, *place.rglob("*")]
    assert {"palaver.keys", "palaver.db.search", "backups"} <= {each.name for each in made}
    assert [each for each in made if each.stat().st_uid != NOBODY] == []


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
def test_a_store_that_can_only_be_read_can_be_looked_at(
    frozen: Path, mode: int, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen.chmod(mode)
    with nobody():
        for command in ("list", "show Holiday --all", "search train", "stats", "export --all"):
            assert main(["sessions", *command.split()]) == 0, capsys.readouterr().err
            printed = capsys.readouterr()
            assert printed.err == ""
            assert "train" in printed.out or command == "stats"
        assert main(["doctor"]) == 1
        assert "is read-only" in capsys.readouterr().out
        assert main(["sessions", "rename", "Holiday", "x"]) == 1
    assert "readonly database. Make its file and its folder writable" in capsys.readouterr().err
    assert {path.name for path in frozen.iterdir()} <= {"palaver.db", "palaver.db.search"}


def test_doctor_says_that_a_file_system_is_read_only(
    frozen: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody can change owners there, so that is not the advice."""
    real = os.statvfs

    def read_only(path: Path) -> os.statvfs_result:
        found = real(path)
        return os.statvfs_result((*found[:8], found.f_flag | os.ST_RDONLY, found.f_namemax))

    monkeypatch.setattr(os, "statvfs", read_only)
    with nobody():
        assert main(["doctor", "--no-test"]) == 1
    printed = capsys.readouterr().out
    assert (
        f"error data directory: {frozen} is on a read-only file system\n      mount it for writing, or set" in printed
    )
    assert "chown" not in printed


def test_where_nothing_can_be_written_no_gateway_is_started(tmp_path: Path) -> None:
    """Neither by `chat` nor by `up`, in the same words, and with the exit code that no restart will help."""
    config = tmp_path / "config.yaml"
    config.touch()
    place = {"PALAVER_HOME": str(config / "home"), "PALAVER_CONFIG": str(config)}
    (code, said), again = (complaint(command, environment=place) for command in ("chat -m hi", "up"))
    assert (code, said) == again
    assert (code, len(said.splitlines())) == (2, 1)


def test_a_database_with_two_names_is_written_under_neither(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each name would have a lock and a log of its own."""
    other = home / "other"
    other.mkdir()
    (other / "palaver.db").hardlink_to(home / "palaver.db")
    config = home / "config.yaml"
    config.touch()
    monkeypatch.setenv("PALAVER_CONFIG", str(config))
    before = (home / "palaver.db").read_bytes()
    for place in (home, other):
        monkeypatch.setenv("PALAVER_HOME", str(place))
        for command in ("chat -m hi", "up", "sessions rename Holiday x", "grants add telegram:7"):
            assert main(command.split()) == (2 if command in {"chat -m hi", "up"} else 1)
            (problem,) = capsys.readouterr().err.splitlines()
            assert f"the database {place / 'palaver.db'} has 2 names (hard links)" in problem
    assert (home / "palaver.db").read_bytes() == before
    (other / "palaver.db").unlink()
    monkeypatch.setenv("PALAVER_HOME", str(home))
    assert main(["sessions", "rename", "Holiday", "x"]) == 0


def test_a_copy_that_can_only_be_read_is_looked_at_under_any_name(
    frozen: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen.chmod(0o755)
    (frozen / "again.db").hardlink_to(frozen / "palaver.db")
    frozen.chmod(0o555)
    with nobody():
        assert main(["sessions", "list"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("closed", [".", "palaver.db", "palaver.db-wal"])
def test_a_gateway_that_can_only_read_its_store_is_not_started(
    frozen: Path, closed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen.chmod(0o777)
    config = frozen / "config.yaml"
    config.write_text("web: {enabled: false}")
    monkeypatch.setenv("PALAVER_CONFIG", str(config))
    (frozen / "palaver.db").chmod(0o666)
    assert main(["chat", "-m", "hi"]) == 0
    capsys.readouterr()
    (frozen / "palaver.db-wal").touch()
    for each in frozen.iterdir():
        each.chmod(0o666)
    (frozen / closed).chmod(0o555)
    with nobody():
        assert [main(command.split()) for command in ("chat -m hi", "up")] == [2, 2]
    said, again = capsys.readouterr().err.splitlines()
    assert said == again
    assert f"{frozen / closed} is read-only" in said


def test_a_lock_that_can_only_be_read_is_named(
    frozen: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frozen.chmod(0o777)
    (frozen / "palaver.db").chmod(0o666)
    config = frozen / "config.yaml"
    config.touch()
    monkeypatch.setenv("PALAVER_CONFIG", str(config))
    lock = frozen / "palaver.db.lock"
    lock.touch(mode=0o444)
    with nobody():
        assert main(["chat", "-m", "hi"]) == 2
    assert f"cannot write the file {lock} (Permission denied)" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["chat -m hi", "up", "grants add telegram:7", f"sessions import {ARCHIVE}"])
def test_a_store_that_cannot_be_written_now_is_the_same_failure_for_every_command(tmp_path: Path, command: str) -> None:
    config = tmp_path / "config.yaml"
    config.touch()
    place = {"PALAVER_HOME": str(tmp_path / "home"), "PALAVER_CONFIG": str(config)}
    done = run_on_full_disk(8, *command.split(), environment=os.environ | place)
    assert done.returncode == 75
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("home")
def test_a_store_that_cannot_be_opened_is_something_to_fix() -> None:
    done = run_on_full_disk(8, "doctor", environment=os.environ)
    assert (done.returncode, done.stderr) == (1, "")
    assert [line[:20] for line in done.stdout.splitlines() if line.startswith("error")] == ["error database: the "]


@pytest.mark.usefixtures("home")
def test_a_full_disk_is_reported_first(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def full(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=0)

    monkeypatch.setattr(shutil, "disk_usage", full)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.startswith("error disk: 0 MB free")


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


def test_the_shell_completes_commands_once_completion_is_installed(tmp_path: Path) -> None:
    """As bash does it: the function that .bashrc brings fills COMPREPLY."""

    def bash(script: str) -> str:
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
        environment = {"HOME": str(tmp_path), "PATH": path}
        done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
        return done.stdout

    def completed(*words: str) -> list[str]:
        line = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}"
        return bash(f'source ~/.bashrc; {line}; _palaver_completion palaver; echo "${{COMPREPLY[*]}}"').split()

    assert "bash completion installed" in bash("palaver --install-completion && true")
    assert completed("palaver", "ses") == ["sessions"]
    assert completed("palaver", "sessions", "li") == ["list"]
    assert completed("palaver", "sessions", "list", "--pl") == ["--platform"]
