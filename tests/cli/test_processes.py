"""`palaver processes`: what it lists, prints and kills, with and without a gateway."""

import base64
import json
import os
import signal
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from palaver.processes.directory import ProcessDirectory, is_running
from palaver.processes.supervisor.process_table import stat_fields
from tests.cli.processes import Place, until


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.configure("tools: {terminal: {backend: local}}\nweb: {enabled: false}")
    yield place
    place.run("processes", "kill", "--all")
    place.close()


def directories(place: Place) -> list[ProcessDirectory]:
    return [ProcessDirectory(file.parent) for file in sorted(place.home.glob("processes/*/*/lock"))]


def start(place: Place, command: str) -> None:
    call = json.dumps({"command": command, "background": True, "notify": False})
    assert "Started p" in place.run("chat", says=f"!use terminal {call}\n").stdout


def test_processes_are_listed_read_and_killed_without_a_gateway(place: Place) -> None:
    assert "There are no processes." in place.run("processes", "list").stderr
    start(place, "echo one; printf '\\033[31mtwo\\033[0m\\n'; cat")
    start(place, "echo AKIA2E0A8F3B244C9986; exit 3")
    (_, second) = directories(place)
    until(lambda: not second.is_supervised())
    listed = place.run("processes", "list").stdout
    assert "p1" in listed
    assert "running" in listed
    assert "exit code 3" in listed
    (live,) = json.loads(place.run("processes", "list", "--live", "--json").stdout)["processes"]
    assert (live["name"], live["state"], live["command"][:8]) == ("p1", "running", "echo one")
    session = json.loads(place.run("processes", "list", "--session", live["session"], "--json").stdout)
    assert len(session["processes"]) == 2

    assert place.run("processes", "log", "p1").stdout == "one\ntwo\n"
    assert place.run("processes", "log", "p1", "--raw").stdout == "one\n\x1b[31mtwo\x1b[0m\n"
    assert "AKIA2E0A8F3B244C9986" not in place.run("processes", "log", "p2").stdout
    printed = json.loads(place.run("processes", "log", "p2", "--json").stdout)
    assert (printed["exit_code"], printed["offset"]) == (3, 0)

    following = place.start("processes", "log", "p1", "--follow")
    assert place.run("processes", "kill", "p1", "p2").stdout == "Killed p1.\n"
    assert following.communicate(timeout=60)[0] == "one\ntwo\n"
    # No gateway has seen that, and yet it is known.
    assert json.loads(place.run("processes", "list", "--live", "--json").stdout)["processes"] == []
    assert place.run("processes", "kill", "--all").stdout == "No process was running here.\n"
    assert json.loads(place.run("processes", "kill", "--all", "--json").stdout) == {"killed": [], "asked": []}

    start(place, "cat")
    (running,) = [each for each in directories(place) if each.is_supervised()]
    (traced,) = json.loads(place.run("trace", "p3", "--json").stdout)["traces"]
    assert [each["name"] for each in traced["turn"]["processes"]] == ["p3"]
    exported = place.run("people", "export", "terminal:owner").stdout.splitlines()
    ran = [json.loads(line)["process"] for line in exported if line.startswith('{"process"')]
    assert [(each["name"], each.get("exit_code")) for each in ran] == [("p1", -15), ("p2", 3), ("p3", None)]
    assert base64.b64decode(ran[0]["output"][0]["content"]) == b"one\n\x1b[31mtwo\x1b[0m\n"
    forgotten = place.run("people", "forget", "terminal:owner", "--yes")
    assert forgotten.returncode == 0, forgotten.stderr
    assert not running.is_supervised()
    assert directories(place) == []


def test_doctor_compares_rows_directories_and_supervisors(place: Place) -> None:
    start(place, "echo one")
    start(place, "exec sleep 600")
    first, second = directories(place)
    until(lambda: not first.is_supervised())
    assert doctor(place)["ok"] is True
    place.run("processes", "kill", "p1")
    with closing(sqlite3.connect(place.home / "palaver.db")) as db, db:
        db.execute("UPDATE processes SET started = started - 120000000")
    first.remove()
    pid = second.status().pid
    assert pid
    os.kill(int(stat_fields(pid)[1]), signal.SIGKILL)
    until(lambda: not second.is_supervised())
    stray = second.path.with_name("01stray")
    stray.mkdir()
    found = doctor(place)
    assert found["ok"] is False
    assert found["found"] == (
        f"{stray} belongs to no process; p1 has lost its output: its directory is gone;"
        " p2 counts as running, but its supervisor is dead"
    )
    # Its command outlived it, until somebody ends it.
    born = second.status().pid_started or ""
    assert is_running(pid, born)
    assert place.run("processes", "kill", "p2").stdout == "Killed p2.\n"
    until(lambda: not is_running(pid, born))


def doctor(place: Place) -> dict[str, object]:
    checks = json.loads(place.run("doctor", "--json", "--no-test").stdout)["checks"]
    (found,) = [each for each in checks if each["name"] == "background processes"]
    return {name: found[name] for name in ("ok", "found")}


def test_mistakes_are_reported(place: Place) -> None:
    place.run("chat", says="hello\n")
    for args, told in {
        ("kill",): "Say which processes to kill.",
        ("kill", "p1", "--all"): "Choose processes in one way only.",
        ("kill", "p1", "--session", "x"): "Choose processes in one way only.",
        ("kill", "--all", "--session", "x"): "Choose processes in one way only.",
        ("kill", "--session", ""): "--session cannot be ''",
        ("kill", "p9"): "There is no process 'p9'",
        ("log", "rm -rf"): "There is no process 'rm -rf'",
        ("log", "p1", "--follow", "--json"): "--follow cannot be used with --json.",
        ("list", "--session", "nowhere"): "There is no session 'nowhere'",
    }.items():
        run = place.run("processes", *args)
        assert run.returncode
        assert told in run.stderr
