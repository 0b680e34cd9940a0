"""Packages that seem to be installed: entry points that lead to classes of our tests."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

__all__ = ["bring"]


def bring(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    adapters: Mapping[str, str],
    extras: Sequence[str] = (),
    requires: Sequence[str] = (),
) -> None:
    """As `pip install` would, as far as metadata goes."""
    facts = folder / "brought-1.0.dist-info"
    facts.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", "Name: brought", "Version: 1.0", *(f"Provides-Extra: {each}" for each in extras)]
    lines += [f"Requires-Dist: {each}" for each in requires]
    (facts / "METADATA").write_text("\n".join(lines) + "\n")
    points = [f"{name} = {place}" for name, place in adapters.items()]
    (facts / "entry_points.txt").write_text("\n".join(["[palaver.platforms]", *points]))
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
