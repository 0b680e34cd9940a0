"""`make crash`: gateways killed again and again, on SQLite and on PostgreSQL, and what became of every message."""

import argparse
import asyncio
import sys
import tempfile
import time

from tests.crash.siege import Siege, town_of
from tests.crash.verdict import Verdict, line
from tests.stores.conftest import fresh_store
from tests.stores.outages import Server

_WORKERS = {"sqlite": 1, "postgres": 3}
_LONGEST_LIFE = {"sqlite": 0.8, "postgres": 2.0}
"""Of one among several it takes longer until it has something to do."""


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def _besiege(engine: str, url: str, wanted: argparse.Namespace) -> Verdict:
    workers, began = _WORKERS[engine], time.monotonic()

    def tell(text: str) -> None:
        _print(f"{engine}: {text}")

    async with town_of(url, workers=workers, chats=wanted.chats, seed=wanted.seed, lease=0.6) as town:
        siege = Siege(
            town=town, kills=wanted.kills, messages=wanted.messages, longest_life=_LONGEST_LIFE[engine], tell=tell
        )
        verdict = await siege.run()
        missed = set(siege.steps) - set(siege.reached)
        complaints = [*verdict.complaints, *town.errors]
    tell(f"{line(verdict)} given_up={verdict.given_up} seconds={time.monotonic() - began:.0f}")
    tell(f"died at {len(siege.reached)} of {len(siege.steps)} steps; not at: {', '.join(sorted(missed)) or '-'}")
    for complaint in complaints[:50]:
        tell(complaint)
    return verdict


async def _on_postgres(folder: str, wanted: argparse.Namespace) -> Verdict:
    server = await asyncio.to_thread(Server, folder)
    try:
        server.forget_durability()  # It is gateways that are killed.
        return await _besiege("postgres", await fresh_store(server.url), wanted)
    finally:
        await asyncio.to_thread(server.close)


async def _run(wanted: argparse.Namespace) -> int:
    verdicts: list[Verdict] = []
    for engine in wanted.engines:
        with tempfile.TemporaryDirectory(prefix="palaver-crash-", ignore_cleanup_errors=True) as folder:
            if engine == "sqlite":
                verdicts.append(await _besiege(engine, f"sqlite:///{folder}/palaver.db", wanted))
            else:
                verdicts.append(await _on_postgres(folder, wanted))
    _print(line(*verdicts))
    return int(any(verdict.complaints for verdict in verdicts))


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Kill gateways and count what was lost.")
    parser.add_argument("--kills", type=int, default=1000, help="per engine")
    parser.add_argument("--messages", type=int, default=5000, help="per engine")
    parser.add_argument("--chats", type=int, default=300)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("engines", nargs="*", default=list(_WORKERS), metavar="ENGINE", help="sqlite, postgres")
    wanted = parser.parse_args()
    _print(f"seed={wanted.seed}")
    return asyncio.run(_run(wanted))


if __name__ == "__main__":
    sys.exit(_main())
