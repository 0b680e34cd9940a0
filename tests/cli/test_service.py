"""`palaver service`: units that systemd accepts, a file for launchd, and what is said where neither runs."""

import os
import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.cli.main import main
from palaver.cli.service import Place, launchd_file, systemd_unit
from palaver.gateway import log_file
from tests.needs import program

HOSTILE = "a b c%h $HOME ü; d"


def place(folder: Path, *, is_system: bool) -> Place:
    program = folder / "palaver"
    program.symlink_to(sys.executable)
    return Place(
        program=[str(program), "up"],
        folder=folder,
        data=folder / "data",
        config=folder / "palaver.yaml",
        user="root",
        stop_seconds=60,
        is_system=is_system,
    )


@pytest.mark.needs("systemd-analyze")
@pytest.mark.parametrize("is_system", [True, False], ids=["system", "user"])
def test_systemd_accepts_the_unit_under_any_folder(tmp_path: Path, *, is_system: bool) -> None:
    analyze = program("systemd-analyze")
    folder = tmp_path / HOSTILE
    folder.mkdir()
    unit = tmp_path / "palaver.service"
    unit.write_text(systemd_unit(place(folder, is_system=is_system)))
    found = subprocess.run(
        [analyze, "verify", "--man=no", str(unit)], check=False, capture_output=True, text=True, timeout=60
    )
    assert "ExecReload=/bin/sh " in unit.read_text(), "a small Debian has no other program for it"
    ours = [line for line in found.stderr.splitlines() if "palaver" in line]
    assert (found.returncode, ours) == (0, [])
    if is_system:
        rated = subprocess.run(
            [analyze, "security", "--offline=true", "--threshold=30", str(unit)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert rated.returncode == 0, f"its exposure is more than 3 of 10:\n{rated.stdout[-300:]}"


def test_launchd_gets_the_same_program_and_folders(tmp_path: Path) -> None:
    folder = tmp_path / HOSTILE
    folder.mkdir()
    wanted = place(folder, is_system=False)
    wanted.config.touch()
    entries = plistlib.loads(launchd_file(wanted).encode())
    assert entries["ProgramArguments"] == [*wanted.program]
    assert entries["EnvironmentVariables"] == {
        "PALAVER_HOME": str(wanted.data),
        "PALAVER_CONFIG": str(wanted.config),
    }
    assert str(wanted.data / log_file.NAME) not in {entries["StandardOutPath"], entries["StandardErrorPath"]}
    assert (entries["KeepAlive"], entries["ExitTimeOut"], entries["Umask"]) == (True, 60, 0o077)


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$XDG_CONFIG_HOME/calls"
[ "$2" != status ]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    return tmp_path


def test_installing_starts_it_and_uninstalling_leaves_no_file(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{home}{os.pathsep}{os.environ['PATH']}")
    (home / "systemctl").write_text(SYSTEMCTL)
    (home / "systemctl").chmod(0o755)
    unit = home / "systemd/user/palaver.service"
    assert main(["service", "install", "--print"]) == 0
    printed = capfd.readouterr().out
    assert (main(["service", "install"]), unit.read_text()) == (0, printed)
    assert main(["service", "install"]) == 0, "twice is once"
    assert "loginctl enable-linger" in capfd.readouterr().err
    assert main(["service", "status"]) == 1, "its exit code is kept"
    assert main(["service", "uninstall"]) == 0
    assert not unit.exists()
    calls = (home / "calls").read_text().splitlines()
    assert calls[:2] == ["--user daemon-reload", "--user enable --now palaver"]
    assert calls[-2:] == ["--user disable --now palaver", "--user daemon-reload"]


def test_wrong_wishes_are_refused_with_a_way_on(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["service", "uninstall"]) == 2
    assert "palaver service install" in capsys.readouterr().err
    assert main(["service", "install", "--user", "ann"]) == 2
    assert "--user needs --system" in capsys.readouterr().err
    assert main(["service", "install", "--system", "--user", "nobody-of-that-name", "--print"]) == 2
    assert "has no user 'nobody-of-that-name'" in capsys.readouterr().err
    monkeypatch.setenv("PATH", str(home))
    assert main(["service", "status"]) == 2
    assert "does not have 'systemctl'" in capsys.readouterr().err
