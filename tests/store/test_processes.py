"""Many workers at the same few conversations: nothing twice, nothing out of order, nothing under an old fence."""

import asyncio
import json
import random
import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

from palaver.db.transaction import Row, Statements, transaction
from palaver.store.opening import open_store
from palaver.store.records import entry_of
from palaver.store.status.invariants import violations
from tests.forkserver import ROOT, start_module
from tests.store.conftest import fresh_store
from tests.store.worker_child import Record, work_together

Diary = Sequence[Record]


@transaction
def everything() -> Statements[dict[str, list[Row]]]:
    return {
        "turns": (yield "SELECT no, key, state, session_no FROM turns ORDER BY no", ()),
        "inbox": (yield "SELECT no, turn_no FROM inbox ORDER BY no", ()),
        "entries": (yield "SELECT id / 16777216, id % 16777216, turn_no, body FROM entries ORDER BY id", ()),
        "sessions": (yield "SELECT no, next_seq, coalesce(parent_seq, 0), turns, input_tokens FROM sessions", ()),
        "outbox": (yield "SELECT id, body FROM outbox", ()),
    }


def facts(diaries: Sequence[Diary], what: str) -> list[Record]:
    return [tuple(rest) for diary in diaries for kind, *rest in diary if kind == what]


def check_turns(diaries: Sequence[Diary], found: dict[str, list[Row]]) -> None:
    numbers = Counter(id_ for _, id_, number in facts(diaries, "accepted") if number is not None)
    assert set(numbers.values()) == {1}
    assert {id_ for _, id_, _ in facts(diaries, "accepted")} == set(numbers)
    begun = [number for _, messages in facts(diaries, "begun") for number in messages]
    assert len(begun) == len(set(begun))
    assert sorted(begun) == [number for number, turn in found["inbox"] if turn is not None]
    settled = [turn for (turn,) in facts(diaries, "settled")]
    assert sorted(settled) == sorted(no for no, _, state, _ in found["turns"] if state in {"done", "failed"})
    fences = facts(diaries, "took")
    assert len(fences) == len(set(fences))


def check_order(diaries: Sequence[Diary], found: dict[str, list[Row]]) -> None:
    """What one worker accepted one after the other in one conversation was answered in that order."""
    turn_of = dict(found["inbox"])
    for diary in diaries:
        last: dict[object, tuple[int, int]] = defaultdict(lambda: (0, 0))
        still_waiting: set[object] = set()
        for place, _, number in facts([diary], "accepted"):
            if number is None:
                continue
            turn = turn_of[number]
            if turn is None:
                still_waiting.add(place)
            else:
                assert place not in still_waiting
                assert (turn, number) > last[place]
                last[place] = (turn, number)


def check_transcripts(diaries: Sequence[Diary], found: dict[str, list[Row]]) -> None:
    seqs: dict[int, list[int]] = defaultdict(list)
    for session, seq, _, _ in found["entries"]:
        seqs[session].append(seq)
    ended = Counter(session for _, _, state, session in found["turns"] if state in {"done", "failed"})
    answered = Counter(session for _, _, state, session in found["turns"] if state == "done")
    for session, next_seq, copied, turns, tokens in found["sessions"]:
        own = [seq for seq in seqs[session] if seq > copied]
        assert own == list(range(copied + 1, next_seq))
        assert (turns, tokens) == (answered[session], ended[session])
    session_of = {number: session for number, _, _, session in found["turns"]}
    texts = Counter(
        (turn, entry_of((0, body)).text)
        for session, _, turn, body in found["entries"]
        if session == session_of.get(turn)
    )
    wrote = {(turn, text) for turn, text in facts(diaries, "wrote")}
    assert all(texts[written] == 1 for written in wrote)
    late = {(turn, text) for turn, text in facts(diaries, "tried to write")} - wrote
    assert not [written for written in late if texts[written]]


def check_sends(diaries: Sequence[Diary], found: dict[str, list[Row]]) -> None:
    owed = Counter(number // 1024 for number, _ in found["outbox"])
    assert owed == {turn: 2 for (turn,) in facts(diaries, "settled")}
    texts = [json.loads(body)["text"] for _, body in found["outbox"]]
    assert len(texts) == len(set(texts))
    claimed = facts(diaries, "claimed")
    assert len(claimed) == len(set(claimed))
    ended = facts(diaries, "delivered") + facts(diaries, "dead")
    assert len(ended) == len(set(ended))


async def check(url: str, diaries: Sequence[Diary]) -> None:
    async with await open_store(url) as store:
        found = await store.read(everything())
        assert await store.read(violations()) == []
    assert facts(diaries, "settled")
    check_turns(diaries, found)
    check_order(diaries, found)
    check_transcripts(diaries, found)
    check_sends(diaries, found)


def some_seed() -> int:
    seed = random.randrange(10**9)  # noqa: S311
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    return seed


async def test_many_tasks_over_one_sqlite_file(tmp_path: Path) -> None:
    """Most of them in one gateway, some over a second connection, as commands do."""
    url, seed = str(tmp_path / "palaver.db"), some_seed()
    async with await open_store(url):
        gateway = work_together(url, [f"g{n} " for n in range(8)], seed, 250)
        command = work_together(url, [f"c{n} " for n in range(2)], seed + 100, 100)
        of_gateway, of_command = await asyncio.gather(gateway, command)
    await check(url, [*of_gateway, *of_command])


@pytest.mark.parametrize("processes", [4])
async def test_several_processes_over_one_postgres_database(postgres_server: str, processes: int) -> None:
    url, seed = await fresh_store(postgres_server), some_seed()
    async with await open_store(url):
        outputs = await asyncio.gather(*(run_child(url, f"p{n} q{n}", seed + 100 * n, 120) for n in range(processes)))
    await check(url, [diary for output in outputs for diary in output])


async def run_child(url: str, names: str, seed: int, steps: int) -> list[Diary]:
    child = start_module(
        "tests.store.worker_child", url, names, str(seed), str(steps), cwd=ROOT, stdout=subprocess.PIPE
    )
    output, _ = await asyncio.to_thread(child.communicate)
    assert child.returncode == 0
    return json.loads(output)
