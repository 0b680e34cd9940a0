"""Recorder: a receiver that records what an adapter hands over, and can be told to fail."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from palaver.protocols import (
    Adapter,
    AnswerStatus,
    Attachment,
    Inbound,
    MalformedSource,
    PlatformError,
    Receiver,
    Source,
    StoreUnavailable,
    Trust,
)

__all__ = ["TIMEOUT_SECONDS", "Recorder", "running"]

TIMEOUT_SECONDS = 10.0
"""How long to wait for something that should happen."""
_RESTART_SECONDS = 0.01


class Recorder:
    """Like the gateway's receiver it outlives the adapters that use it."""

    def __init__(self) -> None:
        self.received: list[Inbound] = []
        """What was stored, in order of arrival, repetitions included."""
        self.trusts: list[Trust] = []
        self.offered: list[Inbound] = []
        """What was handed over, stored or not."""
        self.moves: list[tuple[str, str]] = []
        """Old and new ids of chats, each time they were reported."""
        self.owners: set[str] = set()
        """User ids that are an owner's."""
        self.failures = 0
        """How many of the next messages it fails to store."""
        self.writes = asyncio.Event()
        """While cleared, `receive` blocks before it stores."""
        self.writes.set()
        self.position: str | None = None
        self._changed = asyncio.Event()

    @property
    def texts(self) -> list[str]:
        """The stored messages, each once, as first sent."""
        said = [inbound for inbound in self.received if inbound.revision is None]
        # Without an id a message cannot be recognised, so each counts.
        keys = [inbound.source if inbound.source.message_id else number for number, inbound in enumerate(said)]
        return list({key: inbound.text for key, inbound in zip(keys, said, strict=True)}.values())

    @property
    def files(self) -> list[Attachment]:
        """The files of the stored messages, each message once."""
        messages = {inbound.source: inbound for inbound in self.received}
        return [file for inbound in messages.values() for file in inbound.files]

    @property
    def changes(self) -> list[Inbound]:
        """The stored edits and deletions, each once."""
        changes = {(inbound.source, inbound.revision): inbound for inbound in self.received if inbound.revision}
        return list(changes.values())

    async def connected(self) -> None: ...

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        self.offered.append(inbound)
        self._notify()
        try:
            inbound.check_ids()
        except MalformedSource:
            return
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("The recorder is set to fail.")
        await self.writes.wait()
        self.received.append(inbound)
        self.trusts.append(trust)
        self._notify()

    async def load_position(self) -> str | None:
        return self.position

    async def save_position(self, position: str) -> None:
        self.position = position

    async def recent_chats(self, limit: int, *, server: str | None = None) -> Sequence[str]:
        there = [each.source.chat_id for each in reversed(self.received) if each.source.scope_id == server]
        return list(dict.fromkeys(chat for chat in there if chat))[:limit]

    async def chat_returned(self, chat_id: str) -> None: ...

    async def link_alias(self, alias: str, canonical: str) -> None: ...

    async def person_moved(self, old: str, new: str, at: datetime) -> None: ...

    async def chat_moved(self, old: str, new: str, *, server: str | None = None) -> None:  # noqa: ARG002
        self.moves.append((old, new))
        self._notify()

    async def is_owner(self, user_id: str) -> bool:
        return user_id in self.owners

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        """Return None: nobody answers here."""

    async def has(self, count: int) -> None:
        """Wait until that many different messages are stored."""
        await self._until(lambda: len(self.texts) >= count)

    async def has_changes(self, count: int) -> None:
        await self._until(lambda: len(self.changes) >= count)

    async def has_files(self, count: int) -> list[Attachment]:
        await self._until(lambda: len(self.files) >= count)
        return self.files

    async def has_moves(self, count: int) -> None:
        await self._until(lambda: len(self.moves) >= count)

    async def was_offered(self, count: int) -> None:
        await self._until(lambda: len(self.offered) >= count)

    async def _until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not condition():
                await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


@asynccontextmanager
async def running(adapter: Adapter, receiver: Receiver) -> AsyncGenerator[None]:
    """Run the adapter and restart it when it loses the connection, as the gateway does."""
    task = asyncio.create_task(_keep_running(adapter, receiver))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()


async def _keep_running(adapter: Adapter, receiver: Receiver) -> None:
    while True:
        try:
            await adapter.run(receiver)
        except (PlatformError, StoreUnavailable):
            await asyncio.sleep(_RESTART_SECONDS)
        else:
            raise AssertionError("run() returned although nobody cancelled it.")
