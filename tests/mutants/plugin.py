"""In pytest: note which tests reach which points, or run the tests of each point without it, each in a fork."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import palaver
import pytest

from tests.mutants.points import ACTIVE, hit
from tests.store.empty import empty_store

PLAN = "PALAVER_MUTANTS"
"""The environment variable that names the file with what to do."""
_FORBEARANCE, _START_SECONDS = 10, 30
"""A run that takes ten times as long as usual hangs; a fork under load starts slowly."""


def _plan() -> dict[str, Any]:
    plan = json.loads(Path(os.environ[PLAN]).read_text())
    assert Path(palaver.__file__).is_relative_to(plan["copy"]), "the tests would run on the work tree"
    return plan


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs programs, such as a browser: it is slow, and about other things."""
    items[:] = [item for item in items if not item.get_closest_marker("needs")]


# Which tests reach which points


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if _child is not None:
        return (yield)
    hit.clear()
    _failed.clear()
    start = time.monotonic()
    result = yield
    if not _failed:
        line = json.dumps([item.nodeid, round(time.monotonic() - start, 3), sorted(hit.copy())])
        with Path(_plan()["copy"], f"hits-{os.getpid()}").open("a") as file:
            file.write(line + "\n")
    return result


_failed: set[str] = set()
_child: Path | None = None
"""In a fork: where it writes the test that failed."""


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.failed:
        return
    _failed.add(report.nodeid)
    if _child is not None:
        _child.write_text(report.nodeid)
        os._exit(1)


# The tests of each point without it


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    plan = _plan()
    if "work" not in plan:
        return None
    empty_store()  # once for all
    Runs(session, plan).run()
    return True


@dataclass(kw_only=True)
class _Run:
    number: int
    """0 for one that takes nothing away, to see whether a test fails all the same."""
    tests: list[str]
    deadline: float
    folder: Path
    begun: float
    suspect: str = ""
    taken: int = 0


class Runs:
    def __init__(self, session: pytest.Session, plan: dict[str, Any]) -> None:
        self._session = session
        self._plan = plan
        self._items = {item.nodeid: item for item in session.items}
        self._seconds: dict[str, float] = plan["seconds"]
        self._trusted: set[str] = set()
        """Tests that passed here where nothing was taken away."""
        self._broken: set[str] = set()
        self._running: dict[int, _Run] = {}

    def run(self) -> None:
        work = list(reversed(self._plan["work"]))
        while work or self._running:
            while work and len(self._running) < self._plan["jobs"] and time.time() < self._plan["until"]:
                number, tests = work.pop()
                self._start(number, [test for test in tests if test in self._items])
            if not self._running:
                return
            for pid in list(self._running):
                self._look(pid)
            time.sleep(0.02)

    def _start(self, number: int, tests: list[str], *, suspect: str = "", taken: int = 0) -> None:
        tests = [test for test in tests if test not in self._broken]
        if not tests:
            self._write(number, "unreached", tests, 0)
            return
        folder = Path(self._plan["copy"], f"run-{number}-{time.monotonic_ns()}")
        folder.mkdir()
        usual = sum(self._seconds.get(test, 1) for test in tests)
        begun = time.monotonic()
        deadline = begun + _START_SECONDS + _FORBEARANCE * usual
        run = _Run(
            number=number, tests=tests, deadline=deadline, folder=folder, begun=begun, suspect=suspect, taken=taken
        )
        pid = os.fork()
        if pid == 0:
            self._be_child(run)
        self._running[pid] = run

    def _be_child(self, run: _Run) -> None:
        global _child  # noqa: PLW0603 - this process does nothing else
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (1, 2):
            os.dup2(silent, stream)
        code = 2
        try:
            _child, ACTIVE[0] = run.folder / "failed", run.number
            session: Any = self._session
            session.config._tmp_path_factory._basetemp = run.folder
            last = len(run.tests) - 1
            for at, test in enumerate(run.tests):
                following: Any = session if at == last else self._items[run.tests[at + 1]]
                session.config.hook.pytest_runtest_protocol(item=self._items[test], nextitem=following)
            code = 0
        finally:
            os._exit(code)

    def _look(self, pid: int) -> None:
        run = self._running[pid]
        ended, status = os.waitpid(pid, os.WNOHANG)
        hangs = not ended and time.monotonic() > run.deadline
        if not ended and not hangs:
            return
        try:
            os.killpg(pid, signal.SIGKILL)  # what its tests left behind, too
        except ProcessLookupError:
            pass
        if hangs:
            os.waitpid(pid, 0)
        del self._running[pid]
        failed = run.folder / "failed"
        by = failed.read_text() if failed.exists() else "a hang" if hangs else "a crash" if status else ""
        shutil.rmtree(run.folder, ignore_errors=True)
        self._judge(run, by)

    def _judge(self, run: _Run, by: str) -> None:
        if run.suspect:
            (self._broken if by else self._trusted).add(run.suspect)
            if by:
                sys.stderr.write(f"fails with nothing taken away: {run.suspect}\n")
                self._start(run.taken, run.tests[1:])
                return
            self._write(run.taken, "killed", run.tests, time.monotonic() - run.begun, run.suspect)
        elif by in self._items and by not in self._trusted:
            self._confirm(run, by)
        else:
            self._write(run.number, "killed" if by else "survived", run.tests, time.monotonic() - run.begun, by)

    def _confirm(self, run: _Run, by: str) -> None:
        """Run a test that failed once more, with nothing taken away. If it fails, go on with the others."""
        rest = [test for test in run.tests if test != by]
        self._start(0, [by], suspect=by, taken=run.number)
        for each in self._running.values():
            if each.suspect == by:
                each.tests = [by, *rest]

    def _write(self, number: int, verdict: str, tests: Iterable[str], seconds: float, by: str = "") -> None:
        found = [self._plan["names"][str(number)], verdict, by, len(list(tests)), round(seconds, 1)]
        with Path(self._plan["results"]).open("a") as file:
            file.write(json.dumps(found, ensure_ascii=False) + "\n")
