"""An adapter through which a test says exactly what it wants; what is sent goes to the fake platform."""

import asyncio
from datetime import datetime
from itertools import count

from palaver.model.platform import Platform
from palaver.model.source import DM, Source, Trust
from palaver.model.turn import Cause, Inbound
from palaver.protocols.adapter import Limits, Receiver
from palaver.protocols.clock import Clock
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import BOT, FakePlatform

__all__ = ["Mouth"]


class Mouth(FakeAdapter):
    def __init__(
        self,
        world: FakePlatform,
        clock: Clock,
        *,
        account: str = BOT,
        platform: Platform = FAKE,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(world, account, platform=platform, limits=limits)
        self._clock = clock
        self._inlets: asyncio.Queue[Receiver] = asyncio.Queue()
        self._numbers = count(1)

    async def run(self, receiver: Receiver) -> None:
        await self._inlets.put(receiver)
        await asyncio.Event().wait()

    async def receiver(self) -> Receiver:
        """What the engine has given us, once it serves the account."""
        receiver = await self._inlets.get()
        self._inlets.put_nowait(receiver)
        return receiver

    def speak_through(self, receiver: Receiver) -> None:
        """As one that is called, no matter who serves the account."""
        self._inlets.put_nowait(receiver)

    async def say(
        self,
        chat: Chat,
        text: str,
        *,
        user: str = "p1",
        cause: Cause = Cause.HUMAN,
        observed: bool = False,
        burst: str | None = None,
        id_: str | None = None,
        thread: str | None = None,
        at: datetime | None = None,
    ) -> None:
        source = Source(
            platform=self.platform.name,
            account=self.account,
            chat_kind=chat.kind or DM,
            chat_id=chat.id,
            thread_id=thread,
            user_id=user,
            message_id=id_ or f"m{next(self._numbers)}",
        )
        now = at or self._clock.now()
        inbound = Inbound(source=source, text=text, at=now, cause=cause, observed=observed, burst=burst)
        await (await self.receiver()).receive(inbound, Trust())
