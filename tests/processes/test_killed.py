"""A real gateway is killed while a process runs: its output is whole, and its end is reported once."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from palaver.processes.directory import ProcessDirectory
from tests.cli.processes import Place, until

COMMAND = "for n in $(seq 1 30); do echo line $n; sleep 0.03; done; exit 7"
WHOLE = "".join(f"line {number}\n" for number in range(1, 31)).encode()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    place.configure("tools: {terminal: {backend: local}}\nweb: {enabled: false}\nlimits: {crash_limit: 100}")
    yield place
    place.run("processes", "kill", "--all")
    place.close()


def _directories(place: Place) -> set[ProcessDirectory]:
    return {ProcessDirectory(file.parent) for file in place.home.glob("processes/*/*/lock")}


def _output(directory: ProcessDirectory) -> bytes:
    return b"".join(data for _, data in directory.read(0, directory.size()))


def _notices(place: Place) -> int:
    with closing(sqlite3.connect(f"file:{place.home}/palaver.db?mode=ro", uri=True)) as store:
        rows = store.execute("SELECT count(*) FROM inbox WHERE message_id LIKE 'process%' AND state <> 'waiting'")
        return rows.fetchone()[0]


def test_nothing_is_lost_and_nothing_comes_twice(place: Place) -> None:
    moments: tuple[Callable[[ProcessDirectory], bool], ...] = (
        lambda _: True,
        lambda directory: b"line 15\n" in _output(directory),
        lambda directory: directory.status().exited is not None,
        lambda directory: not directory.is_supervised(),
    )
    gateway = place.up()
    for number, is_time in enumerate(moments, 1):
        known = _directories(place)
        call = json.dumps({"command": COMMAND, "background": True})
        assert "Started p" in place.run("chat", says=f"!use terminal {call}\n").stdout
        (directory,) = _directories(place) - known
        until(lambda directory=directory, is_time=is_time: is_time(directory))
        gateway.kill()
        gateway.wait()
        until(lambda directory=directory: not directory.is_supervised())
        assert _output(directory) == WHOLE
        assert directory.status().exit_code == 7
        # Without a gateway, the commands know it, too.
        (listed,) = json.loads(place.run("processes", "list", "--json", "--limit", "1").stdout)["processes"]
        assert (listed["exit_code"], listed["output_bytes"]) == (7, len(WHOLE))
        gateway = place.up()
        until(lambda number=number: _notices(place) == number)
    listed = json.loads(place.run("processes", "list", "--json").stdout)["processes"]
    assert [(each["state"], each["exit_code"]) for each in listed] == [("ended", 7)] * len(moments)
    assert _notices(place) == len(moments)
