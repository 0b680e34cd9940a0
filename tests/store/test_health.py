"""What doctor looks at besides what must always hold: what should have happened by now, who serves what, the clock."""

import os
import socket
import subprocess
from datetime import timedelta

import pytest

from palaver.store import accounts
from palaver.store.damage.health_check import HealthCheck
from palaver.store.damage.invariants import find_broken
from palaver.store.records import micros
from palaver.store.status.health import check_store
from palaver.store.status.invariants import DEADLINES
from palaver.store.store import Store
from tests.store.test_invariants import busy_world, run
from tests.store.world import LEASE, NOON, World, dm

WAITS = "while a gateway runs, no message waits longer than ten minutes unless a turn is open before it"
TURN = "while a gateway runs, no turn is without a live worker for more than five minutes"
CLAIM = "while a gateway runs, no send stays claimed for more than five minutes by a dead worker"
OVERDUE = "while a gateway serves an account, the first send of each chat is at most ten minutes overdue"
JOB = "while a gateway runs, no job is more than ten minutes overdue"
PROCESS = "while a gateway runs, no background process is without one for more than five minutes"
END = "while a gateway runs, the end of every background process is reported within five minutes"
UNCLEAR = "no send is unclear"


async def late(world: World) -> dict[str, tuple[str, ...]]:
    overdue = await world.store.read(find_broken(DEADLINES, micros(world.now)))
    return {found.invariant.sentence: found.examples for found in overdue}


async def a_gateway_works(world: World, account: str | None = None) -> None:
    await world.store.transact(accounts.acquire("telegram", account, "w2", world.now, LEASE))


_JOB = (
    "INSERT INTO schedules (owner, name, rule, prompt, target, origin, created, next_due)"
    " VALUES ('telegram:7', 'x', 'every 2h', 'x', 'origin', '{}', 0, 1)"
)
_PROCESS = (
    "INSERT INTO processes (id, session_no, place, origin, backend, command, folder, terminal, home, host, worker,"
    " lease_until, started, exit_notice, exited, exit_code, ended)"
    " VALUES ('p', 1, 'p', /*pg '' --*/ x''\n, 'local', 'x', '/', 0, 'h', 'h', 'w', 0, 0, 'due',"
    " {ended}, {ended}, {ended})"
)
DAMAGES = {
    PROCESS: (_PROCESS.format(ended="NULL"), "p1"),
    END: (_PROCESS.format(ended=1), "p1"),
    WAITS: ("SELECT 1", "in:3"),
    TURN: ("UPDATE turns SET state = 'running', ended = NULL WHERE no = 1", "turn:1"),
    CLAIM: ("UPDATE outbox SET state = 'claimed', worker = 'w', claim_until = 1 WHERE id = 2048", "out:2048"),
    OVERDUE: ("SELECT 1", "out:1024"),
    JOB: (_JOB, "job:1"),
    UNCLEAR: ("UPDATE outbox SET state = 'unclear' WHERE id = 2048", "out:2048"),
}


@pytest.mark.parametrize("sentence", [deadline.sentence for deadline in DEADLINES])
async def test_what_is_late_is_found_while_a_gateway_works(store: Store, sentence: str) -> None:
    world = await busy_world(store)
    damage, example = DAMAGES[sentence]
    await store.transact(run(damage))
    world.later(minutes=11)
    without_gateway = await late(world)
    await a_gateway_works(world)
    assert example in (await late(world))[sentence]
    assert (sentence in without_gateway) == (sentence == UNCLEAR)


async def test_what_is_in_time_is_not_late(store: Store) -> None:
    world = await busy_world(store)
    await a_gateway_works(world)
    world.later(minutes=0.5)
    assert await late(world) == {}


async def test_what_waits_behind_something_is_not_late(store: Store) -> None:
    world = World(store)
    await world.say("one")
    await world.begin()
    await world.say("two")
    await world.exchange("three", source=dm("8"))
    await world.exchange("four", source=dm("8"))
    await store.transact(run("UPDATE outbox SET due = due + 3600000000 WHERE id = 2048"))
    world.later(minutes=11)
    await store.transact(run("UPDATE turns SET lease_until = 2 * lease_until WHERE no = 1"))
    await a_gateway_works(world)
    assert await late(world) == {}


async def found(store: Store, name: str) -> HealthCheck:
    checks = {check.name: check async for check in check_store(store, NOON)}
    return checks[name]


async def test_it_says_who_serves_what_and_what_waits(store: Store) -> None:
    world = await busy_world(store)
    assert (await found(store, "gateways")).found == "no gateway is running; messages waiting: 1, sends due: 3"
    await a_gateway_works(world, "helper")
    assert "serving telegram:helper by w2; messages waiting: 1" in (await found(store, "gateways")).found


async def test_a_gateway_that_was_killed_is_not_at_work(store: Store) -> None:
    ended = subprocess.Popen(["true"])  # noqa: ASYNC220 - it is over at once
    ended.wait()
    here = socket.gethostname()
    await store.transact(accounts.acquire("telegram", "a", f"{here}:{ended.pid}:00ff", NOON, LEASE))
    assert (await found(store, "gateways")).found.startswith("no gateway is running")
    await store.transact(accounts.acquire("telegram", "b", f"{here}:{os.getpid()}:00ff", NOON, LEASE))
    await store.transact(accounts.acquire("telegram", "c", f"far-{here}:{ended.pid}:00ff", NOON, LEASE))
    told = f"serving telegram:b by {here}:{os.getpid()}:00ff, telegram:c by far-{here}:{ended.pid}:00ff;"
    assert (await found(store, "gateways")).found.startswith(told)


async def test_it_names_chats_that_are_gone(store: Store) -> None:
    assert (await found(store, "gone chats")).found == "none known"
    await store.transact(run("INSERT INTO gone_chats (account, chat, since, error) VALUES ('telegram:', '7', 1, 'x')"))
    gone = await found(store, "gone chats")
    assert gone.ok
    assert gone.found == "1 chat no longer accepts messages: telegram::7"


@pytest.mark.parametrize(
    "column", ["sessions SET last_active", "inbox SET received", "turns SET started", "outbox SET created"]
)
async def test_rows_from_the_future_are_found(store: Store, column: str) -> None:
    await busy_world(store)
    assert (await found(store, "clock")).ok
    tomorrow = int((NOON + timedelta(days=1)).timestamp()) * 1_000_000
    await store.transact(run(f"UPDATE {column} = {tomorrow}"))
    clock = await found(store, "clock")
    assert not clock.ok
    assert "2026-03-02 12:00" in clock.found
