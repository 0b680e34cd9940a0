"""Several platforms in one gateway: some ask us to wait, some lose their line again and again, one is dead."""

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest

from palaver.model.access import AccessRole, Grant
from palaver.platforms.plugins import make_adapter
from palaver.protocols.clock import SystemClock
from palaver.store.status.invariants import violations
from tests.crash.gateway import ACCOUNT
from tests.crash.square import Square
from tests.crash.squares import LOOPBACK, NEEDS
from tests.engine.gateway import Bench, NoPauses, running, until
from tests.platforms.matrix.conftest import home
from tests.platforms.matrix.fakes import FakeMatrix, fake_matrix
from tests.platforms.matrix.homeserver import Homeserver
from tests.platforms.matrix.proxy import Proxy
from tests.platforms.telegram.fakes import ALICE, adapter_of
from tests.platforms.telegram.server import serving
from tests.platforms.telegram.world import No, World
from tests.platforms.webhook.calling import account, call, called, told

__all__ = ["home"]

_GRANTS = tuple(Grant(platform=name, role=AccessRole.MEMBER) for name in ("telegram", "matrix", "webhook"))
_CALLS, _CHATS, _MENTIONS = 50, 10, 4


@asynccontextmanager
async def flapping(proxy: Proxy) -> AsyncGenerator[list[str]]:
    """Whenever something was answered on the line, it is cut; gives what was answered last before each time."""
    cuts: list[str] = []

    async def cut() -> None:
        while True:
            heard = len(proxy.asked)
            while len(proxy.asked) == heard:  # noqa: ASYNC110 - it may be anything
                await asyncio.sleep(0.05)
            cuts.append(proxy.asked[-1])
            proxy.cut()

    task = asyncio.create_task(cut())
    try:
        yield cuts
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def answers(fake: FakeMatrix) -> list[str]:
    return sorted(shown.text for shown in await fake.shown())


async def test_someone_who_is_well_does_not_notice_who_is_not(home: Homeserver, tmp_path: Path) -> None:
    hook, world = account(), World()
    async with serving(world) as server, fake_matrix(home, tmp_path) as fake:
        adapters = [adapter_of(server), fake.adapter(), hook]
        async with running(
            tmp_path / "p.db", adapters=adapters, grants=_GRANTS, clock=SystemClock(), chance=NoPauses(1)
        ) as here:
            await fake.is_heard()
            async with flapping(fake.proxy) as cuts:
                world.refuses["sendmessage"] = [No(429, "Too Many Requests", retry_after=1) for _ in range(1000)]
                for number in range(_CHATS):
                    world.push(world.says(world.chat(7 + number), {**ALICE, "id": 7 + number}, f"telegram {number}"))
                for number in range(_MENTIONS):
                    await fake.mention(f"matrix {number}")
                await until(lambda: len(world.asked("sendmessage")) >= _CHATS and len(cuts) >= 2)
                before = len(cuts)

                replies = await asyncio.gather(*(called(here, hook, call({"build": n})) for n in range(_CALLS)))
                assert [told(reply).get("answer") for reply in replies] == [
                    f"You said: Build {number}" for number in range(_CALLS)
                ]
                assert not world.sent
                await until(lambda: len(cuts) > before)

            world.refuses.clear()
            await until(lambda: _has_turns(here, _CALLS + _CHATS + _MENTIONS))
            await here.settled()
            assert sorted(each["text"] for each in world.sent) == [f"You said: telegram {n}" for n in range(_CHATS)]
            assert await answers(fake) == [f"You said: matrix {number}" for number in range(_MENTIONS)]
            assert await here.rows("SELECT count(*) FROM turns") == [(_CALLS + _CHATS + _MENTIONS,)]
            assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []
            assert await here.store.read(violations()) == []


async def _has_turns(here: Bench, count: int) -> bool:
    return (await here.rows("SELECT count(*) FROM turns"))[0][0] >= count


async def _has_answered(square: Square, words: Sequence[str]) -> bool:
    messages = [message for room in await square.look() for message in room.messages]
    answers = " ".join(message.text for message in messages if message.key is not None)
    return all(word in answers for word in words)


@pytest.mark.needs(*NEEDS.values())
async def test_every_platform_answers_beside_one_that_is_dead(tmp_path: Path) -> None:
    """Each loses connections and asks to wait now and then: what takes a minute takes several on a busy machine."""
    chance = random.Random(1)  # noqa: S311 - a simulation
    grants = tuple(Grant(platform=name, role=AccessRole.MEMBER) for name in LOOPBACK)
    async with AsyncExitStack() as stack:
        squares = [await stack.enter_async_context(opens()) for opens in LOOPBACK.values()]
        adapters = [make_adapter(square.platform, ACCOUNT, square.where) for square in squares]
        dead = make_adapter("telegram", "dead", {"token": "1:a", "api_url": "http://127.0.0.1:1"})
        for square in squares:
            await square.settle(_CHATS)
        async with running(
            tmp_path / "p.db", adapters=[*adapters, dead], grants=grants, clock=SystemClock(), chance=chance
        ) as here:
            for square in squares:
                await until(partial(square.is_heard, here.store))
            said: dict[str, list[str]] = {square.platform: [] for square in squares}
            for number in range(_MENTIONS):
                for square in squares:
                    said[square.platform].append(await square.speak(chance, number, ""))
            async with asyncio.timeout(500):
                for square in squares:
                    while not await _has_answered(square, said[square.platform]):  # noqa: ASYNC110 - it is elsewhere
                        await asyncio.sleep(0.2)
            await here.settled()
            assert await here.store.read(violations()) == []
