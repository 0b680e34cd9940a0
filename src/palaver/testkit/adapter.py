"""The adapter of the fake platform: a small but complete adapter to learn from."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from palaver.model.source import identity_of
from palaver.protocols import (
    DM,
    Ability,
    Attachment,
    Inbound,
    Label,
    Labels,
    Limits,
    MenuCommand,
    Outbound,
    Platform,
    Quote,
    Receiver,
    Revision,
    Source,
    Trust,
)
from palaver.testkit.platform import BOT
from palaver.testkit.updates import Message, Update

__all__ = ["FAKE", "FakeAdapter", "PlatformClient", "UpdateStream"]

_CHUNK_BYTES = 65_536
FAKE = Platform(name="fake", title="Fake platform", abilities=frozenset({Ability.THREADS, Ability.REACTIONS}))


class UpdateStream(Protocol):
    """One connection for updates."""

    async def next(self) -> Update:
        """Raises PlatformDown when the connection is lost."""
        ...

    async def acknowledge(self, number: int) -> None:
        """Raises PlatformDown when the connection is lost; then the update may come again."""
        ...

    async def close(self) -> None: ...


class PlatformClient(Protocol):
    """Implemented by `FakePlatform` and, for other processes, by `SocketClient`. Raises what adapters raise."""

    async def open(self, account: str) -> UpdateStream: ...
    async def send(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def open_thread(self, account: str, outbound: Outbound, key: str) -> str: ...
    async def edit(self, account: str, receipt: str, outbound: Outbound) -> None: ...
    async def typing(self, account: str, outbound: Outbound) -> None: ...
    async def show_menu(self, account: str, commands: Sequence[MenuCommand]) -> None: ...
    async def fetch(self, account: str, handle: str) -> bytes: ...
    async def send_file(self, account: str, outbound: Outbound, content: bytes, key: str) -> str: ...


class FakeAdapter:
    """One account of ours on a fake platform. It has `Typing`, `Editing`, … by having their methods."""

    def __init__(
        self,
        client: PlatformClient,
        account: str = BOT,
        *,
        platform: Platform = FAKE,
        limits: Limits | None = None,
        concurrency: int = 1,
    ) -> None:
        self.platform = platform
        self.account = account
        self.limits = limits or Limits()
        self._client = client
        self._concurrency = concurrency

    async def run(self, receiver: Receiver) -> None:
        stream = await self._client.open(self.account)
        await receiver.connected()
        reading = asyncio.Lock()
        workers = [
            asyncio.create_task(self._hand_over_all(stream, reading, receiver)) for _ in range(self._concurrency)
        ]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            await stream.close()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._client.send(self.account, outbound, idempotency_key)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._client.open_thread(self.account, outbound, idempotency_key)

    async def typing(self, outbound: Outbound) -> None:
        await self._client.typing(self.account, outbound)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        content = await self._client.fetch(self.account, file.handle or "")
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        data = await asyncio.to_thread(content.read_bytes)
        return await self._client.send_file(self.account, outbound, data, idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._client.edit(self.account, receipt, outbound)

    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        await self._client.show_menu(self.account, commands)

    async def _hand_over_all(self, stream: UpdateStream, reading: asyncio.Lock, receiver: Receiver) -> None:
        while True:
            async with reading:
                update = await stream.next()
            await self._hand_over(stream, update, receiver)

    async def _hand_over(self, stream: UpdateStream, update: Update, receiver: Receiver) -> None:
        if update.moved_from is not None:
            await receiver.chat_moved(update.moved_from, update.chat)
        else:
            await receiver.receive(self._inbound(update), Trust(is_bot=update.person.is_bot))
        # Only now is the message stored.
        await stream.acknowledge(update.number)

    def _inbound(self, update: Update) -> Inbound:
        message = update.message
        source = Source(
            platform=self.platform.name,
            account=self.account,
            chat_kind=update.kind,
            chat_id=update.chat,
            thread_id=message.thread,
            user_id=update.person.id,
            message_id=message.id,
        )
        title = None if update.kind == DM else Label(update.title)
        files = enumerate(message.files)
        quoted = message.quoted
        return Inbound(
            source=source,
            text="" if message.deleted else message.text,
            at=message.changed or message.at,
            labels=Labels(chat=title, user=Label(update.person.name)),
            mentions_us=self.account in message.mentions,
            reply_to=message.reply_to,
            quote=quoted
            and Quote(
                text=quoted.text,
                author=identity_of(replace(source, user_id=quoted.author)),
                is_ours=quoted.author == self.account,
            ),
            burst=message.album,
            files=tuple(
                Attachment(Label(file.name), file.media_type, file.size, handle=f"{update.chat}/{message.id}/{at}")
                for at, file in files
            ),
            revision=_revision(message),
            reaction=message.reaction,
        )


def _revision(message: Message) -> Revision | None:
    if message.deleted:
        return Revision(version="deleted", deleted=True)
    return Revision(version=str(len(message.earlier))) if message.earlier else None
