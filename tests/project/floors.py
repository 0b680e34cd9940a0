"""Run the tests of the platforms and the web with the lowest versions that pyproject.toml accepts.

python -m tests.project.floors [pytest arguments]
"""

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
TESTS = ("tests/platforms", "tests/web")


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements() -> list[str]:
    """The package with all extras, and what tests need beside it, of which only our pins are tried."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = {name: texts for name, texts in project["optional-dependencies"].items() if name != "testkit"}
    ours = {_normal(Requirement(text).name) for texts in (project["dependencies"], *extras.values()) for text in texts}
    return [f"palaver[{','.join(extras)}] @ {ROOT.as_uri()}", *_tools(ours)]


def _tools(ours: set[str]) -> Iterator[str]:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    versions = {_normal(name): version for name, version in pins.items()}
    for line in (ROOT / "requirements-dev.txt").read_text().splitlines():
        if not line.startswith("#") and (name := _normal(Requirement(line).name)) not in ours:
            yield f"{name}=={versions[name]}"


def main(arguments: Sequence[str]) -> int:
    with TemporaryDirectory(prefix="palaver-floors-") as folder:
        python = Path(folder) / "venv/bin/python"
        uv = [sys.executable, "-m", "uv", "--quiet"]
        subprocess.run([*uv, "venv", "--seed", "--python", sys.executable, python.parents[1]], check=True)
        (python.parents[1] / "node").symlink_to(Path(sys.prefix) / "node")
        # A floor without a wheel would be built from source, which takes what few machines have.
        wheels = ["--only-binary", ":all:", "--no-binary", "palaver"]
        install = [*uv, "pip", "install", "--python", python, "--resolution", "lowest-direct", *wheels, *requirements()]
        subprocess.run(install, check=True)
        return subprocess.run([python, "-m", "pytest", *(arguments or TESTS)], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
