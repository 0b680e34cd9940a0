"""Measure: `python -m bench [--json FILE] [NAME…]`; every figure with its limit, exit code 1 when one is not kept."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path

from bench import (
    commands,
    domain,
    encryption,
    engine,
    engines,
    jobs,
    million,
    operating,
    postgres,
    processes,
    reads,
    recall,
    searches,
    soak,
    sqlite,
    turns,
    workers,
)
from bench.lines import line
from bench.measure import Figure, Verdict
from bench.workshop import Workshop, say

Measure = Callable[[Workshop], Iterable[Figure]]


def _on(engine: Callable[[Workshop], engines.Engine], measure: Callable[..., Iterable[Figure]]) -> Measure:
    return lambda workshop: measure(workshop, engine(workshop))


MEASURES: Mapping[str, Measure] = {
    "domain.key": lambda _: domain.key(),
    "domain.view_200": lambda _: domain.view_200(),
    "domain.section": lambda _: domain.section(),
    "cli.help": lambda _: commands.help_page(),
    "store.turn": _on(engines.sqlite, turns.turn),
    "store.sending": _on(engines.sqlite, turns.sending),
    "store.turn_io": sqlite.turn_io,
    "store.turns_64": _on(engines.sqlite, turns.turns_64),
    "store.encrypted_turn": encryption.encrypted_turn,
    "store.encrypted_search": encryption.encrypted_search,
    "store.turns_64_slow": sqlite.slow_disk,
    "store.load_200": _on(engines.sqlite, reads.load_200),
    "store.route_growth": _on(engines.sqlite, reads.route_growth),
    "store.list_100k": _on(engines.sqlite, reads.list_100k),
    "store.open_100k": sqlite.open_100k,
    "store.search_1m": _on(engines.sqlite, searches.search_1m),
    "store.recall": _on(engines.sqlite, recall.recall),
    "store.backup": operating.backup,
    "engine.messages": engine.messages,
    "engine.growth": engine.growth,
    "engine.idle_memory": engine.idle_memory,
    "engine.workers": workers.workers,
    "jobs.due_100k": _on(engines.sqlite, jobs.due_100k),
    "processes.output": processes.output,
    "processes.start_200": processes.two_hundred,
    # What providers' libraries take of memory and time is no part of the other figures.
    "agent.overhead": lambda _: import_module("bench.agent").overhead(),
    "adapter.import": lambda _: import_module("bench.adapters").imports(),
    "adapter.message": lambda _: import_module("bench.adapters").message(),
    "web.push": lambda workshop: import_module("bench.web").push(workshop),
    "web.page_100k": lambda workshop: import_module("bench.pages").page_100k(workshop),
    "web.first_token": lambda workshop: import_module("bench.chat").first_token(workshop),
    "web.open_10k": lambda workshop: import_module("bench.chat").open_10k(workshop),
    "pg.messages": postgres.messages,
    "pg.turn": _on(engines.postgres, turns.turn),
    "pg.sending": _on(engines.postgres, turns.sending),
    "pg.turns_64": _on(engines.postgres, turns.turns_64),
    "pg.load_200": _on(engines.postgres, reads.load_200),
    "pg.route_growth": _on(engines.postgres, reads.route_growth),
    "pg.list_100k": _on(engines.postgres, reads.list_100k),
    "pg.due_100k": _on(engines.postgres, jobs.due_100k),
    "pg.at_18": lambda workshop: import_module("bench.traffic").paced(workshop),
    "pg.callers_100": lambda workshop: import_module("bench.traffic").crowd(workshop),
    "pg.migrate": operating.migrate,
    "pg.search_200k": _on(engines.postgres, searches.search_200k),
    "pg.recall": _on(engines.postgres, recall.recall),
}
LONG: Mapping[str, Measure] = {"engine.soak": soak.soak, "pg.million": million.million}
"""Taken only where it is named."""


def _chosen(names: Sequence[str], parser: argparse.ArgumentParser) -> Mapping[str, Measure]:
    """All but the long ones, or those that are named: whole names, or the word before the dot."""
    for name in names:
        if name not in LONG and not any(name in {known, known.partition(".")[0]} for known in MEASURES):
            parser.error(f"there is no {name}; there are: {', '.join((*MEASURES, *LONG))}")
    short = {known for known in MEASURES if not names or {known, known.partition(".")[0]} & set(names)}
    return {name: measure for name, measure in {**MEASURES, **LONG}.items() if name in short | set(names)}


def main(args: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there too")
    parser.add_argument("names", metavar="NAME", nargs="*", help="only these: store.turn, or all of store")
    options = parser.parse_args(args)
    found: list[Figure] = []
    with Workshop() as workshop:
        for name, measure in _chosen(options.names, parser).items():
            start = time.perf_counter()
            for figure in measure(workshop):
                found.append(figure)
                print(line(figure), flush=True)
            say(f"{name} took {time.perf_counter() - start:.0f} s")
    if options.json:
        options.json.write_text(json.dumps({figure.name: figure.to_json() for figure in found}, indent=2) + "\n")
    return _summary(found)


def _summary(found: Sequence[Figure]) -> int:
    missed, untaken = (
        [figure.name for figure in found if figure.verdict is verdict]
        for verdict in (Verdict.MISSED, Verdict.NOT_TAKEN)
    )
    if missed:
        print(f"not kept: {', '.join(missed)}")
    if untaken:
        print(f"not taken: {', '.join(untaken)}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
