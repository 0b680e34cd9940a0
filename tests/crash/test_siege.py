"""Gateways are killed at steps with names and at any instant; every message has one turn and one answer, in order.

So has every job that fires, and the output of every process is whole. A short siege on each engine;
`make crash` is the long one.
"""

from pathlib import Path

import pytest

from tests.crash.siege import Siege, town_of
from tests.crash.verdict import Verdict
from tests.store.conftest import ENGINES, fresh_store

KILLS = 15
MESSAGES = 150


async def besieged(url: str, workers: int, seed: int) -> Verdict:
    async with town_of(url, workers=workers, chats=30, seed=seed, lease=0.6, job_repeats=0) as town:
        verdict = await Siege(town=town, kills=KILLS, messages=MESSAGES, longest_life=0.6, spoken_per_order=30).run()
        assert town.errors == []
    return verdict


@pytest.mark.parametrize("engine", ENGINES)
async def test_killed_gateways_lose_nothing_and_double_nothing(
    engine: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if engine == "sqlite":
        verdict = await besieged(f"sqlite:///{tmp_path}/palaver.db", 1, seed=1)
    else:
        verdict = await besieged(await fresh_store(request.getfixturevalue("postgres_server")), 3, seed=2)
    assert verdict.complaints == []
    assert verdict.messages == MESSAGES
    assert verdict.kills >= KILLS
