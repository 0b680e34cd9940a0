"""Wheels of the versions that are installed, and of everything that they need, made before there is no network."""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["build_wheel", "collect_wheels", "previous_version"]

ROOT = Path(__file__).parents[2]
_MIGRATIONS = "src/palaver/db/migrations"
_SERVICE = "src/palaver/cli/service.py"


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout.strip()


def previous_version() -> str:
    """Return the newest tag; without one, the newest commit that can be a service and has a schema to migrate."""
    tags = _git("tag", "--merged", "HEAD", "--sort=-creatordate").split()
    if tags:
        return tags[0]
    ours = _schemas("HEAD")
    older = _git("log", "--format=%h^", "--", _MIGRATIONS).split()
    for commit in (*older, "HEAD^"):
        found = _schemas(commit)
        if found and ours[0] <= found[-1] <= ours[-1] and _git("ls-tree", "--name-only", commit, _SERVICE):
            return commit
    raise SystemExit("There is no older version in this clone: name one with --from, or fetch the whole history.")


def _schemas(revision: str) -> list[int]:
    names = _git("ls-tree", "--name-only", revision, f"{_MIGRATIONS}/")
    return sorted(int(number) for number in re.findall(r"/(\d{4})_", names))


def build_wheel(revision: str | None, folder: Path) -> Path:
    """Build the wheel of a revision, or of this tree as it is."""
    with tempfile.TemporaryDirectory(prefix="palaver-version-") as scratch:
        source = ROOT
        if revision is not None:
            archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", scratch], input=archive, check=True)
            source = Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
        subprocess.run(command, cwd=source, check=True, capture_output=True)
    (wheel,) = folder.glob("palaver-*.whl")
    return wheel


def collect_wheels(wheels: list[Path], python: str, folder: Path) -> None:
    """Download what they need with the extra `web`, for a Python of that version."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "download", "--only-binary=:all:"]
    for wheel in wheels:
        command = [*pip, "--python-version", python, "-c", "constraints.txt", "-d", str(folder), f"{wheel}[web]"]
        subprocess.run(command, cwd=ROOT, check=True)
