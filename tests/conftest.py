"""Every test runs without the configuration of whoever runs it."""

import os

import pytest


@pytest.fixture(autouse=True)
def _no_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PALAVER_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", os.devnull)
