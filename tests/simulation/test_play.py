"""Whole gateways under a virtual clock, from some of the seeds. `PALAVER_SEEDS` says how many."""

import hashlib
import os
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.simulation.play import perform

ROOT = Path(__file__).parents[2]
SEEDS = int(os.environ.get("PALAVER_SEEDS", "24"))
PARTS = 8
TORN = (8, 7)
"""Two seeds in whose runs writes are torn, to be tried first."""
performed = cache(perform)


@pytest.mark.parametrize("part", range(PARTS))
def test_nothing_is_lost_doubled_or_out_of_order(part: int) -> None:
    endings = [performed(seed) for seed in range(part, SEEDS, PARTS)]
    complaints = [ending.complaint for ending in endings if ending.problems]
    assert not complaints, "\n".join(complaints)
    assert sum(ending.said for ending in endings) > 0


def test_writes_are_torn_in_some_runs() -> None:
    seeds = (*TORN, *range(SEEDS))
    assert any("the last write is torn" in line for seed in seeds for line in performed(seed).trace.lines)


def test_the_same_seed_gives_the_same_run_in_every_process() -> None:
    here = performed(8).trace.digest
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--seed", "8"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": "1"},  # here it is another one
        capture_output=True,
        text=True,
        check=True,
    )
    assert there.stdout.splitlines()[0] == f"trace={hashlib.sha256(here.encode()).hexdigest()}"
    assert performed(7).trace.digest != here
