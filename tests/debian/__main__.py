"""`make debian`: walk through the life of a service on a fresh Debian with its own systemd. Needs root."""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.debian.machine import PYTHON, Debian, bootstrap
from tests.debian.versions import build_wheel, collect_wheels, previous_version
from tests.debian.walk import Step, Walk
from tests.ports import free_port

_PROGRAMS = {"debootstrap": "debootstrap", "systemd-nspawn": "systemd-container", "nsenter": "util-linux"}


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _tell(step: Step) -> None:
    _print(f"{step.name}: {step.result} ({step.seconds:.0f} s)")


async def _walk(base: Path, folder: Path, revision: str) -> list[Step]:
    wheels = folder / "wheels"
    built = [build_wheel(revision, wheels / "old"), build_wheel(None, wheels / "new")]
    collect_wheels(built, PYTHON, wheels)
    place = Debian(base=base, folder=folder, wheels=wheels, port=free_port())
    walk = Walk(place=place, tell=_tell)
    try:
        await walk.run()
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{error}\n{error.stdout}{error.stderr}") from error
    finally:
        await place.shut_down()
    return walk.steps


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.debian", description="Install, upgrade, lose and restore.")
    parser.add_argument("--from", dest="revision", help="the old version; default: the newest tag, or an older schema")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/palaver-debian"), help="keeps a fresh Debian")  # noqa: S108
    wanted = parser.parse_args()
    missing = [package for program, package in _PROGRAMS.items() if not shutil.which(program)]
    if missing or os.geteuid():
        raise SystemExit(f"This needs root, and apt-get install {' '.join(missing)}")
    revision = wanted.revision or previous_version()
    _print(f"from {revision} to this tree")
    wanted.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="walk-", dir=wanted.cache) as folder:
        steps = asyncio.run(_walk(bootstrap(wanted.cache), Path(folder), revision))
    _print("\n| step | seconds | result |\n|---|---|---|")
    for step in steps:
        _print(f"| {step.name} | {step.seconds:.0f} | {step.result} |")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
