"""Tests say which programs and rights they need. What this machine lacks leaves them out, and is named at the end.

    pytestmark = pytest.mark.needs("ngircd")  # for a module; tests and parameters take the mark, too

    @pytest.fixture
    @needing("ngircd")  # for every test with this fixture
    def irc_port(): ...

`program("ngircd")` is the path; a test that has not declared the program fails on every machine. With CI=true, what is
missing ends the run. `pytest.mark.linux` is for what only Linux can have: elsewhere there is no such test.
"""

import os
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from palaver.testkit import conformance
from tests.programs import NEEDS, find, is_ci

__all__ = [
    "NOBODY",
    "needing",
    "program",
    "pytest_collection_modifyitems",
    "pytest_report_teststatus",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
    "without_rights",
]

T = TypeVar("T")
NOBODY = 65534
_ATTRIBUTE = "palaver_needs"
_TESTKIT = Path(conformance.__file__).parent
_declared = frozenset(NEEDS)
"""What the test that runs has declared; outside of tests, everything."""
_left_out: Counter[str] = Counter()
"""Tests for each need that is not there."""


def needing(*names: str) -> Callable[[T], T]:
    def declare(function: T) -> T:
        setattr(function, _ATTRIBUTE, names)
        return function

    return declare


@contextmanager
def without_rights() -> Generator[None]:
    """As somebody who can write only what is open to everybody: the permissions of root would be no test."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


def program(name: str) -> str:
    assert name in _declared, f"say that this test needs it: pytest.mark.needs({name!r})"
    path = find(name)
    assert path, f"{name} is missing: {NEEDS[name].remedy}"
    return path


def _needs(item: Any) -> frozenset[str]:
    marked = {name for mark in item.iter_markers("needs") for name in mark.args}
    info = getattr(item, "_fixtureinfo", None)
    for fixtures in info.name2fixturedefs.values() if info else ():
        marked.update(getattr(fixtures[-1].func, _ATTRIBUTE, ()))
    return frozenset(marked)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    missing = {name for name, need in NEEDS.items() if not need.is_there}
    left_out: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        if sys.platform != "linux" and item.get_closest_marker("linux"):
            continue
        lacks = _needs(item) & missing
        _left_out.update(lacks)
        (left_out if lacks else kept).append(item)
    if left_out and is_ci():
        raise pytest.UsageError("\n".join(["this system lacks what tests need", *_list_left_out()]))
    items[:] = kept
    if left_out:
        config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Nothing is skipped but by the suite for adapters, where a platform has no such thing: no test then."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        if Path(path).parent != _TESTKIT:
            report.outcome = "failed"
            report.longrepr = f"{path}:{line}: {reason}. Declare what the test needs (tests/needs.py)."
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    return ("", "", "") if report.skipped and not hasattr(report, "wasxfail") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    global _declared  # noqa: PLW0603 - one test runs at a time
    _declared = _needs(item)
    return (yield)


def _list_left_out() -> list[str]:
    return [
        f"{name}, for {NEEDS[name].purpose}: {count} test{'s' * (count > 1)}. To run them: {NEEDS[name].remedy}"
        for name, count in sorted(_left_out.items())
    ]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _left_out:
        terminalreporter.section("left out, because it is missing here")
        for line in _list_left_out():
            terminalreporter.write_line(line)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _left_out and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
