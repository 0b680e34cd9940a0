"""Every test runs without the configuration of the person who runs it, and takes the time that it takes."""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, cast

import httpx
import httpx2
import pytest
import uvloop
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from palaver.cli import versions
from palaver.db.postgres import PostgresDatabase
from palaver.db.sqlite import SqliteDatabase
from palaver.db.transaction import Transaction
from palaver.settings.agents import EchoAgentConfig
from palaver.store.store import Store
from tests.echo import answer_with
from tests.needs import (
    pytest_collection_modifyitems,
    pytest_report_teststatus,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
    pytest_terminal_summary,
)
from tests.store.empty import copied_stores
from tests.store.server import postgres_server
from tests.workers import pytest_addoption, pytest_collection, pytest_runtestloop

__all__ = [
    "postgres_server",
    "pytest_addoption",
    "pytest_collection",
    "pytest_collection_modifyitems",
    "pytest_report_teststatus",
    "pytest_runtest_makereport",
    "pytest_runtest_protocol",
    "pytest_runtestloop",
    "pytest_sessionfinish",
    "pytest_terminal_summary",
]

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=20 * int(os.environ.get("PALAVER_EXAMPLES", "1")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
answer_with(EchoAgentConfig())
ON_UVLOOP = frozenset({"commands", "damage", "db", "dialogues", "engine", "gateway", "relay", "store"})
"""Elsewhere tests leave pipes to programs behind, of which uvloop warns."""
# A shell that starts tests in the background, or nohup, has them and every process that they start ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)


@pytest.fixture(autouse=True)
def _logs_as_before() -> Generator[None]:
    """A gateway that a test starts in its own process sets up the logs of that process."""
    loggers = [logging.getLogger(), logging.getLogger("palaver")]
    before = [(list(logger.handlers), logger.level) for logger in loggers]
    yield
    for logger, (handlers, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.setLevel(level)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "drops_transactions: the test replaces what runs transactions")
    config.addinivalue_line("markers", "needs(*names): programs and rights of tests/programs.py")
    config.addinivalue_line("markers", "linux: no other system can have it")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Make once what every worker would make for itself: they are forked next."""
    if not session.config.getoption("workers"):
        return
    if any(item.get_closest_marker("hypothesis") for item in session.items):
        generator: Any = providers
        generator._get_local_constants()  # reads all of our source: 4 s of the processor in a fresh checkout
    if forkserver := sys.modules.get("tests.forkserver"):
        forkserver.start_server()


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run what starts no programs on the loop of a gateway. It takes a sixth less of the processor."""
    folder, *_ = item.path.relative_to(Path(__file__).parent).parts
    return {"loop": uvloop.new_event_loop if folder in ON_UVLOOP else asyncio.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _copied_stores() -> Generator[None]:
    with copied_stores():
        yield


@pytest.fixture(scope="session", autouse=True)
def _versions_read_once() -> Generator[None]:
    """To read the metadata of every library takes a third of each `palaver doctor`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "version", cache(versions.version))
        yield


@pytest.fixture(scope="session", autouse=True)
def _certificates_read_once() -> Generator[None]:
    """To read those of all authorities takes each HTTP client 50 ms of the processor."""
    with pytest.MonkeyPatch.context() as patch:
        for library in (httpx, httpx2):
            patch.setattr(
                f"{library.__name__}._transports.default.create_ssl_context", cache(library.create_ssl_context)
            )
        yield


_described: dict[int, Transaction[Any]] = {}
"""Transactions of the test that runs, until somebody runs them."""


@pytest.fixture(scope="session", autouse=True)
def _noted_transactions() -> Generator[None]:
    def describe(kind: type[Transaction[Any]], *args: Any, **kwargs: Any) -> Transaction[Any]:
        made = partial.__new__(kind, *args, **kwargs)
        _described[id(made)] = made
        for part in (*args, *kwargs.values()):  # what another transaction was given is its to run
            _described.pop(id(part), None)
        return made

    def run(work: Transaction[Any]) -> Any:
        _described.pop(id(work), None)
        return cast("Any", partial).__call__(work)

    def handing_over(method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def hand_over(self: object, work: Transaction[Any]) -> Any:
            _described.pop(id(work), None)
            return method(self, work)

        return hand_over

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Transaction, "__new__", describe)
        patch.setattr(Transaction, "__iter__", run)
        for database in (Store, SqliteDatabase, PostgresDatabase):
            for name in ("transact", "read", "browse"):
                patch.setattr(database, name, handing_over(getattr(database, name)))
        yield


@pytest.fixture(autouse=True)
def _no_forgotten_transactions(request: pytest.FixtureRequest) -> Generator[None]:
    """Fail a test that describes a transaction and never runs it, as Python warns of a coroutine never awaited."""
    _described.clear()
    yield
    names = sorted(work.func.__qualname__ for work in _described.values())
    is_expected = request.node.get_closest_marker("drops_transactions") is not None
    assert not names or is_expected, f"described, but never run: {', '.join(names)}"
