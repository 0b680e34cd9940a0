"""A third party adds an adapter by installing it."""

import sys
from pathlib import Path

import pytest

from palaver.domain.errors import UnknownPlatform
from palaver.platforms.others import load_adapter, names


@pytest.fixture
def pigeon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = tmp_path / "pigeon_post-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: pigeon-post\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[palaver.platforms]\npigeon = pigeon_post:Pigeon\n")
    (tmp_path / "pigeon_post.py").write_text("class Pigeon:\n    legs = 2\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


@pytest.mark.usefixtures("pigeon")
def test_an_installed_adapter_is_found_and_loaded() -> None:
    assert "pigeon" in names()
    assert vars(load_adapter("pigeon"))["legs"] == 2


@pytest.mark.usefixtures("pigeon")
def test_what_is_not_installed_is_said_with_what_is() -> None:
    with pytest.raises(UnknownPlatform, match="pigeon"):
        load_adapter("carrier")
