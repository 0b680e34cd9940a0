"""The adapter of the fake platform: what the smallest complete adapter looks like."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from palaver.model.attachment import Attachment
from palaver.model.label import Label
from palaver.model.platform import Platform
from palaver.model.source import DM, Labels, Source, Trust
from palaver.model.turn import Inbound, Outbound, Revision
from palaver.protocols.adapter import Limits, Receiver
from palaver.protocols.capabilities import MenuCommand
from palaver.testkit.link import Line, Link
from palaver.testkit.mailbox import Message, Update
from palaver.testkit.world import BOT

__all__ = [
    "FAKE",
    "FakeAdapter",
]

_PIECE = 65_536
FAKE = Platform(name="fake", title="Fake platform", has_threads=True)


class FakeAdapter:
    """One account of ours in a world. Like every adapter it has `Typing`, `Editing`, … by having their methods."""

    def __init__(
        self,
        link: Link,
        account: str = BOT,
        *,
        platform: Platform = FAKE,
        limits: Limits | None = None,
        at_once: int = 1,
    ) -> None:
        self._link = link
        self._account = account
        self._platform = platform
        self._limits = limits or Limits()
        self._at_once = at_once

    @property
    def platform(self) -> Platform:
        return self._platform

    @property
    def account(self) -> str:
        return self._account

    @property
    def limits(self) -> Limits:
        return self._limits

    async def run(self, receiver: Receiver) -> None:
        line = await self._link.open(self._account)
        await receiver.connected()
        hands: set[asyncio.Task[None]] = set()
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def done(hand: "asyncio.Task[None]") -> None:
            hands.discard(hand)
            if not hand.cancelled() and (error := hand.exception()) and not broken.done():
                broken.set_exception(error)

        try:
            while True:
                update = await line.next()
                hand = asyncio.create_task(self._hand_over(line, update, receiver))
                hands.add(hand)
                hand.add_done_callback(done)
                if len(hands) >= self._at_once:
                    await asyncio.wait({*hands, broken}, return_when=asyncio.FIRST_COMPLETED)
                if broken.done():
                    broken.result()
        finally:
            broken.cancel()
            for hand in hands:
                hand.cancel()
            await asyncio.gather(*hands, return_exceptions=True)
            await line.close()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._link.send(self._account, outbound, idempotency_key)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._link.open_thread(self._account, outbound, idempotency_key)

    async def typing(self, outbound: Outbound) -> None:
        await self._link.typing(self._account, outbound)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        content = await self._link.fetch(self._account, file.handle or "")
        for start in range(0, len(content), _PIECE):
            yield content[start : start + _PIECE]

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        data = await asyncio.to_thread(content.read_bytes)
        return await self._link.send_file(self._account, outbound, data, idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._link.edit(self._account, receipt, outbound)

    async def show_menu(self, lines: Sequence[MenuCommand]) -> None:
        await self._link.show_menu(self._account, lines)

    async def _hand_over(self, line: Line, update: Update, receiver: Receiver) -> None:
        if update.moved_from is not None:
            await receiver.chat_moved(update.moved_from, update.chat)
        else:
            await receiver.receive(self._inbound(update), Trust(is_bot=update.person.is_bot))
        # Only now is the message safe.
        await line.acknowledge(update.number)

    def _inbound(self, update: Update) -> Inbound:
        message = update.message
        source = Source(
            platform=self._platform.name,
            account=self._account,
            chat_kind=update.kind,
            chat_id=update.chat,
            thread_id=message.thread,
            user_id=update.person.id,
            message_id=message.id,
        )
        title = None if update.kind == DM else Label(update.title)
        labels = Labels(chat=title, user=Label(update.person.name))
        named = self._account in message.mentions
        return Inbound(
            source=source,
            text="" if message.deleted else message.text,
            at=message.changed or message.at,
            labels=labels,
            mentions_us=named,
            reply_to=message.reply_to,
            burst=message.album,
            files=tuple(
                Attachment(
                    Label(file.name), file.media_type, file.size, handle=f"{update.chat}/{message.id}/{position}"
                )
                for position, file in enumerate(message.files)
            ),
            revision=_revision(message),
        )


def _revision(message: Message) -> Revision | None:
    if message.deleted:
        return Revision(version="deleted", deleted=True)
    return Revision(version=str(len(message.earlier))) if message.earlier else None
