"""`python -m tests.simulation --seeds 1000`: plays many seeds; each that fails is reported with how to repeat it."""

import argparse
import hashlib
import sys
import time

from tests.simulation.play import MAX_CLOCK_SKEW_SECONDS, perform

__all__ = ["main"]


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation")
    parser.add_argument("--seeds", type=int, default=200, help="how many to play")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--verbose", action="store_true", help="tell everything that happens")
    parser.add_argument(
        "--skew", type=float, default=MAX_CLOCK_SKEW_SECONDS, help="seconds by which clocks are off, at most"
    )
    asked = parser.parse_args(args)
    seeds = [asked.seed] if asked.seed is not None else range(asked.first, asked.first + asked.seeds)
    began, failed, said, traces = time.monotonic(), 0, 0, hashlib.sha256()
    kills, failures, seconds = 0, 0, 0.0
    for seed in seeds:
        ending = perform(seed, aloud=asked.verbose, skew=asked.skew)
        said, kills, seconds = said + ending.said, kills + ending.kills, seconds + ending.seconds
        failures += ending.power_failures
        if ending.problems:
            failed += 1
            _tell(ending.complaint)
        traces.update(ending.trace.digest.encode())
    _tell(f"trace={traces.hexdigest()}")
    took = time.monotonic() - began
    figures = f"messages={said} kills={kills} power_failures={failures} virtual={seconds:.0f}s took={took:.1f}s"
    _tell(f"seeds={len(seeds)} failed={failed} {figures}")
    return int(failed > 0)


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
