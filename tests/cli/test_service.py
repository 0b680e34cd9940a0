"""`palaver service`: units that systemd accepts, a file for launchd, and what is said where neither runs."""

import os
import plistlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from palaver.cli import service
from palaver.cli.main import main
from palaver.cli.service import Place, launchd_file, systemd_unit
from palaver.cli.service_environment import read_variables_file, write_variables_file
from palaver.config.loader import load
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
        environment={"PALAVER_HOME": str(folder / "data"), "PALAVER_CONFIG": str(folder / "palaver.yaml")},
        variables=folder / "palaver.env",
        writable=[folder / "data"],
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
    assert entries["ProgramArguments"][-2:] == [*wanted.program]
    assert entries["EnvironmentVariables"] == wanted.environment
    assert str(wanted.data / log_file.NAME) not in {entries["StandardOutPath"], entries["StandardErrorPath"]}
    assert (entries["KeepAlive"], entries["ExitTimeOut"], entries["Umask"]) == (True, 60, 0o077)


SYSTEMCTL = """#!/bin/sh
echo "$@" >> "$HOME/calls"
[ "$2" != status ]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("PALAVER_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name in ("systemctl", "launchctl"):
        (tmp_path / name).write_text(SYSTEMCTL)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path


def configure(file: Path, content: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def installed(home: Path, *words: str) -> dict[str, str]:
    """Install, and return what the program of the service gets: from the unit, then from its file."""
    assert main(["service", "install", *words]) == 0
    environment, command = {"HOME": str(home)}, ["/bin/sh", "-c", "env -0"]
    if sys.platform == "darwin":
        entries = plistlib.loads((home / "Library/LaunchAgents/palaver.gateway.plist").read_bytes())
        environment |= entries["EnvironmentVariables"]
        command = [*entries["ProgramArguments"][:-2], "/usr/bin/env", "-0"]
    else:
        unit = (home / ".config/systemd/user/palaver.service").read_text()
        said = re.findall(r"^Environment=(.*)$", unit, re.MULTILINE)
        environment |= dict(shlex.split(each)[0].replace("%%", "%").split("=", 1) for each in said)
        (file,) = re.findall(r"^EnvironmentFile=-(.*)$", unit, re.MULTILINE)
        command = ["/bin/sh", "-c", 'set -a; [ ! -f "$0" ] || . "$0"; env -0', file]
    done = subprocess.run(command, check=True, capture_output=True, env=environment, timeout=60)
    found = dict(each.split("=", 1) for each in done.stdout.decode().split("\0") if "=" in each)
    return {name: text for name, text in found.items() if name not in {"PWD", "SHLVL", "_", "HOME"}}


@pytest.fixture(params=["linux", "darwin"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "platform", request.param)
    return str(request.param)


@pytest.mark.usefixtures("system")
def test_the_service_has_the_data_and_the_store_that_this_shell_has(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(home / ".config/palaver/palaver.yaml", f"data_dir: {home}/mine\n")
    assert load(home, {**installed(home), "HOME": str(home)}).data_dir == home / "mine"
    monkeypatch.setenv("PALAVER_HOME", "data")
    assert installed(home) == {"PALAVER_HOME": str(home / "elsewhere/data"), "PALAVER_CONFIG": str(config)}
    monkeypatch.delenv("PALAVER_HOME")
    monkeypatch.setenv("PALAVER_CONFIG", "own.yaml")
    configure(Path("own.yaml"), "busy: queue\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(home / "share"))
    monkeypatch.setenv("PALAVER_STORE", "here.db")
    monkeypatch.setenv("PALAVER_WEB__PORT", "9")
    monkeypatch.setenv("PALAVER_TOKEN", "no setting")
    got = installed(home)
    assert got == {
        "PALAVER_CONFIG": str(home / "elsewhere/own.yaml"),
        "XDG_DATA_HOME": str(home / "share"),
        "PALAVER_STORE": str(home / "elsewhere/here.db"),
        "PALAVER_WEB__PORT": "9",
    }
    found = load(home, got)
    assert (found.store, found.data_dir, found.web.port) == (got["PALAVER_STORE"], home / "share/palaver", 9)


AWKWARD = '12:a\'b "c" $HOME `d` \\e%h #f'


@pytest.mark.usefixtures("system")
def test_secrets_go_into_a_file_of_their_own_with_consent(
    home: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    configure(
        home / ".config/palaver/palaver.yaml",
        'agent: {name: http, url: "http://127.0.0.1:9", headers: {A: "${ONE}", B: "${TWO} ${THREE}"}}\n',
    )
    file = home / ".config/palaver/palaver.env"
    monkeypatch.setenv("ONE", AWKWARD)
    monkeypatch.setenv("TWO", "2")
    monkeypatch.setenv("PALAVER_STORE", "postgresql://me:hunter2@db/palaver")
    assert "ONE" not in installed(home)
    said = capfd.readouterr().err
    assert "Not carried over: ONE, PALAVER_STORE, TWO. Run this again with --yes, or write them into" in said
    assert f"needs THREE, not set here: the service will not start. Write THREE=… into {file}" in said
    assert not file.exists()
    got = installed(home, "--yes")
    assert (got["ONE"], got["TWO"], got["PALAVER_STORE"]) == (AWKWARD, "2", os.environ["PALAVER_STORE"])
    assert (file.stat().st_mode & 0o777, "hunter2" in file.read_text()) == (0o600, True)
    with file.open("a") as stream:
        stream.write("THREE=3\n")
    monkeypatch.delenv("ONE")
    monkeypatch.setenv("PALAVER_STORE", "plain.db")
    capfd.readouterr()
    got = installed(home)
    assert (got["ONE"], got["THREE"]) == (AWKWARD, "3"), "what the file has stays"
    assert got["PALAVER_STORE"] == str(home / "elsewhere/plain.db"), "an old one does not win"
    said = capfd.readouterr()
    assert ("not set here" in said.err, "Not carried over" in said.err) == (False, False)
    written = [each.read_text() for each in home.rglob("palaver*") if each.is_file() and each != file]
    assert not any("hunter2" in text for text in written)


def test_the_service_of_the_machine_may_write_where_its_file_says(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(service, "_SYSTEM_CONFIG", home / "etc/palaver.yaml")
    system = ["service", "install", "--system", "--user", "root", "--print"]
    assert main(system) == 0
    assert 'Environment="PALAVER_HOME=/var/lib/palaver"\n' in capsys.readouterr().out
    config = configure(home / "etc/palaver.yaml", f"data_dir: {home}/big\nbackup: {{folder: {home}/copies}}\n")
    configure(Path("palaver.yaml"), "titles: off\n")
    monkeypatch.setenv("PALAVER_CONFIG", "own.yaml")
    assert main(system) == 0
    said = capsys.readouterr()
    assert f'ReadWritePaths="{home}/big" "{home}/copies" "{home}/etc"\n' in said.out
    assert ("PALAVER_HOME" in said.out, f'Environment="PALAVER_CONFIG={config}"' in said.out) == (False, True)
    assert f"reads {config}, not own.yaml" in said.err
    assert f"does not read {home}/elsewhere/palaver.yaml" in said.err


def test_installing_starts_it_and_uninstalling_leaves_no_file(home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    unit = home / ".config/systemd/user/palaver.service"
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
    monkeypatch.setenv("PATH", str(home / "elsewhere"))
    assert main(["service", "status"]) == 2
    assert "does not have 'systemctl'" in capsys.readouterr().err


def test_what_a_person_wrote_beside_the_variables_stays(tmp_path: Path) -> None:
    file = tmp_path / "palaver.env"
    file.write_text("# of the old bot\nOLD=1\n\nexport MINE=2\n")
    for _ in range(2):
        write_variables_file(file, {**read_variables_file(file), "NEW": 'a "b"'})
    assert file.read_text().splitlines()[1:] == ["# of the old bot", "export MINE=2", 'NEW="a \\"b\\""', 'OLD="1"']
