"""Gateways die on each platform as they do on the fake one, and nothing is lost or doubled.

`make crash` is the long one.
"""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from tests.crash.siege import Town, town_of
from tests.crash.square import Square
from tests.crash.square_matrix import matrix_square
from tests.crash.squares import LOOPBACK, NEEDS
from tests.crash.verdict import Verdict
from tests.store.conftest import fresh_store

CHATS = 3
KNOWING = {"matrix", "whatsapp"}
"""They know a message that is sent again."""


def _square(name: str) -> ParameterSet:
    return pytest.param(name, marks=[pytest.mark.needs(NEEDS[name])] if name in NEEDS else [])


@pytest.fixture(params=[*map(_square, LOOPBACK), "matrix"])
async def square(request: pytest.FixtureRequest) -> AsyncGenerator[Square]:
    opens = LOOPBACK.get(request.param)
    async with opens() if opens else matrix_square(request.getfixturevalue("home")) as opened:
        yield opened


async def speak(town: Town, messages: int) -> None:
    for number in range(messages):
        await town.speak("!tool" if number % 2 else "")


async def concluded(town: Town, messages: int) -> Verdict:
    verdict = await town.conclude()
    assert verdict.complaints == []
    assert town.errors == []
    assert verdict.messages == messages
    return verdict


async def test_a_gateway_that_dies_at_one_step_after_the_other(square: Square, tmp_path: Path) -> None:
    steps = {"receive": 2, "before acknowledge": 2, "uncommitted settle": 1, "after send": 1}
    steps |= {"before save_position": 1} if square.keeps_position else {}
    async with town_of(f"sqlite:///{tmp_path}/palaver.db", square, workers=1, chats=CHATS, seed=1) as town:
        await town.wake()
        for step, times in steps.items():
            dying = await town.start(step=step, length=times)
            await speak(town, 3)
            assert await dying.dies(within=180)
        await town.start()
        verdict = await concluded(town, 3 * len(steps))
    assert bool(verdict.unclear) is (square.platform not in KNOWING)


@pytest.mark.parametrize("square", ["telegram", "matrix"], indirect=True)
async def test_an_account_whose_worker_has_died_is_taken_over(square: Square, postgres_server: str) -> None:
    url = await fresh_store(postgres_server)
    async with town_of(url, square, workers=2, chats=CHATS, seed=2) as town:
        await town.wake()
        dying = await town.start(0, step="receive", length=3)
        await town.until_logged("account.acquired", dying.order.worker)
        other = await town.start(1)
        await speak(town, 6)
        assert await dying.dies(within=180)
        await town.until_logged("account.acquired", other.order.worker)
        await speak(town, 3)
        await concluded(town, 9)
