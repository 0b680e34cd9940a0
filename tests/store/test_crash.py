"""A writer killed at any instant loses nothing that was acknowledged and leaves nothing half done.

Forty kills in a normal run, `PALAVER_KILLS=1000` for the thousand.
"""

import asyncio
import os
import random
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from palaver.db.transaction import Row, Statements, transaction
from palaver.store.opening import open_store
from palaver.store.queue import turns
from palaver.store.status.invariants import violations
from palaver.store.store import Store
from tests.store.conftest import fresh_database
from tests.store.crash_child import ANSWERS, REPLIES, TOKENS, Order, Victims
from tests.store.world import LEASE

DRIVER: Any = asyncpg  # it has no types of its own
KILLS = int(os.environ.get("PALAVER_KILLS", "40"))
KILLS_PER_FILE = 20
"""Enough to go on with what many crashes have left, few enough that looking at all of it stays quick."""
LONGEST = 0.08


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with closing(Victims()) as started:
        yield started


@transaction
def everything() -> Statements[dict[str, list[Row]]]:
    return {
        "turns": (yield "SELECT no, state, session_no FROM turns ORDER BY no", ()),
        "inbox": (yield "SELECT no, state, turn_no, message_id FROM inbox ORDER BY no", ()),
        "entries": (yield "SELECT id / 16777216, id % 16777216, turn_no, role FROM entries ORDER BY id", ()),
        "outbox": (yield "SELECT id, state FROM outbox ORDER BY id", ()),
        "sessions": (yield "SELECT no, next_seq, turns, input_tokens FROM sessions ORDER BY no", ()),
    }


def check_nothing_is_half(found: dict[str, list[Row]]) -> None:
    """A settled turn has everything that belongs to it, an open one nothing of what comes with its end."""
    words: dict[int, list[str]] = defaultdict(list)
    for _, _, turn, role in found["entries"]:
        words[turn].append(role)
    replies: dict[int, list[int]] = defaultdict(list)
    for number, _ in found["outbox"]:
        replies[number // 1024].append(number % 1024)
    messages: dict[int, int] = defaultdict(int)
    for _, state, turn, _ in found["inbox"]:
        assert (state == "in-turn") == (turn is not None)
        messages[turn] += 1
    done: dict[int, int] = defaultdict(int)
    for number, state, session in found["turns"]:
        assert messages[number] == 1
        assert words[number][0] == "user"
        answers = len(words[number]) - 1
        done[session] += state == "done"
        assert answers in ({0, 1} if state == "running" else {ANSWERS, ANSWERS + 1})
        assert replies[number] == ([] if state == "running" else list(range(REPLIES)))
    seqs: dict[int, list[int]] = defaultdict(list)
    for session, seq, _, _ in found["entries"]:
        seqs[session].append(seq)
    for session, next_seq, settled, tokens in found["sessions"]:
        assert seqs[session] == list(range(1, next_seq))
        assert (settled, tokens) == (done[session], TOKENS * done[session])


def check_acknowledged(said: list[Row], found: dict[str, list[Row]]) -> None:
    """Each line of the writer is true."""
    states = {number: state for number, state, _ in found["turns"]}
    in_turn = {number: turn for number, _, turn, _ in found["inbox"]}
    names = {number: name for number, _, _, name in found["inbox"]}
    entries = {(turn, seq) for _, seq, turn, _ in found["entries"]}
    sends = dict(found["outbox"])
    for what, *facts in said:
        match what, *facts:
            case "accepted", number, str(name):
                assert names[number] == name.replace(" ", "%20")
            case "begun", turn, [number]:
                assert in_turn[number] == turn
            case "appended", turn, seq:
                assert (turn, seq) in entries
            case "settled", turn:
                assert states[turn] == "done"
            case "claimed", send:
                assert sends[send] in {"sending", "delivered"}
            case "delivered", send:
                assert sends[send] == "delivered"
            case _:
                assert what in {"opened", "reclaimed"}


async def check_store(url: str, said: list[Row], order: Order) -> int:
    """Look at everything, then take over a turn that was left behind; the other ones are left to the next writer."""
    async with await open_store(url) as store:
        found = await store.read(everything())
        check_nothing_is_half(found)
        check_acknowledged(said, found)
        assert await store.read(violations()) == []
        await take_over(store, {number for number, state, _ in found["turns"] if state == "running"}, order)
        return len(found["turns"])


async def take_over(store: Store, orphans: set[int], order: Order) -> None:
    later = Order(order.url, "rescuer", order.exclusive, order.round + 1).now
    taken = await store.transact(turns.reclaim("rescuer", later, LEASE, limit=1))
    assert {turn.number for turn in taken} <= orphans
    assert len(taken) == min(len(orphans), 1)


def check_file(path: Path) -> None:
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []


def kill_at_random(victims: Victims, order: Order, chance: random.Random) -> list[Row]:
    """One in four while the store is being opened, the others while it is written to."""
    once_open = chance.random() > 0.25
    return victims.kill(victims.start(order), chance.uniform(0, LONGEST), once_open=once_open)


def test_killed_at_any_instant_with_a_sqlite_file(tmp_path: Path, victims: Victims) -> None:
    chance, written = random.Random(), 0  # noqa: S311
    said: list[Row] = []
    for kill in range(KILLS):
        path = tmp_path / f"{kill // KILLS_PER_FILE}.db"
        said = [] if kill % KILLS_PER_FILE == 0 else said
        order = Order(url=str(path), worker=f"w{kill}", exclusive=True, round=2 * kill)
        said += kill_at_random(victims, order, chance)
        if path.exists():
            check_file(path)
        turns_now = asyncio.run(check_store(str(path), said, order))
        written += turns_now if (kill + 1) % KILLS_PER_FILE == 0 else 0
    assert written or KILLS < KILLS_PER_FILE


POSTGRES_KILLS = max(6, KILLS // 20)


async def until_alone(url: str) -> None:
    """The server finishes what a killed client had sent: wait until nothing of it is left."""
    connection = await DRIVER.connect(url)
    try:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        while await connection.fetchval(others):  # noqa: ASYNC110 - it is the server that changes
            await asyncio.sleep(0.01)
    finally:
        await connection.close()


async def test_clients_of_a_postgres_server_killed_at_any_instant(postgres_server: str, victims: Victims) -> None:
    chance, url = random.Random(), await fresh_database(postgres_server)  # noqa: S311
    said: list[Row] = []
    for kill in range(POSTGRES_KILLS):
        order = Order(url=url, worker=f"w{kill}", exclusive=False, round=2 * kill)
        said += await asyncio.to_thread(kill_at_random, victims, order, chance)
        await until_alone(url)
        await check_store(url, said, order)
