"""`make debian`: walk through the life of a service, or try a checkout, on a fresh Debian. Needs root."""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.debian import checkout
from tests.debian.checkout import Checkout, Measured
from tests.debian.machine import PYTHON, SUITE, Debian, bootstrap
from tests.debian.versions import build_wheel, collect_wheels, previous_version
from tests.debian.walk import Step, Walk
from tests.ports import free_port

_PROGRAMS = {"debootstrap": "debootstrap", "unshare": "util-linux"}
_SERVICE_PROGRAMS = {"systemd-nspawn": "systemd-container", "nsenter": "util-linux"}


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


def _measured(step: Measured) -> None:
    _print(f"{step.name}: {step.wall:.1f} s, of processors {step.processor:.1f} s; {step.result}")


def _try_checkout(wanted: argparse.Namespace) -> None:
    base = bootstrap(wanted.cache, checkout.PACKAGES, f"{SUITE}-make")
    with tempfile.TemporaryDirectory(prefix="checkout-", dir=wanted.cache) as folder:
        place = Checkout(
            base=base,
            folder=Path(folder),
            cache=wanted.cache / "home-cache",
            binds=wanted.bind,
            tell=_measured,
        )
        place.prepare()
        if wanted.only != "test":
            place.run_first()
            place.run_with_server()
        for user in wanted.users if wanted.only != "run" else ():
            place.test(user, wanted.tests if wanted.tests is not None else checkout.SUBSET)
    _print("\n| step | seconds | of processors | result |\n|---|---|---|---|")
    for step in place.steps:
        _print(f"| {step.name} | {step.wall:.1f} | {step.processor:.1f} | {step.result} |")


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.debian", description="Try Palaver on a fresh Debian.")
    parser.add_argument("what", nargs="?", choices=("service", "checkout"), default="service")
    parser.add_argument("--from", dest="revision", help="the old version; default: the newest tag, or an older schema")
    parser.add_argument("--cache", type=Path, default=Path("/var/tmp/palaver-debian"), help="keeps a fresh Debian")  # noqa: S108
    parser.add_argument("--bind", action="append", default=[], help="a path of this machine that the checkout sees")
    parser.add_argument("--tests", nargs="*", help="what make test runs; without a name all, without the option a part")
    parser.add_argument("--only", choices=("run", "test"), help="try only this of a checkout")
    # Root comes last, who installs programs, which stay.
    parser.add_argument("--users", nargs="+", choices=checkout.USERS, default=checkout.USERS, help="who runs make test")
    wanted = parser.parse_args()
    programs = _PROGRAMS if wanted.what == "checkout" else _PROGRAMS | _SERVICE_PROGRAMS
    missing = [package for program, package in programs.items() if not shutil.which(program)]
    if missing or os.geteuid():
        raise SystemExit(f"This needs root, and apt-get install {' '.join(missing)}")
    if wanted.what == "checkout":
        _try_checkout(wanted)
        return 0
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
