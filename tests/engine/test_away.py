"""Anyone who is away gets everything when they come back."""

import asyncio
from pathlib import Path

from palaver.model.turn import Outbound
from palaver.protocols.adapter import Receiver, TargetAway
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import FakePlatform
from tests.engine.gateway import running


class Doorbell(FakeAdapter):
    """People leave and come back, maybe in the very moment in which they are looked for."""

    here = False
    comes_back_during_a_send = False

    def __init__(self, world: FakePlatform) -> None:
        super().__init__(world)
        self.tried = asyncio.Event()

    async def run(self, receiver: Receiver) -> None:
        self.receiver = receiver
        await super().run(receiver)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        self.tried.set()
        if self.here:
            return await super().send(outbound, idempotency_key=idempotency_key)
        if self.comes_back_during_a_send:
            await self.return_to(outbound.chat_id)
        raise TargetAway(3600)

    async def return_to(self, chat: str) -> None:
        self.here = True
        await self.receiver.chat_returned(chat)


async def test_what_is_owed_waits_and_goes_at_once_when_somebody_is_back(tmp_path: Path) -> None:
    world = FakePlatform()
    adapter = Doorbell(world)
    async with running(tmp_path / "p.db", world, adapters=[adapter]) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await asyncio.wait_for(adapter.tried.wait(), 60)
        assert not chat.shown
        await adapter.return_to(chat.id)
        await chat.hears("You said: hello")


async def test_somebody_who_comes_back_while_nobody_is_found_is_not_overlooked(tmp_path: Path) -> None:
    world = FakePlatform()
    adapter = Doorbell(world)
    adapter.comes_back_during_a_send = True
    async with running(tmp_path / "p.db", world, adapters=[adapter]) as here:
        alice = here.world.person("alice")
        chat = here.world.dm(alice)
        await chat.say(alice, "hello")
        await chat.hears("You said: hello")
