"""Ask the configured package index about our pins: that each exists, that none is yanked, and how far behind each is.

python -m tests.project.audit [file with pins]

The index is the one that uv is configured for (UV_INDEX_URL and others). Exit code 1: a pin is missing or yanked, or
the index does not answer.
"""

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PINS = Path(__file__).parents[2] / "constraints.txt"
_COMPILE = ("-m", "uv", "--color", "never", "pip", "compile", "--no-deps", "--no-header", "--no-annotate", "-")
_YANKED = re.compile(r"`([^`=]+)==[^`]+` is yanked(?: \(reason: (.*)\))?")
_MISSING = re.compile(r"no version of|not found in the (?:package registry|provided package locations)")
_AT_ONCE = 8


class Unanswered(Exception):
    """The index did not answer."""


def _compile(lines: Iterable[str]) -> "subprocess.CompletedProcess[str]":
    """Resolve the lines, each by itself: that needs no package, only what the index says of them."""
    command = [sys.executable, *_COMPILE]
    return subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=False)


def _versions(text: str) -> dict[str, str]:
    found = (line.strip().partition("==") for line in text.splitlines() if "==" in line and not line.startswith("#"))
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in found}


def _is_missing(pin: str) -> bool:
    done = _compile([pin])
    if done.returncode and not _MISSING.search(" ".join(done.stderr.split())):
        raise Unanswered(done.stderr.strip())
    return bool(done.returncode)


def find_missing(pins: Sequence[str]) -> list[str]:
    """Return the pins that the index does not have. Raises Unanswered."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return [pin for pin, is_missing in zip(pins, pool.map(_is_missing, pins), strict=True) if is_missing]


def problems(pins: dict[str, str]) -> Iterator[str]:
    """Yield what is wrong with pins. Raises Unanswered."""
    lines = [f"{name}=={version}" for name, version in pins.items()]
    if _compile(lines).returncode:
        missing = find_missing(lines)
        yield from (f"{pin} is not on the index" for pin in missing)
        lines = [line for line in lines if line not in missing]
    done = _compile(lines)
    if done.returncode:
        raise Unanswered(done.stderr.strip())
    for name, reason in _YANKED.findall(done.stderr):
        yield f"{name}=={pins[name]} is yanked{f': {reason.strip(chr(34))}' if reason else ''}"


def find_behind(pins: dict[str, str]) -> list[str]:
    """Return the pins with a newer version, those with a newer major version first. Raises Unanswered."""
    done = _compile(pins)
    if done.returncode:
        raise Unanswered(done.stderr.strip())
    latest = _versions(done.stdout)
    behind = [name for name, version in pins.items() if latest[name] != version]
    behind.sort(key=lambda name: (_major(pins[name]) == _major(latest[name]), name))
    return [f"{name} {pins[name]} -> {latest[name]}" for name in behind]


def _major(version: str) -> str:
    return version.partition(".")[0]


def main(arguments: Sequence[str]) -> int:
    pins = _versions(Path(*arguments[:1] or (PINS,)).read_text())
    try:
        wrong = list(problems(pins))
        known = {
            name: version for name, version in pins.items() if f"{name}=={version} is not on the index" not in wrong
        }
        behind = find_behind(known)
    except Unanswered as error:
        sys.stderr.write(f"The index did not answer, so nothing was checked:\n{error}\n")
        return 1
    sys.stdout.writelines(
        f"{line}\n" for line in (*behind, f"{len(pins)} pins, {len(behind)} behind the newest version.")
    )
    sys.stderr.writelines(f"error: {line}\n" for line in wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
