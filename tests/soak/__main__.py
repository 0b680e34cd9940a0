"""`python -m tests.soak --minutes 60`: everything at once for an hour, on SQLite and on PostgreSQL at the same time."""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

from tests.soak.site import site
from tests.soak.soak import TROUBLES, Soak
from tests.soak.verdict import Verdict, conclude
from tests.store.conftest import fresh_store
from tests.store.outages import Server

ENGINES = ("sqlite", "postgres")
__all__ = ["main", "parse", "run"]


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _soak(engine: str, folder: Path, wanted: argparse.Namespace) -> Verdict:
    troubles = frozenset(TROUBLES) - set(wanted.without)
    async with AsyncExitStack() as stack:
        url = None
        if engine == "postgres":
            server = await asyncio.to_thread(Server, f"{folder}/server")
            stack.push_async_callback(asyncio.to_thread, server.close)
            url = await fresh_store(server.url)
        made = await stack.enter_async_context(site(engine, folder / engine, wanted.seed, server=url))
        soak = Soak(site=made, seconds=60 * wanted.minutes, troubles=troubles)
        await soak.run()
        return await conclude(soak)


async def run(wanted: argparse.Namespace) -> list[Verdict]:
    """All engines at the same time."""
    with tempfile.TemporaryDirectory(prefix="palaver-soak-", ignore_cleanup_errors=True) as temporary:
        folder = wanted.folder or Path(temporary)
        return await asyncio.gather(*(_soak(engine, folder, wanted) for engine in wanted.where or ENGINES))


def parse(args: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="by the clock on the wall; %(default)g if left out")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--without", action="append", default=[], choices=TROUBLES, help="leave out a kind of trouble")
    parser.add_argument("--folder", type=Path, help="an empty one, to keep the logs of the gateways in")
    parser.add_argument("where", nargs="*", choices=[*ENGINES, []], metavar="WHERE", help="sqlite, postgres; or both")
    return parser.parse_args(args)


def main(args: list[str]) -> int:
    wanted = parse(args)
    _print(f"seed={wanted.seed} minutes={wanted.minutes:g} without={','.join(wanted.without) or '-'}")
    verdicts = asyncio.run(run(wanted))
    for verdict in verdicts:
        for line in (verdict.summary, *verdict.details, *verdict.complaints[:50]):
            _print(line)
    return int(any(verdict.complaints for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
