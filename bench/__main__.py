"""`python -m bench`: every figure with its limit; exit code 1 when one is not kept."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import commands, domain
from bench.measure import Figure

_UNITS = ((1e-6, "ns", 1e9), (1e-3, "µs", 1e6), (1.0, "ms", 1e3))


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for below, unit, factor in _UNITS:
        if seconds < below:
            return f"{seconds * factor:.1f} {unit}"
    return f"{seconds:.2f} s"


def _line(figure: Figure) -> str:
    ratio = f"{figure.ratio:.1f} × {figure.bare_name} ({_time(figure.bare_seconds)})" if figure.ratio else ""
    verdict = "ok" if figure.kept else "OVER"
    limit = f"≤ {_time(figure.limit_seconds)}" if figure.limit_seconds else ""
    return f"{figure.name:<20} {_time(figure.seconds):>10} {limit:>12} {verdict:<5} {ratio} {figure.note}".rstrip()


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    options = parser.parse_args(args)
    found: list[Figure] = []
    for figures in (domain.figures, commands.figures):
        for figure in figures():
            found.append(figure)
            print(_line(figure), flush=True)
    if options.json:
        options.json.write_text(json.dumps({figure.name: figure.to_json() for figure in found}, indent=2) + "\n")
    return 0 if all(figure.kept for figure in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
