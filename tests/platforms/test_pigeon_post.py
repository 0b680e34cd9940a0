"""The example of docs/adapters.md is a package like any other: built, installed, checked, and passed by the suite."""

import asyncio
import importlib.util
import os
import shutil
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

import pytest

from tests.forkserver import start_module

EXAMPLE = Path(__file__).parents[2] / "docs/examples/pigeon-post"
NEEDLESS = ("cacheprovider", "langsmith_plugin", "schemathesis")
"""Plugins of pytest that take long to import."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put it, from a wheel that was built without a network."""
    folder = tmp_path_factory.mktemp("pigeon")
    shutil.copytree(EXAMPLE, folder / "source", ignore=shutil.ignore_patterns("__pycache__", ".*"))
    asyncio.run(_install(folder / "source", folder / "target"))
    return folder


async def _install(source: Path, target: Path) -> None:
    offline = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    code, said = await _run("pip", "install", *offline, "--target", str(target), str(source), cwd=source)
    assert code == 0, said


async def _run(module: str, *args: str, cwd: Path, **environ: str) -> tuple[int | None, str]:
    process = start_module(
        module, *args, cwd=cwd, env={**os.environ, **environ}, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT
    )
    said, _ = await asyncio.to_thread(process.communicate)
    return process.returncode, said


def _loft() -> Any:
    spec = importlib.util.spec_from_file_location("loft", EXAMPLE / "tests/loft.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_it_passes_its_own_tests_and_the_suite(installed: Path) -> None:
    tests = str(installed / "source/tests")
    config = ("-c", str(installed / "source/pyproject.toml"), *(f"-pno:{name}" for name in NEEDLESS))
    code, said = await _run("pytest", *config, "-q", tests, cwd=installed / "target")
    assert code == 0, said
    assert " passed" in said


async def test_it_is_set_up_and_checked_as_any_platform(installed: Path, tmp_path: Path) -> None:
    module = _loft()
    (tmp_path / "ring").write_text(module.RING)
    (tmp_path / "ring").chmod(0o600)
    environ = {
        "PALAVER_HOME": str(tmp_path / "home"),
        "PALAVER_CONFIG": str(tmp_path / "own.yaml"),
    }
    run = partial(_run, "palaver", cwd=installed / "target", **environ)
    async with module.Loft().opened() as loft:
        options = ("--set", f"port={loft.port}", "--set", f"ring_file={tmp_path / 'ring'}")
        code, said = await run("setup", "pigeon", "--account", "greta", *options)
        assert (code, "own.yaml: Greta." in said) == (0, True), said
        code, said = await run("platforms", "check", "pigeon:greta")
        assert (code, "ok    pigeon:greta: Greta; not served" in said) == (0, True), said
        assert module.RING not in said
