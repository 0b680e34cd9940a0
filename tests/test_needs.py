"""What tests need is installed where that is possible; else they are left out, and what is missing is named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import programs
from tests.programs import Program

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests import needs, programs
from tests.needs import *

dove = programs.Program(name="dove", package="dove-server", purpose="pigeon post, on a real server")
programs.PROGRAMS["dove"] = programs.NEEDS["dove"] = dove

@pytest.fixture
@needs.needing("dove")
def dove_path():
    return needs.program("dove")

def pytest_configure(config):
    config.addinivalue_line("markers", "needs(*names): as in our suite")
"""
TESTS = """
import pytest
from tests.needs import program

def test_without_a_server():
    pass

@pytest.mark.needs("dove")
def test_with_a_server():
    program("dove")

@pytest.mark.parametrize("server", ["inside", pytest.param("dove", marks=pytest.mark.needs("dove"))])
def test_on_each(server):
    pass

def test_with_a_fixture(dove_path):
    pass
"""
WRONG = """
import pytest
from tests.needs import program

def test_says_nothing_of_its_need():
    program("sshd")

def test_is_skipped():
    pytest.skip("no reason")
"""


def run(folder: Path, tests: str, *args: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_it.py").write_text(tests)
    (folder / "pytest.ini").touch()
    usual = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--strict-markers", "--color=no", *args],
        cwd=folder,
        env={**usual, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **environ},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_what_is_missing_leaves_out_tests_and_is_named_at_the_end(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS)
    assert done.returncode == 0, done
    assert "2 passed, 3 deselected" in done.stdout
    line = "dove, for pigeon post, on a real server: 3 tests. To run them: apt-get install dove-server"
    assert line in done.stdout
    alone = run(tmp_path, TESTS, "-k", "with_a_server")
    assert (alone.returncode, "1 test. To run" in alone.stdout) == (0, True), alone


def test_in_ci_nothing_may_be_missing(tmp_path: Path) -> None:
    done = run(tmp_path, TESTS, CI="true")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "apt-get install dove-server" in done.stderr


def test_a_need_is_declared_and_nothing_is_skipped(tmp_path: Path) -> None:
    done = run(tmp_path, WRONG)
    assert done.returncode == 1
    assert "2 failed" in done.stdout, done
    assert "pytest.mark.needs('sshd')" in done.stdout
    assert "no reason. Declare what the test needs" in done.stdout


# Installing

APT_GET = """
echo "$SYSTEMD_OFFLINE $*" >> {folder}/log
case $* in *-nowhere*) exit 100 ;; esac
for package; do
    case $package in
        *-server) touch {folder}/${{package%-server}}; chmod +x {folder}/${{package%-server}} ;;
    esac
done
"""


class Machine:
    """A system whose only commands are an `apt-get` that brings what it is asked for, and `sudo`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        self._patch = monkeypatch
        for name in ("env", "sh", "echo", "touch", "chmod"):
            (folder / name).symlink_to(f"/bin/{name}")
        self._write("apt-get", APT_GET.format(folder=folder))
        monkeypatch.setenv("PATH", str(folder))
        monkeypatch.setattr(programs, "SYSTEM_FOLDERS", str(folder))
        monkeypatch.setattr(programs, "PROGRAMS", {})
        for name, package in (("dove", "dove-server"), ("crow", "crow-server"), ("owl", "owl-nowhere")):
            programs.PROGRAMS[name] = Program(name=name, package=package, purpose="birds")

    def _write(self, name: str, script: str) -> None:
        (self.folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (self.folder / name).chmod(0o755)

    def become(self, user: int, *, sudo: str | None) -> None:
        self._patch.setattr(os, "geteuid", lambda: user)
        if sudo is not None:
            self._write("sudo", sudo)

    def install(self) -> bool:
        return programs.install(programs.missing_programs(), self.said.append)

    def asked(self) -> list[str]:
        log = self.folder / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.mark.parametrize(("user", "sudo"), [(0, None), (1000, 'shift; "$@"')], ids=["root", "sudo"])
def test_a_user_who_may_installs_and_hears_what(machine: Machine, user: int, sudo: str | None) -> None:
    del programs.PROGRAMS["owl"]
    machine.become(user, sudo=sudo)
    assert machine.install()
    assert machine.said == ["installing for the tests, with apt-get: dove-server crow-server"]
    assert machine.asked() == ["1 -qq -y update", "1 -qq -y install --no-install-recommends dove-server crow-server"]
    assert machine.install()
    assert len(machine.asked()) == 2, "apt is not run where everything is there"


def test_what_the_system_does_not_have_keeps_nothing_else_away(machine: Machine) -> None:
    machine.become(0, sudo=None)
    assert not machine.install()
    assert [each.name for each in programs.missing_programs()] == ["owl"]
    assert machine.said[1:] == ["apt-get could not install owl-nowhere"]


@pytest.mark.parametrize("sudo", [None, "exit 1"], ids=["no sudo", "a password"])
def test_a_user_without_rights_installs_nothing(machine: Machine, sudo: str | None) -> None:
    machine.become(1000, sudo=sudo)
    assert not machine.install()
    assert (machine.asked(), machine.said) == ([], [])


def test_everything_that_is_needed_is_on_the_page() -> None:
    """As one command, and with what each program is for."""
    page = (ROOT / "CONTRIBUTING.md").read_text()
    packages = sorted({package for each in programs.PROGRAMS.values() for package in each.package.split()})
    assert f"apt-get install {' '.join(packages)}\n" in page
    for each in programs.PROGRAMS.values():
        assert f"| `{each.name}` | {each.purpose} |" in page
