"""A process that writes turns as fast as it can, to be killed at any instant.

Started once, it forks a writer for every line it reads, so that a writer is there at once. What a writer was told is
durable it says on the common output, one line each, only after `transact` has returned.
"""

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from time import monotonic

from palaver.db.transaction import Row
from palaver.model.turn import Inbound, Outbound, OutboxState, Turn, Usage
from palaver.store.opening import open_store
from palaver.store.queue import inbox, outbox, turns
from palaver.store.store import Store
from tests.store.world import LEASE, NEVER, NOON, answer, begin_sends, dm, key_of, only_begun

ROOT = Path(__file__).parents[2]
USERS = ("1", "2", "3")
WRITERS = 5
TURNS = 400
"""As many as a writer makes that nobody kills."""
ANSWERS = 3
"""Entries that are written with the end of a turn."""
REPLIES = 2
TOKENS = 10


@dataclass(frozen=True)
class Order:
    url: str
    worker: str
    exclusive: bool
    round: int

    @property
    def now(self) -> datetime:
        """Each round is so much later that all leases of the one before have run out."""
        return NOON + self.round * 2 * LEASE


class Writer:
    def __init__(self, store: Store, order: Order) -> None:
        self.store = store
        self.worker = order.worker
        self.now = order.now

    async def work(self) -> None:
        for turn in await self.store.transact(turns.reclaim(self.worker, self.now, LEASE)):
            acknowledge("reclaimed", turn.number)
            await self.settle(turn)
        await asyncio.gather(*(self.write(number) for number in range(WRITERS)), self.send())

    async def write(self, task: int) -> None:
        for number in range(TURNS):
            user = USERS[(task + number) % len(USERS)]
            await self.accept(user, f"{self.worker} {task} {number}")
            begun = only_begun(
                await self.store.transact(turns.begin(key_of(dm(user)), self.worker, self.now, LEASE, NEVER))
            )
            if begun:
                acknowledge("begun", begun.turn.number, [each.number for each in begun.messages])
                await self.append(begun.turn)
                await self.settle(begun.turn)

    async def accept(self, user: str, name: str) -> None:
        inbound = Inbound(source=dm(user, message_id=name), text=name, at=self.now)
        number = await self.store.transact(inbox.accept(inbound, key_of(dm(user)), self.now))
        acknowledge("accepted", number, name)

    async def append(self, turn: Turn) -> None:
        seq = await self.store.transact(turns.append_to_turn(turn, [answer("a step " + "." * 300)]))
        acknowledge("appended", turn.number, seq)

    async def settle(self, turn: Turn) -> None:
        entries = [answer(f"answer {number} " + "." * 300) for number in range(ANSWERS)]
        replies = [Outbound(platform="telegram", chat_id="7", text=f"reply {number}") for number in range(REPLIES)]
        usage = Usage(input_tokens=TOKENS)
        await self.store.transact(turns.settle(turn, entries, replies, self.now, usage=usage))
        acknowledge("settled", turn.number)

    async def send(self) -> None:
        for _ in range(TURNS):
            for delivery in await self.store.transact(begin_sends(self.worker, self.now, limit=2)):
                acknowledge("claimed", delivery.number)
                done = outbox.settle_send(delivery, self.worker, OutboxState.DELIVERED, receipt="p1")
                await self.store.transact(done)
                acknowledge("delivered", delivery.number)


def acknowledge(what: str, *facts: object) -> None:
    os.write(1, (json.dumps([what, *facts]) + "\n").encode())


async def write(order: Order) -> None:
    async with await open_store(order.url, exclusive=order.exclusive) as store:
        acknowledge("opened")
        await Writer(store, order).work()


def serve() -> None:
    """Fork a writer for each order, tell its pid, and when it is dead."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(write(Order(**json.loads(line))))
            os._exit(0)
        acknowledge("started", pid)
        _, status = os.waitpid(pid, 0)
        acknowledge("ended", os.waitstatus_to_exitcode(status))


# The other side, in the test


class Victims:
    """The process that forks writers, and what they have said."""

    def __init__(self) -> None:
        self._said, ends = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.crash_child"], cwd=ROOT, stdin=subprocess.PIPE, stdout=ends
        )
        os.close(ends)
        assert self._process.stdin
        self._orders = self._process.stdin
        self._rest = b""
        self._early: list[Row] = []

    def start(self, order: Order) -> int:
        self._orders.write((json.dumps(asdict(order)) + "\n").encode())
        self._orders.flush()
        said = self._wait_for("started", [])
        self._early = [line for line in said if line[0] != "started"]
        return next(line[1] for line in said if line[0] == "started")

    def wait_until_open(self) -> None:
        self._early = self._wait_for("opened", self._early)

    def kill(self, pid: int, after: float, *, once_open: bool) -> list[Row]:
        """Kill it so long after its start, or after it has opened the store; gives what it has said."""
        said = self._wait_for("opened", self._early) if once_open else self._early
        end = monotonic() + after
        while (left := end - monotonic()) > 0 and not is_over(said):
            said += self._lines(left)
        if not is_over(said):
            os.kill(pid, signal.SIGKILL)
            said = self._wait_for("ended", said)
        assert said.pop() in {("ended", -signal.SIGKILL), ("ended", 0)}
        return said

    def _wait_for(self, what: str, said: list[Row]) -> list[Row]:
        while what not in {line[0] for line in said}:
            said += self._lines(60)
            assert self._process.poll() is None, "the forking process is gone"
        return said

    def _lines(self, patience: float) -> list[Row]:
        if select.select([self._said], [], [], patience)[0]:
            *lines, self._rest = (self._rest + os.read(self._said, 1 << 20)).split(b"\n")
            return [tuple(json.loads(line)) for line in lines]
        return []

    def close(self) -> None:
        self._orders.close()
        self._process.wait()
        os.close(self._said)


def is_over(said: list[Row]) -> bool:
    return bool(said) and said[-1][0] == "ended"


if __name__ == "__main__":
    serve()
