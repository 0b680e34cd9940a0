"""Send one owed message through its adapter, within the rate of its chat."""

import asyncio
import logging
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from dataclasses import replace

from palaver.engine import texts
from palaver.engine.delivery.replies import Replies
from palaver.engine.retry import Timeouts, contain_cancellation
from palaver.model.attachment import Attachment
from palaver.model.turn import Delivery, Outbound
from palaver.model.value import value
from palaver.protocols.adapter import Adapter, ChatMoved, PlatformDown, SendRefused, TargetGone
from palaver.protocols.capabilities import Checking, Editing, Threading, Uploading, supports
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.queue.outbox import Chat
from palaver.store.results import RepeatSafety

log = logging.getLogger(__name__)


@value
class Sender:
    replies: Replies
    blob_store: BlobStore | None
    timeouts: Timeouts

    def is_repeat_safe(self, outbound: Outbound) -> bool:
        """Tell whether sending a message twice shows it once."""
        return self.repeat_safety().covers(outbound)

    def repeat_safety(self) -> RepeatSafety:
        adapters = self.replies.adapters
        return RepeatSafety(
            accounts=frozenset(name for name, adapter in adapters.items() if adapter.limits.repeats_safely),
            edits=frozenset(name for name, adapter in adapters.items() if supports(adapter, Editing)),
        )

    async def send(self, adapter: Adapter, delivery: Delivery, seconds: float) -> str:
        """Send a message and return its receipt. Raises what adapters raise, and TimeoutError after `seconds`."""
        with self.timeouts.timeout(seconds), contain_cancellation():
            return await self._send(adapter, delivery)

    async def check(self, adapter: Adapter, delivery: Delivery, seconds: float) -> None:
        """Raise PlatformDown during an outage: a possible duplicate is sent seldom, so it has to outlast the outage."""
        if not (delivery.may_be_duplicate and supports(adapter, Checking)):
            return
        try:
            with contain_cancellation():
                async with asyncio.timeout(seconds):
                    await adapter.check()
        except TimeoutError as error:
            raise PlatformDown("no answer in time") from error

    async def _send(self, adapter: Adapter, delivery: Delivery) -> str:
        outbound = delivery.outbound
        if delivery.may_be_duplicate and not outbound.is_news:
            separator = " " if adapter.limits.one_line else "\n"
            outbound = replace(outbound, text=f"{outbound.text}{separator}{texts.MAY_BE_DUPLICATE}")
        if outbound.file is not None:
            return await self._send_file(adapter, outbound, outbound.file, delivery)
        if outbound.edits is not None and supports(adapter, Editing):
            await adapter.edit(outbound.edits, outbound)
            return outbound.edits
        if self.opens_thread(outbound) and supports(adapter, Threading):
            return await adapter.open_thread(outbound, idempotency_key=delivery.idempotency_key)
        return await adapter.send(outbound, idempotency_key=delivery.idempotency_key)

    def opens_thread(self, outbound: Outbound) -> bool:
        if outbound.opens is None:
            return False
        return supports(self.replies.adapter_for(outbound.platform, outbound.account), Threading)

    async def _send_file(self, adapter: Adapter, outbound: Outbound, file: Attachment, delivery: Delivery) -> str:
        """Send a file, or say where it is if the chat does not take it."""
        if self.blob_store and supports(adapter, Uploading):
            async with self.blob_store.reading(file.sha256 or "") as path:
                try:
                    if path is not None:
                        return await adapter.send_file(outbound, path, idempotency_key=delivery.idempotency_key)
                except (ChatMoved, TargetGone):
                    raise
                except SendRefused:
                    extra = {"action": "file.not_accepted", "delivery": delivery.number}
                    log.warning("a file was refused", extra=extra)
        instead = replace(outbound, text=texts.file_left(file))
        return await adapter.send(instead, idempotency_key=delivery.idempotency_key)


class EndedSends:
    """Tells those who wait for a send that this worker has tried it."""

    def __init__(self) -> None:
        self._waiting: dict[int, set[asyncio.Event]] = {}

    @contextmanager
    def waiting(self, number: int) -> Generator[asyncio.Event]:
        event = asyncio.Event()
        self._waiting.setdefault(number, set()).add(event)
        try:
            yield event
        finally:
            self._waiting[number].discard(event)
            if not self._waiting[number]:
                del self._waiting[number]

    def notify(self, number: int) -> None:
        for event in self._waiting.get(number, ()):
            event.set()


class SendBudget:
    """When each chat (`chat_columns`) may get its next message and its next draft. Forgets quiet chats."""

    def __init__(self) -> None:
        self._free_at: dict[Chat, float] = {}
        self._draft_at: dict[Chat, float] = {}
        """Drafts are slower than the chat allows, to leave room for answers."""
        self._drafting: dict[Chat, list[asyncio.Event]] = {}
        """The ends of requests for drafts that are under way: what follows would overtake them."""
        self._owed: Collection[Chat] = ()
        self.freed = asyncio.Event()
        """Set when the request for a draft has ended."""

    async def acquire(self, chat: Chat, interval: float) -> None:
        """Wait until an answer may be sent to the chat."""
        while not self.is_free(chat):  # it may be put off while waiting
            if drafting := self._drafting.get(chat):
                await drafting[0].wait()
            else:
                await asyncio.sleep(self.wait_seconds(chat))
        self._spend(chat, interval)

    def try_acquire_draft(self, chat: Chat, interval: float, draft_interval: float) -> bool:
        """Return False if the chat is not free, an answer waits for it, or a draft was just shown."""
        if chat in self._owed or not self.is_free(chat) or _remaining(self._draft_at, chat) > 0:
            return False
        self._spend(chat, interval)
        if draft_interval > 0:
            _block(self._draft_at, chat, draft_interval)
        return True

    def hold(self, chat: Chat) -> Callable[[], None]:
        """Let no answer go out while the request for a draft is under way. Return what ends that."""
        ended = asyncio.Event()
        self._drafting.setdefault(chat, []).append(ended)

        def release() -> None:
            self._drafting[chat].remove(ended)
            if not self._drafting[chat]:
                del self._drafting[chat]
            ended.set()
            self.freed.set()

        return release

    def back_off(self, chat: Chat, seconds: float) -> None:
        """Wait as the platform asked. Drafts wait twice as long, so that answers come first."""
        _block(self._free_at, chat, max(seconds, self.wait_seconds(chat)))
        _block(self._draft_at, chat, max(2 * seconds, _remaining(self._draft_at, chat)))

    def owe(self, chats: Collection[Chat]) -> None:
        """Show no more drafts in these chats until their answers are sent."""
        self._owed = chats

    def busy(self) -> list[Chat]:
        """Return the chats that are not free."""
        return [*self._drafting, *(chat for chat in self._free_at if self.wait_seconds(chat) > 0)]

    def is_free(self, chat: Chat) -> bool:
        return chat not in self._drafting and self.wait_seconds(chat) <= 0

    def wait_seconds(self, chat: Chat) -> float:
        """Return in how many seconds the chat may get a message."""
        return _remaining(self._free_at, chat)

    def _spend(self, chat: Chat, interval: float) -> None:
        if interval > 0:
            _block(self._free_at, chat, interval)


def _remaining(times: dict[Chat, float], chat: Chat) -> float:
    until = times.get(chat)
    return 0.0 if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _block(times: dict[Chat, float], chat: Chat, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    times[chat] = until = loop.time() + seconds
    loop.call_at(until, _forget, times, chat, until)


def _forget(times: dict[Chat, float], chat: Chat, until: float) -> None:
    if times.get(chat) == until:
        del times[chat]
