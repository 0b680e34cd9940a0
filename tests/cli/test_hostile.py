"""`palaver` at the hands of somebody who means no good: odd homes, endless lines, signals at the wrong moment."""

import getpass
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from palaver.cli import gateway_client
from palaver.cli.main import main
from palaver.platforms.terminal.socket import socket_path
from tests.cli.processes import PATIENCE, Place, ended, read_until, until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


@pytest.fixture
def here(place: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The place as that of this process."""
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    return place


# Who and where


@pytest.mark.usefixtures("here")
def test_somebody_without_a_name_can_talk(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(getpass, "getuser", nameless)
    assert main(["chat", "-m", "hello"]) == 0
    assert capsys.readouterr().out == "You said: hello\n"


@pytest.mark.parametrize("args", [["sessions", "list"], ["sessions", "list", "--store", "~nobody-of-that-name/x.db"]])
@pytest.mark.usefixtures("here")
def test_a_home_that_nobody_knows_is_named(
    args: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PALAVER_HOME", "~nobody-of-that-name")
    assert main(args) == 2
    assert "'~nobody-of-that-name" in capsys.readouterr().err


def test_a_socket_that_cannot_be_made_is_said(
    here: Place, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gateway_client, "_ANSWER_TIMEOUT_S", 2.1)
    path = socket_path(here.home, str(here.home / "palaver.db"))
    (path / "in the way").mkdir(parents=True)
    assert main(["chat", "-m", "hello"]) == 75
    assert "Cannot listen on" in capsys.readouterr().err
    assert [each.name for each in here.home.glob("*.sock*")] == [path.name]


# What comes in


def test_a_line_that_never_ends_is_refused_all_the_same(place: Place) -> None:
    talk = place.start("chat")
    assert talk.stdin
    talk.stdin.write("x" * 300_000)
    talk.stdin.flush()
    read_until(talk, "line 1: The message has more than 200000 characters")
    out, _ = talk.communicate("\nhello\n", timeout=PATIENCE)
    assert (talk.returncode, out) == (2, "You said: hello\n")


def test_input_that_cannot_be_read_is_said(place: Place, tmp_path: Path) -> None:
    with (tmp_path / "written").open("w") as written:
        talk = place.start("chat", stdin=written.fileno())
    _, complaint = talk.communicate(timeout=PATIENCE)
    assert (talk.returncode, complaint) == (1, "palaver: Bad file descriptor\n")


# Signals, and nobody there


def test_who_leaves_before_it_has_begun_is_shown_no_trace(place: Place, tmp_path: Path) -> None:
    """The first module that takes long to import is interrupted."""
    (tmp_path / "typer.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    environment = place.environment | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    done = subprocess.run(
        [sys.executable, "-m", "palaver"], env=environment, capture_output=True, check=False, timeout=PATIENCE
    )
    assert (done.returncode, done.stderr) == (-signal.SIGINT, b"")


def test_a_hangup_to_be_ignored_is_ignored(place: Place) -> None:
    ignoring = f"trap '' HUP; exec {sys.executable} -m palaver chat --agent echo -m '!slow 1 hello'"
    with subprocess.Popen(["/bin/sh", "-c", ignoring], env=place.environment, stdout=subprocess.PIPE) as talk:
        log = place.home / "gateway.log"
        until(lambda: log.exists() and "turn began" in log.read_text())
        talk.send_signal(signal.SIGHUP)
        assert talk.communicate(timeout=PATIENCE)[0] == b"You said: hello\n"


def test_a_gateway_whose_output_nobody_reads_goes_on(place: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        place.configure(f"web: {{port: {listener.getsockname()[1]}}}")
    unread, written = os.pipe()
    os.close(unread)
    command = [sys.executable, "-m", "palaver", "up"]
    with subprocess.Popen(command, env=place.environment, stdout=written, stderr=subprocess.PIPE, text=True) as gateway:
        os.close(written)
        try:
            read_until(gateway, "web.link_not_shown")
            assert ended(gateway, signal.SIGTERM) == 0
        finally:
            gateway.kill()
