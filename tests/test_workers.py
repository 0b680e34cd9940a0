"""Tests that run in several processes are reported as if they ran in one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import os
import pytest
from tests.workers import pytest_addoption, pytest_collection, pytest_runtestloop

@pytest.fixture(scope="session", autouse=True)
def session(tmp_path_factory):
    yield
    with open("torn_down", "a") as file:
        print(os.getpid(), file=file)
    assert "nobody" in os.environ.get("SESSION", "nobody")

@pytest.fixture(scope="module")
def shared():
    return os.getpid()
"""
TOGETHER = """
import os
import pytest

@pytest.mark.parametrize("number", range(20))
def test_together(number, shared):
    assert shared == os.getpid()
"""
APART = """
import os, signal, sys, time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(20))
def test_apart(number, tmp_path):
    Path(f"pid-{os.getpid()}").touch()
    while len(list(Path().glob("pid-*"))) < 2:
        time.sleep(0.01)

def test_prints():
    print("out of", "prints")
    assert 0, "one and one"

def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)

def test_after():
    pytest.skip("why not")

ERRORS = sys.stderr

def test_streams_that_were_there_before_can_be_used():
    assert ERRORS.fileno() >= 0
    ERRORS.write("")
"""

HANGS = """
import time
import pytest

@pytest.fixture
def hangs():
    yield
    time.sleep(600)

def test_hangs_afterwards(hangs):
    pass
"""


def run(folder: Path, *args: str, **environ: str) -> str:
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_together.py").write_text(TOGETHER)
    (folder / "test_apart.py").write_text(APART)
    (folder / "pytest.ini").touch()
    options = ("-p", "no:xdist", "-p", "no:xdist.looponfail", "-p", "no:cacheprovider", "-rs", "--color=no")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", *options, *args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout


def test_every_test_is_run_once_and_reported(tmp_path: Path) -> None:
    said = run(tmp_path)
    assert "2 failed, 41 passed, 1 skipped" in said, said
    assert "AssertionError: one and one" in said
    assert "out of prints" in said
    assert "the process that ran it ended with -9" in said
    assert "why not" in said
    assert len((tmp_path / "torn_down").read_text().split()) == 2  # but not from the one that died


def test_the_first_failure_can_end_all(tmp_path: Path) -> None:
    said = run(tmp_path, "-x", "-k", "test_prints or test_together")
    assert "stopping after 1 failures" in said
    assert (tmp_path / "torn_down").exists()


def test_what_fails_at_the_end_of_a_session_is_reported(tmp_path: Path) -> None:
    said = run(tmp_path, "-k", "together", SESSION="somebody")
    assert "20 passed, 24 deselected, 1 error" in said, said


@pytest.mark.parametrize("args", [("--collect-only",), ("-k", "nothing")])
def test_what_runs_nothing_starts_nobody(tmp_path: Path, args: tuple[str, ...]) -> None:
    run(tmp_path, *args)
    assert not (tmp_path / "torn_down").exists()


def test_a_worker_that_says_nothing_any_more_fails_its_test(tmp_path: Path) -> None:
    (tmp_path / "test_hangs.py").write_text(HANGS)
    shown = run(tmp_path, "test_hangs.py", PALAVER_SILENT_SECONDS="3")
    assert "test_hangs_afterwards" in shown
    assert "the process that ran it ended with -9" in shown
    assert "1 failed in" in shown
