"""Commands in Apptainer containers. Apptainer itself is not there: a program in its place records how it is called."""

import os
from pathlib import Path

import pytest

from palaver.processes.backends.apptainer import ApptainerBackend
from tests.processes.workshop import workshop

PROGRAM = """#!/bin/sh
printf '%s\\n' "$@" > "$(dirname "$0")/called"
env > "$(dirname "$0")/environment"
echo contained
exit 4
"""


async def test_a_command_is_given_to_apptainer_and_not_to_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("OPENAI_API_KEY", "canary")
    backend = ApptainerBackend(image="debian.sif", folder=tmp_path / "work", environment={"CI": "1"})
    async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
        assert await shop.runs(f"touch {tmp_path}/a") == "(exit code 4 after 0 s)\ncontained"
    called = (program.parent / "called").read_text().splitlines()
    assert called[-4:] == ["debian.sif", "sh", "-c", f"touch {tmp_path}/a"]
    assert {"--containall", "--cleanenv", "--no-home"} <= set(called)
    assert f"{tmp_path}/work:/workspace" in called
    assert not (tmp_path / "a").exists()
    environment = (program.parent / "environment").read_text()
    assert "APPTAINERENV_CI=1" in environment
    assert "canary" not in environment


async def test_without_apptainer_nothing_runs(tmp_path: Path) -> None:
    backend = ApptainerBackend(image="debian.sif", folder=tmp_path / "work")
    async with workshop(tmp_path / "p.db", tmp_path, backend=backend) as shop:
        told = await shop.runs(f"touch {tmp_path}/a")
        assert told == "(exit code 127 after 0 s)\nCannot run apptainer: No such file or directory"
    assert not (tmp_path / "a").exists()
