"""Three platforms in one gateway: one asks us to wait, one loses its line again and again, one is well."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from palaver.model.access import AccessRole, Grant
from palaver.protocols.clock import SystemClock
from palaver.store.status.invariants import violations
from tests.engine.gateway import NoPauses, running, until
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
            await until(lambda: len(world.sent) >= _CHATS)
            wanted = [f"You said: matrix {number}" for number in range(_MENTIONS)]
            await until(lambda: _is(fake, wanted))
            await here.settled()
            assert sorted(each["text"] for each in world.sent) == [f"You said: telegram {n}" for n in range(_CHATS)]
            assert await answers(fake) == wanted
            assert await here.rows("SELECT count(*) FROM turns") == [(_CALLS + _CHATS + _MENTIONS,)]
            assert await here.rows("SELECT state FROM outbox WHERE state <> 'delivered'") == []
            assert await here.store.read(violations()) == []


async def _is(fake: FakeMatrix, wanted: list[str]) -> bool:
    return await answers(fake) == wanted
