"""`make crash`: gateways killed again and again, on each platform and engine, and what became of every message."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.crash.siege import Siege, town_of
from tests.crash.square import Forgetful, Square, fake_square
from tests.crash.square_matrix import matrix_square
from tests.crash.square_relay import relay_square
from tests.crash.squares import LOOPBACK
from tests.crash.trouble import Trouble, trouble_of
from tests.crash.verdict import Verdict, line
from tests.platforms.matrix.homeserver import shared
from tests.store.conftest import fresh_store
from tests.store.outages import Server

_WORKERS = {"sqlite": 1, "postgres": 3}


@dataclass(frozen=True, kw_only=True)
class _Usual:
    """How much a platform is put through, if nobody says otherwise, and how quick it is."""

    kills: int
    chats: int
    lease: float
    longest_life: float
    workers: int = 3
    """At most."""


_PLATFORMS = {
    "fake": _Usual(kills=1000, chats=300, lease=0.6, longest_life=0.8),
    "paced": _Usual(kills=300, chats=12, lease=1.0, longest_life=3.0, workers=2),
    "relay": _Usual(kills=300, chats=60, lease=3.0, longest_life=6.0),
    "telegram": _Usual(kills=500, chats=150, lease=0.8, longest_life=1.2),
    "discord": _Usual(kills=300, chats=100, lease=0.8, longest_life=2.0),
    "slack": _Usual(kills=300, chats=60, lease=0.8, longest_life=2.0),
    "whatsapp": _Usual(kills=500, chats=150, lease=0.8, longest_life=1.2),
    "signal": _Usual(kills=500, chats=150, lease=0.8, longest_life=1.2),
    "imessage": _Usual(kills=500, chats=150, lease=0.8, longest_life=1.2),
    "email": _Usual(kills=300, chats=50, lease=1.0, longest_life=3.0),
    "xmpp": _Usual(kills=200, chats=20, lease=1.0, longest_life=3.0),
    "matrix": _Usual(kills=300, chats=15, lease=1.0, longest_life=3.0),
}
_KILLS_PER_REPEAT, _REPEATS = 50, 5
"""The job that fires every minute does so once for that many kills, and at most so often."""
_OTHERS_FIRST = 1.2
"""Of one among several it takes longer, by so many seconds, until it has something to do."""


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _sorted(delays: Mapping[str, float]) -> str:
    return " ".join(f"{delay:.1f}" for delay in sorted(delays.values())) or "-"


@asynccontextmanager
async def _square(platform: str, folder: str, seed: int) -> AsyncGenerator[Square]:
    if platform in {"fake", "paced"}:
        async with fake_square(seed, is_paced=platform == "paced") as square:
            yield square
    elif platform == "relay":
        async with relay_square(seed) as square:
            yield square
    elif platform in LOOPBACK:
        async with LOOPBACK[platform]() as square:
            yield square
    else:
        with shared(Path(folder) / "synapse") as home:
            async with matrix_square(home) as square:
                yield square


async def _besiege(
    platform: str, engine: str, url: str, square: Square, wanted: argparse.Namespace, *, trouble: Trouble | None = None
) -> Verdict:
    usual, began = _PLATFORMS[platform], time.monotonic()
    workers = min(_WORKERS[engine], usual.workers)
    kills, chats = wanted.kills or usual.kills, wanted.chats or usual.chats

    def tell(text: str) -> None:
        _print(f"{platform} {engine}: {text}")

    repeats = min(kills // _KILLS_PER_REPEAT, _REPEATS) if platform == "fake" else None
    is_paced = platform == "paced"
    async with town_of(
        url,
        square,
        workers=workers,
        chats=chats,
        seed=wanted.seed,
        lease=usual.lease,
        job_repeats=repeats,
        is_paced=is_paced,
    ) as town:
        siege = Siege(
            town=town,
            kills=kills,
            messages=wanted.messages or (10 if is_paced else 5) * kills,
            longest_life=wanted.life or usual.longest_life + (_OTHERS_FIRST if workers > 1 and not is_paced else 0),
            trouble=trouble,
            tell=tell,
        )
        verdict = await siege.run()
        missed = set(siege.steps) - set(siege.reached)
        complaints = [*verdict.complaints, *town.errors]
    tell(f"{line(verdict)} given_up={verdict.given_up} seconds={time.monotonic() - began:.0f}")
    if is_paced:
        tell(f"killed in the commit (0), or so many ms after it: {_sorted(verdict.killed_leaving)}")
        tell(f"marked falsely, killed so many ms after the commit: {_sorted(verdict.marked_falsely)}")
        tell(f"computed again, killed so many ms after the agent had ended: {_sorted(verdict.computed_again)}")
    if isinstance(square, Forgetful):
        ends = [len(end) for end in verdict.cut_off]
        tell(f"cut_off={sum(ends)}, at most {max(ends, default=0)} on one of {len(square.connections)} connections")
    if work := town.background:
        tell(f"processes={len(work.processes)} unknown={work.unknown} jobs={len(work.jobs)} firings={work.firings}")
    if trouble:
        tell(
            f"frozen={siege.frozen} {' '.join(f'{what}={times},' for what, times in sorted(trouble.happened.items()))}"
        )
    if not is_paced:
        tell(f"died at {len(siege.reached)} of {len(siege.steps)} steps; not at: {', '.join(sorted(missed)) or '-'}")
    for complaint in complaints[:50]:
        tell(complaint)
    return verdict


async def _on_engine(platform: str, engine: str, wanted: argparse.Namespace) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="palaver-crash-", ignore_cleanup_errors=True) as folder:
        async with _square(platform, folder, wanted.seed) as square:
            if engine == "sqlite":
                return await _besiege(platform, engine, f"sqlite:///{folder}/palaver.db", square, wanted)
            server = await asyncio.to_thread(Server, f"{folder}/postgres")
            try:
                server.forget_durability()  # It is gateways that are killed.
                url = await fresh_store(server.url)
                if platform != "fake":
                    return await _besiege(platform, engine, url, square, wanted)
                async with trouble_of(server, url, wanted.seed) as trouble:
                    return await _besiege(platform, engine, url, square, wanted, trouble=trouble)
            finally:
                await asyncio.to_thread(server.close)


async def _run(wanted: argparse.Namespace) -> int:
    named = set(wanted.where)
    verdicts = [
        await _on_engine(platform, engine, wanted)
        for platform in [each for each in _PLATFORMS if each in named] or _PLATFORMS
        for engine in [each for each in _WORKERS if each in named] or _WORKERS
    ]
    _print(line(*verdicts))
    return int(any(verdict.complaints for verdict in verdicts))


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description="Kill gateways and count what was lost.")
    parser.add_argument("--kills", type=int, help="on each platform and engine; by default as many as it can stand")
    parser.add_argument("--messages", type=int, help="on each; by default five for each kill")
    parser.add_argument("--chats", type=int)
    parser.add_argument("--life", type=float, help="seconds that a gateway lives at most; more on a busy machine")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    known = [*_PLATFORMS, *_WORKERS]
    parser.add_argument("where", nargs="*", metavar="WHERE", help=f"{', '.join(known)}; by default everywhere")
    wanted = parser.parse_args()
    if unknown := set(wanted.where) - set(known):
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    _print(f"seed={wanted.seed}")
    return asyncio.run(_run(wanted))


if __name__ == "__main__":
    sys.exit(_main())
