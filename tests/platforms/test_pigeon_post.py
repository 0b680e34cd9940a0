"""The example of docs/adapters.md is a package like any other: built, installed, checked, and passed by the suite."""

import asyncio
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[2] / "docs/examples/pigeon-post"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put it, from a wheel that was built without a network."""
    folder = tmp_path_factory.mktemp("pigeon")
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    asyncio.run(_install(folder / "source", folder / "target"))
    return folder


async def _install(source: Path, target: Path) -> None:
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    code, said = await _run("-m", "pip", "install", *offline, "--target", str(target), str(source))
    assert code == 0, said


async def _run(*args: str, **environ: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *args,
        env={**os.environ, **environ},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    return process.returncode, said.decode()


def _loft() -> Any:
    spec = importlib.util.spec_from_file_location("loft", EXAMPLE / "tests/loft.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_it_passes_its_own_tests_and_the_suite(installed: Path) -> None:
    tests = str(installed / "source/tests")
    config = ("-c", str(installed / "source/pyproject.toml"), "-p", "no:cacheprovider")
    code, said = await _run("-m", "pytest", *config, "-q", tests, PYTHONPATH=str(installed / "target"))
    assert code == 0, said
    assert " passed" in said


async def test_it_is_set_up_and_checked_as_any_platform(installed: Path, tmp_path: Path) -> None:
    module = _loft()
    (tmp_path / "ring").write_text(module.RING)
    (tmp_path / "ring").chmod(0o600)
    environ = {
        "PYTHONPATH": str(installed / "target"),
        "PALAVER_HOME": str(tmp_path / "home"),
        "PALAVER_CONFIG": str(tmp_path / "own.yaml"),
    }
    async with module.Loft().opened() as loft:
        options = ("--set", f"port={loft.port}", "--set", f"ring_file={tmp_path / 'ring'}")
        code, said = await _run("-m", "palaver", "setup", "pigeon", "--account", "greta", *options, **environ)
        assert (code, "own.yaml: Greta." in said) == (0, True), said
        code, said = await _run("-m", "palaver", "platforms", "check", "pigeon:greta", **environ)
        assert (code, "ok    pigeon:greta: Greta; not served" in said) == (0, True), said
        assert module.RING not in said
