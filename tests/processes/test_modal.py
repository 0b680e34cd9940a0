"""Commands in Modal sandboxes. Modal itself is not there: a stand-in has the documented interface of its library."""

import json
import sys
from pathlib import Path

import pytest

from palaver.processes.backends.modal import ModalBackend
from palaver.protocols.installation import package_line
from tests.engine.gateway import until
from tests.processes.workshop import workshop

STAND_IN = Path(__file__).parent / "modal_stand_in"
PYTHON = f'#!/bin/sh\nPYTHONPATH={STAND_IN} exec {sys.executable} "$@"\n'


def backend(folder: Path, **changed: object) -> ModalBackend:
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o700)
    fields = {"image": "debian:12", "environment": {"CI": "1"}, "python": (str(python),), **changed}
    return ModalBackend(**fields)  # pyright: ignore[reportArgumentType]


async def test_a_command_runs_in_a_sandbox_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = tmp_path / "cloud"
    cloud.mkdir()
    monkeypatch.setenv("MODAL_STAND_IN", str(cloud))
    monkeypatch.setenv("MODAL_TOKEN_ID", "ak-1")
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    async with workshop(tmp_path / "p.db", tmp_path, backend=backend(tmp_path)) as shop:
        told = await shop.runs("touch here; pwd; env; exit 3")
        assert told.startswith(f"(exit code 3 after 0 s)\n{cloud}/palaver-")
        assert "CI=1" in told
        assert "PTY=False" in told
        assert "canary" not in told
        assert "ak-1" not in told
        assert list((tmp_path / "work").iterdir()) == []
        (made,) = [json.loads(file.read_text()) for file in cloud.glob("*.json")]
        assert (made["app"], made["image"]) == ("app palaver True", "image debian:12")
        assert made["volumes"] == {"/workspace": "volume palaver-work True"}
        assert made["block_network"] is True
        # Not beside another output: the pieces of two streams come as they come.
        assert "of it" in await shop.runs("echo of it >&2")

        process = await shop.starts("read line; echo got $line; exec sleep 600", notify=False)
        await shop.does("submit", process=process.name, data="ümlaut")
        await shop.writes(process, "got ümlaut".encode())
        assert await shop.manager.kill([process], by="test") == 1
        await shop.ended(process)
        # Nothing is left there.
        await until(lambda: not [each for each in cloud.iterdir() if each.is_dir()])


async def test_without_modal_or_a_login_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODAL_STAND_IN", str(tmp_path))
    monkeypatch.delenv("MODAL_TOKEN_ID", raising=False)
    command = f"touch {tmp_path}/a"
    for found, why in (
        (backend(tmp_path), "Modal: Token missing."),
        (
            backend(tmp_path, python=(sys.executable, "-I")),
            f"Modal is not installed. Install it with: {package_line('modal')}",
        ),
    ):
        async with workshop(tmp_path / f"{len(why)}.db", tmp_path, backend=found) as shop:
            assert await shop.runs(command) == f"(exit code 125 after 0 s)\n{why}"
    assert not (tmp_path / "a").exists()
