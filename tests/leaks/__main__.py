"""`python -m tests.leaks --seeds 100`: walks from many seeds; each that leaks is reported with how to repeat it."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.leaks.walk import walk

__all__ = ["main"]


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.leaks")
    parser.add_argument("--seeds", type=int, default=20, help="how many walks")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--steps", type=int, default=150, help="how long a walk is")
    parser.add_argument("--verbose", action="store_true", help="tell everything that is said")
    asked = parser.parse_args(args)
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    began, failed = time.monotonic(), 0
    for seed in seeds:
        problem = _walk(seed, asked.steps, aloud=asked.verbose)
        if problem:
            failed += 1
            _tell(f"{problem}\n| python -m tests.leaks --seed {seed} --steps {asked.steps} --verbose")
    _tell(f"seeds={len(seeds)} steps={asked.steps} failed={failed} took={time.monotonic() - began:.1f}s")
    return int(failed > 0)


def _walk(seed: int, steps: int, *, aloud: bool) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(walk(seed, f"sqlite:///{folder}/p.db", Path(folder) / "files", steps, aloud=aloud))
        except Exception as error:  # noqa: BLE001 - any error is reported with its seed
            return f"seed={seed} {type(error).__name__}: {error}"
    return None


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
