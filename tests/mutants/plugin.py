"""In pytest: note which tests come to which points, or run the tests of each point without it, each time in a fork."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import palaver
from tests.mutants.points import ACTIVE, hit
from tests.store.empty import empty_store

PLAN = "PALAVER_MUTANTS"
"""The environment variable that names the file with what to do."""
_TIMES_LONGER, _START_SECONDS = 10, 30
"""A run that takes ten times as long as usual hangs; on a busy machine a fork starts slowly."""
_failed: set[str] = set()
_report: list[Path] = []
"""In a fork: where it writes which test failed."""


def _plan() -> dict[str, Any]:
    plan = json.loads(Path(os.environ[PLAN]).read_text())
    assert Path(palaver.__file__).is_relative_to(plan["copy"]), "the tests would run on the work tree"
    return plan


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what needs programs, such as a browser: it is slow, and about other things."""
    items[:] = [item for item in items if not item.get_closest_marker("needs")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    hit.clear()
    _failed.clear()
    start = time.monotonic()
    result = yield
    if not _failed and not _report:
        line = json.dumps([item.nodeid, round(time.monotonic() - start, 3), sorted(hit.copy())])
        with Path(_plan()["copy"], f"hits-{os.getpid()}").open("a") as file:
            file.write(line + "\n")
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.add(report.nodeid)
        if _report:
            _report[0].write_text(report.nodeid)
            os._exit(1)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    plan = _plan()
    if "work" not in plan:
        return None
    empty_store()  # once for all
    runs = _Runs(session, plan)
    for number, name, tests in plan["work"]:
        if time.time() > plan["until"]:
            break
        start = time.monotonic()
        by = runs.find_killer(number, tests)
        verdict = "unreached" if not tests else "killed" if by else "survived"
        with Path(plan["results"]).open("a") as file:
            line = [name, verdict, by, len(tests), round(time.monotonic() - start, 1)]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
    return True


class _Runs:
    def __init__(self, session: Any, plan: dict[str, Any]) -> None:
        self._session = session
        self._copy = Path(plan["copy"])
        self._seconds: dict[str, float] = plan["seconds"]
        self._items: dict[str, pytest.Item] = {item.nodeid: item for item in session.items}
        self._reliable: set[str] = set()
        """Tests that passed here with nothing taken away. The others are not used."""

    def find_killer(self, number: int, tests: Sequence[str]) -> str:
        """Return the test that fails without a point; nothing if none does."""
        tests = [test for test in tests if test in self._items]
        while by := self._fork(number, tests):
            if by not in self._items or by in self._reliable:
                return by
            if not self._fork(0, [by]):
                self._reliable.add(by)
                return by
            sys.stderr.write(f"{by} fails with nothing taken away\n")
            del self._items[by]
            tests = tests[tests.index(by) + 1 :]
        return ""

    def _fork(self, number: int, tests: Sequence[str]) -> str:
        folder = self._copy / "fork"
        folder.mkdir()
        usual = sum(self._seconds.get(test, 1) for test in tests)
        deadline = time.monotonic() + _START_SECONDS + _TIMES_LONGER * usual
        pid = os.fork()
        if pid == 0:
            self._run(number, tests, folder)
        ended, status = 0, 0
        while not ended and time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            time.sleep(0 if ended else 0.02)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)  # what its tests left behind, too
        if not ended:
            os.waitpid(pid, 0)
        report = folder / "failed"
        by = report.read_text() if report.exists() else "a hang" if not ended else "a crash" if status else ""
        shutil.rmtree(folder, ignore_errors=True)
        return by

    def _run(self, number: int, tests: Sequence[str], folder: Path) -> None:
        os.setsid()
        silent = os.open(os.devnull, os.O_RDWR)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        code = 2
        try:
            _report.append(folder / "failed")
            ACTIVE[0] = number
            self._session.config._tmp_path_factory._basetemp = folder
            items: list[Any] = [*(self._items[test] for test in tests), self._session]
            for item, following in pairwise(items):
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            code = 0
        finally:
            os._exit(code)
