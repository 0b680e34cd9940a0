"""`pytest -n 4`: collect once, then run the tests in four forks of this process.

To import and collect everything takes up to 25 s of the processor. Forks share that, where each interpreter that
`pytest-xdist` starts does it again.
"""

import gc
import os
import signal
import traceback
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from multiprocessing.connection import Pipe, wait
from typing import Any

import pytest

__all__ = ["pytest_addoption", "pytest_collection", "pytest_runtestloop"]

PART = 8
"""A worker gets at most so many tests at once, unless they share what a fixture has made."""
SILENT_SECONDS = float(os.environ.get("PALAVER_SILENT_SECONDS", "420"))
"""Kill the workers if none of them has ended a test for so long."""
GC_THRESHOLD = 50_000
"""As a gateway sets it. By default Python looks for rings of objects after 700, which takes 3 % of the tests."""
Jobs = Any
"""A `multiprocessing` connection, whose types depend on the system."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group: Any = parser.getgroup("workers")
    group._addoption("-n", dest="workers", type=int, default=0, metavar="N", help="run the tests in N processes")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage: what is imported and collected stays. Then look for it as often as a gateway does."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GC_THRESHOLD)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.workers or options.collectonly or session.testsfailed:
        return None
    _Workers(session).run(options.workers)
    return True


def _parts(items: Sequence[pytest.Item]) -> list[range]:
    """Divide the tests of each module. First come those that stay together, because they take longest."""
    together: list[range] = []
    apart: list[range] = []
    for _, group in groupby(range(len(items)), lambda number: items[number].path):
        numbers = list(group)
        module = range(numbers[0], numbers[-1] + 1)
        if any(_shares(items[number]) for number in module):
            together.append(module)
        else:
            apart += [module[first : first + PART] for first in range(0, len(module), PART)]
    return together + apart


def _shares(item: pytest.Item) -> bool:
    info: Any = getattr(item, "_fixtureinfo", None)
    fixtures = info.name2fixturedefs.values() if info else ()
    return any(each[-1].scope in {"class", "module", "package"} for each in fixtures)


# The process that gives out tests


@dataclass(kw_only=True)
class _Worker:
    pid: int
    part: deque[int] = field(default_factory=deque[int])
    """What it has yet to finish. It is at the first of them."""
    last: int = 0
    """What it has finished last."""


class _Workers:
    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook: Any = session.config.hook
        self._parts: deque[Sequence[int]] = deque(_parts(session.items))
        self._workers: dict[Jobs, _Worker] = {}

    def run(self, count: int) -> None:
        session: Any = self._session
        session.config._tmp_path_factory.getbasetemp()  # one for all
        try:
            for _ in range(min(count, len(self._parts))):
                self._fork()
            while self._workers:
                heard = wait(list(self._workers), timeout=SILENT_SECONDS)
                if not heard:  # A test fails after 300 s, but what comes before and after it has no limit.
                    self._kill_all()
                for jobs in heard:
                    self._hear(jobs)
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            for jobs, worker in self._workers.items():
                os.kill(worker.pid, signal.SIGINT)
                jobs.close()
                os.waitpid(worker.pid, 0)

    def _kill_all(self) -> None:
        for worker in self._workers.values():
            os.kill(worker.pid, signal.SIGKILL)

    def _fork(self) -> None:
        ours, theirs = Pipe()
        pid = os.fork()
        if pid == 0:
            for jobs in (ours, *self._workers):
                jobs.close()
            _be_worker(self._session, theirs)
        theirs.close()
        self._workers[ours] = _Worker(pid=pid)

    def _hear(self, jobs: Jobs) -> None:
        worker = self._workers[jobs]
        try:
            reports = jobs.recv()
        except EOFError:
            self._end(jobs)
            return
        if reports is None:
            worker.part = deque(self._parts.popleft() if self._parts else ())
            jobs.send(list(worker.part))
            return
        if not worker.part:  # what came after the last test
            self._show(reports)
            return
        worker.last = worker.part.popleft()
        item = self._session.items[worker.last]
        self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self._show(reports)
        self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _show(self, reports: Sequence[Any]) -> None:
        for data in reports:
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=data)
            self._hook.pytest_runtest_logreport(report=report)

    def _end(self, jobs: Jobs) -> None:
        """A worker that was killed fails the test that it ran; another one goes on with the rest."""
        jobs.close()
        worker = self._workers.pop(jobs)
        _, status = os.waitpid(worker.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        if not code:
            return
        at = self._session.items[worker.part.popleft() if worker.part else worker.last]
        problem = f"the process that ran it ended with {code}"
        report = pytest.TestReport(at.nodeid, at.location, {}, "failed", problem, "call")
        self._hook.pytest_runtest_logreport(report=report)
        if worker.part:
            self._parts.appendleft(worker.part)
        if self._parts:
            self._fork()


# A worker


class _Reporter:
    """Tell the other process what it shows of a test: all at once, each message takes 0.2 ms of the processor."""

    def __init__(self, config: pytest.Config, jobs: Jobs) -> None:
        self._config = config
        self._jobs = jobs
        self._reports: list[object] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._reports.append(data)

    def pytest_runtest_logfinish(self) -> None:
        self._jobs.send(self._reports)
        self._reports = []


_left_open: list[object] = []


def _be_worker(session: pytest.Session, jobs: Jobs) -> None:
    plugins = session.config.pluginmanager
    capture: Any = plugins.getplugin("capturemanager")
    capture.suspend_global_capture(in_=True)
    _left_open.append(capture._global_capturing)  # a module may have kept `sys.stderr`
    capture._global_capturing = None
    capture.start_global_capturing()
    reporter: Any = plugins.unregister(plugins.getplugin("terminalreporter"))
    session.config.get_terminal_writer = lambda: reporter._tw  # for what a test that takes too long was doing
    plugins.register(_Reporter(session.config, jobs))
    code = 1
    try:
        _run_parts(session, jobs)
        code = 0
    except (BrokenPipeError, EOFError, KeyboardInterrupt):
        pass  # the other process has ended, or wants us to
    except BaseException:  # noqa: BLE001 - nobody else sees it
        capture.stop_global_capturing()
        traceback.print_exc()
    finally:
        os._exit(code)


def _run_parts(session: pytest.Session, jobs: Jobs) -> None:
    items: list[Any] = session.items
    last = items[0]
    try:
        while part := _ask(jobs):
            # As if the session came next, pytest keeps at the end of a part what is made for all of the session.
            for last, following in pairwise((*(items[number] for number in part), session)):
                session.config.hook.pytest_runtest_protocol(item=last, nextitem=following)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        _tear_down(session, last)


def _ask(jobs: Jobs) -> list[int]:
    jobs.send(None)
    return jobs.recv()


def _tear_down(session: pytest.Session, last: Any) -> None:
    state: Any = session
    call = pytest.CallInfo[None].from_call(lambda: state._setupstate.teardown_exact(None), "teardown")
    if call.excinfo:
        hook = session.config.hook
        hook.pytest_runtest_logreport(report=hook.pytest_runtest_makereport(item=last, call=call))
        hook.pytest_runtest_logfinish(nodeid=last.nodeid, location=last.location)
