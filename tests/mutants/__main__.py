"""Take filters of the store and checks of the web away, one at a time, and see whether a test fails.

Results add up in build/mutants, so that slices of some minutes do. What stays has a reason in accepted.txt.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.plugin import PLAN
from tests.mutants.points import Instrument, Point

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build/mutants"
ACCEPTED = Path(__file__).with_name("accepted.txt")
_TESTS = ("store", "web", "engine", "commands", "relay", "leaks")
_NOT_COPIED = (".git", ".venv*", "build", "dist", "__pycache__", ".hypothesis", ".pytest_cache", ".ruff_cache")
_DOORS = {
    "db/sqlite.py": ("sql, values = statement\n", "sql, values = _points.statement(statement)\n"),
    "db/postgres.py": ("sql, values = statement\n", "sql, values = _points.statement(statement)\n"),
    "db/in_step.py": ("statement := member.statement)", "statement := _points.statement(member.statement))"),
}
"""Where statements go to the database."""
_MOST_SECONDS, _SECONDS_AGAIN = 15.0, 120.0
"""Of the tests that come to a point, the most specific ones that take so long together are run; of a survivor, more."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="how long to go on")
    parser.add_argument("--list", action="store_true", help="only list what survived")
    parser.add_argument("--map", action="store_true", help="only find out which points these tests come to, or all")
    parser.add_argument("--again", action="store_true", help="run once more what survived")
    parser.add_argument("names", nargs="*", help="with --map: tests; else: what the names of points contain")
    given = parser.parse_args()
    if not given.list:
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="palaver-mutants-", ignore_cleanup_errors=True) as folder:
            points = write_copy(Path(folder))
            if given.map or not (KEPT / "map.json").exists():
                _map(Path(folder), points, given.names if given.map else ())
            if not given.map:
                _run(Path(folder), points, given)
    return 0 if given.map else _list_survivors(given.names)


def write_copy(copy: Path) -> dict[int, Point]:
    """Copy the tree; return its points by number."""
    shutil.copytree(ROOT, copy, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (copy / ".venv").symlink_to(sys.prefix)
    source, points = copy / "src/palaver", dict[int, Point]()
    for path in sorted((*source.glob("store/**/*.py"), *source.glob("web/**/*.py"))):
        module = Instrument(path.relative_to(source).as_posix(), len(points) + 1)
        path.write_text(module.source(path.read_text()))
        points |= dict(enumerate(module.points, len(points) + 1))
    for name, (before, after) in _DOORS.items():
        text = (source / name).read_text()
        assert text.count(before) == 1, name
        text = text.replace(before, after).replace("\nfrom ", "\nfrom tests.mutants import points as _points\nfrom ", 1)
        (source / name).write_text(text)
    return points


def _pytest(copy: Path, plan: Mapping[str, object], *args: str) -> None:
    (copy / "plan.json").write_text(json.dumps({"copy": str(copy), **plan}))
    (copy / "scratch").mkdir(exist_ok=True)
    given = {"PYTHONPATH": f"{copy}/src:{copy}", PLAN: f"{copy}/plan.json", "TMPDIR": f"{copy}/scratch"}
    command = (sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", "--assert=plain")
    # Statements are the same on PostgreSQL.
    subprocess.run((*command, "-k", "not postgres", *args), cwd=copy, env=os.environ | given, check=False)


def _read(name: str) -> str:
    return (KEPT / name).read_text() if (KEPT / name).exists() else ""


def _map(copy: Path, points: Mapping[int, Point], tests: Sequence[str]) -> None:
    reached: dict[str, Any] = json.loads(_read("map.json") or "{}") if tests else {}
    _pytest(copy, {}, "-n", "2", "--tb=line", *(tests or [f"tests/{name}" for name in _TESTS]))
    for file in copy.glob("hits-*"):
        for test, seconds, numbers in map(json.loads, file.read_text().splitlines()):
            reached[test] = [seconds, [points[number].name for number in numbers]]
    (KEPT / "map.json").write_text(json.dumps(reached))


def _run(copy: Path, points: Mapping[int, Point], given: argparse.Namespace) -> None:
    reached: dict[str, Any] = json.loads(_read("map.json"))
    tests, seconds = dict[str, list[str]](), Counter[str]()
    # Those that are quick and come to few points are about them.
    for test in sorted(reached, key=lambda test: reached[test][0] * len(reached[test][1])):
        for name in reached[test][1]:
            seconds[name] += reached[test][0]
            if seconds[name] < (_SECONDS_AGAIN if given.again else _MOST_SECONDS):
                tests.setdefault(name, []).append(test)
    results, accepted = _results(), _accepted()
    wanted = [
        (number, name, tests.get(name, []))
        for number, (name, _) in sorted(points.items(), key=lambda each: -each[1].risk)
        if (results[name] != "killed" if given.again and name in results else name not in results)
        and name not in accepted
        and (not given.names or any(word in name for word in given.names))
    ]
    plan = {
        "work": wanted,
        "seconds": {test: usual for test, (usual, _) in reached.items()},
        "until": time.time() + 60 * given.minutes,
        "results": str(KEPT / "results.jsonl"),
    }
    _pytest(copy, plan, "-s", *sorted({test.partition("::")[0] for test in reached}))


def _results() -> dict[str, str]:
    return {name: verdict for name, verdict, *_ in map(json.loads, _read("results.jsonl").splitlines())}


def _accepted() -> set[str]:
    return {line for line in ACCEPTED.read_text().splitlines() if line and not line.startswith((" ", "#"))}


def _list_survivors(words: Sequence[str]) -> int:
    results, accepted = _results(), _accepted()
    left = [name for name, verdict in results.items() if verdict != "killed" and name not in accepted]
    for name in left:
        if not words or any(word in name for word in words):
            sys.stdout.write(f"{results[name]}: {name}\n")
    counts = Counter(results.values())
    sys.stdout.write(
        f"{len(results)} run: {counts['killed']} killed, {counts['survived']} survived, {counts['unreached']} that no"
        f" test comes to; {len(left)} without a reason.\n"
    )
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
