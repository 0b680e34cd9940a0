"""`make mutants`: take filters of the store and checks of the web away, one at a time, and see whether a test fails.

The tests of a point are those that reach it, which a run of all of them has found out once. Both runs are in a copy of
the tree. Results add up in `build/mutants`, so that slices of a few minutes do; survivors that stand in `accepted.txt`
with a reason are not listed.
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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.mutants.plugin import PLAN
from tests.mutants.points import Instrument, Point

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "build/mutants"
ACCEPTED = Path(__file__).with_name("accepted.txt")
_FOLDERS = ("tests/store", "tests/web", "tests/engine", "tests/commands", "tests/leaks", "tests/relay", "tests/platforms/slack")
_NOT_COPIED = (".git", ".venv*", "build", "dist", "__pycache__", ".hypothesis", ".pytest_cache", ".ruff_cache", "*.mp4")
_DOORS = {
    "db/sqlite.py": ("sql, values = statement\n", "sql, values = _probe.statement(statement)\n"),
    "db/postgres.py": ("sql, values = statement\n", "sql, values = _probe.statement(statement)\n"),
    "db/transaction.py": (
        "        except StopIteration as finished:\n            self.statement, self.result",
        "            self.statement = _probe.statement(self.statement)\n"
        "        except StopIteration as finished:\n            self.statement, self.result",
    ),
}
"""Where statements go to the database."""
_LONGEST_SECONDS, _MOST_TESTS = 6.0, 150
"""Tests that take longer tell little more, and of so many that reach a point, others do not either."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=20, help="how long to go on (20)")
    parser.add_argument("--jobs", type=int, default=1, help="how many tests to run at once (1)")
    parser.add_argument("--list", action="store_true", help="list what survived so far, and run nothing")
    parser.add_argument("--map", action="store_true", help="find out again what the given tests reach, or all")
    parser.add_argument("--again", action="store_true", help="run those again that survived")
    parser.add_argument("paths", nargs="*", help="with --map: tests; else: words that names of points contain")
    given = parser.parse_args()
    if given.list:
        return _list_survivors(given.paths)
    KEPT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="palaver-mutants-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder)
        points = _write_copy(copy)
        if given.map or not (KEPT / "map.json").exists():
            _map(copy, points, given.paths if given.map else (), given.jobs)
        if not given.map:
            _run(copy, points, given)
    return _list_survivors(given.paths)


# The copy


def _write_copy(copy: Path) -> Mapping[int, Point]:
    shutil.copytree(ROOT, copy, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
    (copy / ".venv").symlink_to(sys.prefix)
    source, points = copy / "src/palaver", dict[int, Point]()
    for path in sorted((*source.glob("store/**/*.py"), *source.glob("web/**/*.py"))):
        found = Instrument(path.relative_to(source.parent).as_posix(), len(points) + 1)
        path.write_text(found.source(path.read_text()))
        points |= dict(enumerate(found.points, len(points) + 1))
    for name, (before, after) in _DOORS.items():
        text = (source / name).read_text()
        assert text.count(before) == 1, name
        text = text.replace(before, after).replace("\nimport ", "\nfrom tests.mutants import points as _probe\nimport ", 1)
        (source / name).write_text(text)
    return points


def _pytest(copy: Path, plan: Mapping[str, Any], *args: str) -> None:
    (copy / "plan.json").write_text(json.dumps({"copy": str(copy), **plan}))
    path = os.pathsep.join((str(copy / "src"), str(copy)))
    scratch = copy / "scratch"
    scratch.mkdir(exist_ok=True)
    env = os.environ | {"PYTHONPATH": path, PLAN: str(copy / "plan.json"), "TMPDIR": str(scratch)}
    command = (sys.executable, "-m", "pytest", "-p", "tests.mutants.plugin", "-p", "no:cacheprovider", "--assert=plain")
    subprocess.run((*command, "-k", "not postgres", *args), cwd=copy, env=env, check=False)  # one database is enough


# Which tests reach which points


def _map(copy: Path, points: Mapping[int, Point], paths: Sequence[str], jobs: int) -> None:
    _pytest(copy, {}, "-n", str(jobs), "--tb=line", *(paths or _FOLDERS))
    kept = _read_map() if paths else {}
    for file in copy.glob("hits-*"):
        for test, seconds, numbers in map(json.loads, file.read_text().splitlines()):
            kept[test] = [seconds, [points[number].name for number in numbers]]
    (KEPT / "map.json").write_text(json.dumps(kept))
    sys.stdout.write(f"{len(kept)} tests reach {len({name for _, names in kept.values() for name in names})} points.\n")


def _read_map() -> dict[str, Any]:
    path = KEPT / "map.json"
    return json.loads(path.read_text()) if path.exists() else {}


# Points and their results


def _run(copy: Path, points: Mapping[int, Point], given: argparse.Namespace) -> None:
    reached, results = _read_map(), _read_results()
    tests: dict[str, list[str]] = {}
    # First those that are quick and reach little: they are about it.
    for test in sorted(reached, key=lambda test: reached[test][0] * len(reached[test][1])):
        for name in reached[test][1] if reached[test][0] < _LONGEST_SECONDS else ():
            tests.setdefault(name, []).append(test)
    wanted = sorted((-point.risk, number) for number, point in points.items() if _is_wanted(point, results, given))
    work = [(number, tests.get(points[number].name, [])[:_MOST_TESTS]) for _, number in wanted]
    plan = {
        "work": work,
        "names": {number: point.name for number, point in points.items()},
        "seconds": {test: seconds for test, (seconds, _) in reached.items()},
        "until": time.time() + 60 * given.minutes,
        "jobs": given.jobs,
        "results": str(KEPT / "results.jsonl"),
    }
    _pytest(copy, plan, "-s", "-p", "no:randomly", *sorted({test.partition("::")[0] for test in reached}))


def _is_wanted(point: Point, results: Mapping[str, Sequence[Any]], given: argparse.Namespace) -> bool:
    verdict = results[point.name][1] if point.name in results else ""
    is_open = verdict in {"survived", "unreached"} if given.again else not verdict
    return is_open and (not given.paths or any(word in point.name for word in given.paths))


def _read_results() -> dict[str, Sequence[Any]]:
    path = KEPT / "results.jsonl"
    return {each[0]: each for each in map(json.loads, path.read_text().splitlines())} if path.exists() else {}


def _accepted() -> Iterator[tuple[str, str]]:
    """Yield names and reasons: a name is on a line, its reason indented on the next ones."""
    name = ""
    for line in ACCEPTED.read_text().splitlines():
        if line.startswith("    "):
            yield name, line.strip()
        elif line and not line.startswith("#"):
            name = line


def _list_survivors(words: Sequence[str]) -> int:
    results, reasons = _read_results(), dict(_accepted())
    left = [each for each in results.values() if each[1] != "killed" and each[0] not in reasons]
    for name, verdict, _, count, _ in left:
        if not words or any(word in name for word in words):
            sys.stdout.write(f"{verdict} ({count} tests)  {name}\n")
    counts = Counter(each[1] for each in results.values())
    sys.stdout.write(
        f"{len(results)} run: {counts['killed']} killed, {counts['survived']} survived, {counts['unreached']} reached by"
        f" no test; {len(left)} of them without a reason.\n"
    )
    return bool(left)


if __name__ == "__main__":
    sys.exit(main())
