"""What a peer does: append a turn to its conversation, and load that. It runs in a process and environment of its own.

Each line of its input is `turn` or `load`; it prints the seconds that this took, and how many messages there are.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

__all__ = ["ARGUMENTS", "Peer", "call_id", "serve", "words"]

_WORDS = "a sentence of ordinary length that somebody might well have said. " * 7
ARGUMENTS = '{"query": "ordinary words", "limit": 5}'


def words(number: int) -> str:
    """About 500 bytes."""
    return f"{number} {_WORDS}"


def call_id(number: int) -> str:
    return f"call_{number}"


class Peer(Protocol):
    async def append_turn(self, number: int) -> None:
        """A question, a tool call, its result and an answer, durable as its documentation sets it up."""
        ...

    async def load(self) -> int:
        """Load the conversation as the agent gets it; return how many messages it has."""
        ...


def serve(open_peer: Callable[[Path], Awaitable[Peer]]) -> None:
    asyncio.run(_serve(open_peer))


async def _serve(open_peer: Callable[[Path], Awaitable[Peer]]) -> None:
    peer, turns = await open_peer(Path(sys.argv[1])), 0
    for line in sys.stdin:
        start, messages = time.perf_counter(), 0
        if line.strip() == "turn":
            turns += 1
            await peer.append_turn(turns)
        else:
            messages = await peer.load()
        print(json.dumps([time.perf_counter() - start, messages]), flush=True)
