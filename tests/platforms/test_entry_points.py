"""Plugins are found by their entry points, also those that are installed while the process runs."""

import os
import sys
from pathlib import Path

import pytest

from palaver.protocols import entry_points
from palaver.protocols.entry_points import find_plugins


def test_metadata_is_read_again_only_after_an_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    os.utime(tmp_path, (0, 0))
    assert find_plugins("pigeons") == ()
    with monkeypatch.context() as patch:
        patch.setattr(entry_points, "entry_points", None)
        assert find_plugins("pigeons") == ()

    facts = tmp_path / "pigeon-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[pigeons]\nred = pigeon:Red\nblue = pigeon:Blue\n")
    assert [each.name for each in find_plugins("pigeons")] == ["red", "blue"]
    assert [each.name for each in find_plugins("pigeons", "blue")] == ["blue"]
