"""What a platform needs is installed while Palaver runs: from a folder with a tiny wheel, as from an index."""

import asyncio
import os
import signal
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest

from palaver.gateway import installer
from palaver.gateway.installer import NotInstalled, explain_failure, install, installer_environment
from palaver.protocols.installation import Installation, InstallKind, MissingPackages
from tests.packages import bring

CLIENT = "tinyclient"


def make_wheel(folder: Path) -> None:
    folder.mkdir()
    facts = f"{CLIENT}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{CLIENT}-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{CLIENT}.py", "NAME = 'tiny'\n")
        wheel.writestr(f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: {CLIENT}\nVersion: 1.0\n")
        wheel.writestr(f"{facts}/WHEEL", "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{facts}/RECORD", "")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages of our own: pip installs into it, and everything that it finds is in `wheels`."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.setenv("PIP_TARGET", str(site))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    here = Installation(kind=InstallKind.PIP, python=sys.executable, prefix=tmp_path, packages=site)
    monkeypatch.setattr(installer, "find_installation", lambda: here)
    bring(tmp_path / "brought", monkeypatch, {}, extras=["tiny"], requires=[f"{CLIENT}; extra == 'tiny'"])
    yield site
    sys.modules.pop(CLIENT, None)


def missing() -> MissingPackages:
    return MissingPackages("Tiny needs", "tiny", distribution_name="brought")


async def test_what_was_installed_can_be_imported_at_once(site: Path, tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels")
    with pytest.raises(ModuleNotFoundError):
        import_module(CLIENT)
    shown: list[str] = []
    await install(missing(), shown.append)
    assert import_module(CLIENT).NAME == "tiny"
    assert any("tinyclient" in line for line in shown)
    assert (site / f"{CLIENT}.py").exists()


@pytest.mark.usefixtures("site")
async def test_two_at_once_wait_for_each_other(tmp_path: Path) -> None:
    make_wheel(tmp_path / "wheels")
    shown: list[str] = []
    await asyncio.gather(install(missing(), shown.append), install(missing(), shown.append))
    assert "Waiting for another installation" in shown
    assert import_module(CLIENT)


@pytest.mark.usefixtures("site")
async def test_what_is_on_no_index_is_an_error_with_the_command(tmp_path: Path) -> None:
    (tmp_path / "wheels").mkdir()
    with pytest.raises(NotInstalled) as caught:
        await install(missing(), lambda _: None)
    assert "tinyclient could not be installed: the package index has no versions that fit. Run it yourself: " in str(
        caught.value
    )
    assert str(caught.value).endswith(f"-c {Path(__file__).parents[2]}/constraints.txt tinyclient")


async def test_what_was_killed_in_the_middle_is_done_the_next_time(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel(tmp_path / "wheels")
    started, here = asyncio.Event(), installer.find_installation()
    slow = tmp_path / "slow"
    slow.write_text(f"#!{sys.executable}\nimport os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    slow.chmod(0o700)
    monkeypatch.setattr(installer, "find_installation", lambda: replace(here, python=str(slow)))
    pids: list[str] = []

    def show(line: str) -> None:
        pids.append(line)
        started.set()

    task = asyncio.create_task(install(missing(), show))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(int(pids[0]), 0)
    started.clear()
    task = asyncio.create_task(install(missing(), show))
    await started.wait()
    os.kill(int(pids[1]), signal.SIGKILL)
    with pytest.raises(NotInstalled):
        await task
    monkeypatch.setattr(installer, "find_installation", lambda: here)
    await install(missing(), show)
    assert (site / f"{CLIENT}.py").exists()


@pytest.mark.usefixtures("site")
async def test_a_cause_at_the_end_of_a_long_line_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    here = installer.find_installation()
    line = f"WARNING: {'x' * 150} NewConnectionError"

    def command(*_: object) -> list[str]:
        return ["sh", "-c", f"echo {line}; echo no matching; exit 1"]

    monkeypatch.setattr(type(here), "command", command)
    shown: list[str] = []
    with pytest.raises(NotInstalled, match="the package index cannot be reached"):
        await install(missing(), shown.append)
    assert len(shown[0]) == 100


async def test_where_nothing_can_be_installed_the_command_is_named(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = replace(installer.find_installation(), obstacle=f"{site} cannot be written")
    monkeypatch.setattr(installer, "find_installation", lambda: here)
    with pytest.raises(NotInstalled, match=r"cannot be written\. Run it yourself: "):
        await install(missing(), lambda _: None)


def test_an_installer_gets_no_secrets() -> None:
    given = {"OPENAI_API_KEY": "sk", "PATH": "/bin", "PIP_INDEX_URL": "x", "https_proxy": "p", "PALAVER_HOME": "h"}
    kept = installer_environment(given)
    assert {"PATH", "PIP_INDEX_URL", "https_proxy"} <= kept.keys()
    assert not {"OPENAI_API_KEY", "PALAVER_HOME"} & kept.keys()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (
            "WARNING: Retrying ... NewConnectionError('...')\nERROR: No matching distribution found for x",
            "index cannot",
        ),
        ("error: Failed to fetch: `x`\n  Caused by: dns error", "the package index cannot be reached"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "the disk is full"),
        ("  × No solution found when resolving dependencies:", "no versions that fit"),
        ("ERROR: something else.\nnotice", "ERROR: something else"),
        ("Killed", "Killed"),
    ],
)
def test_a_failure_is_explained_in_a_sentence(line: str, why: str) -> None:
    assert why in explain_failure(line.split("\n"))
