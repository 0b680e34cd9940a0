"""Every test runs without the configuration of whoever runs it, and takes the time that it takes."""

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.store.server import postgres_server

__all__ = ["postgres_server"]

settings.register_profile(
    "unhurried",
    deadline=None,
    max_examples=50 * int(os.environ.get("PALAVER_EXAMPLES", "1")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("unhurried")
# A shell that starts tests in the background has them ignore it, and every process that they start, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
