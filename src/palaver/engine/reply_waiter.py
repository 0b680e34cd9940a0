"""Let programs wait for replies: one query finds out for all of them."""

import asyncio
from collections.abc import Awaitable, Callable, Generator, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from palaver.db.transaction import INBOX, JOURNAL, OUTBOX, TURNS
from palaver.engine.hooks import PartialAnswer
from palaver.engine.retry import wait_any
from palaver.model.errors import StoreError
from palaver.protocols.recent import remember
from palaver.store.store import Store

_TOPICS = (INBOX, JOURNAL, OUTBOX, TURNS)
DEBOUNCE_SECONDS = 0.01
"""How long to collect notifications for one query."""
POLL_SECONDS = 5.0
MAX_TURNS = 1000
PAGE_SIZE = 500

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
"""The receive function of ASGI."""


@dataclass(eq=False, slots=True)
class PendingReply:
    """Waits for the reply to one message."""

    number: int
    turn: int | None = None
    is_settled: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def until_settled(self, seconds: float, receive: Receive | None = None) -> bool:
        """Wait until the message is settled. Return False if it takes longer or the client disconnects."""
        disconnected = asyncio.ensure_future(disconnect(receive))
        disconnected.add_done_callback(lambda _: self.changed.set())
        try:
            async with asyncio.timeout(seconds):
                while not self.is_settled and not disconnected.done():
                    await self.changed.wait()
                    self.changed.clear()
        except TimeoutError:
            pass
        finally:
            disconnected.cancel()
        return self.is_settled


async def disconnect(receive: Receive | None) -> None:
    """Return once the client has disconnected."""
    if receive is None:
        await asyncio.Event().wait()
    else:
        while (await receive())["type"] != "http.disconnect":
            pass


class ReplyWaiter:
    """Watches the store for all pending replies together, and only while there are any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pending: set[PendingReply] = set()
        self._added = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._partial: dict[int, PartialAnswer] = {}
        """By turn: what its agent has said so far."""

    @contextmanager
    def waiting(self, number: int) -> Generator[PendingReply]:
        """Watch the message with this inbox number."""
        pending = PendingReply(number)
        self._pending.add(pending)
        self._added.set()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="reply waiter")
        try:
            yield pending
        finally:
            self._pending.discard(pending)
            if not self._pending:
                self._watching.cancel()
                self._watching = None
                self._partial.clear()

    def partial_texts(self, pending: PendingReply) -> list[str]:
        """Return what the agent has said so far, if it runs in this process: one text for each time it spoke."""
        answer = self._partial.get(pending.turn or 0)
        return [*answer.earlier, answer.text] if answer else []

    def add_partial(self, answer: PartialAnswer) -> None:
        if not self._pending:
            return
        remember(self._partial, answer.turn, answer, MAX_TURNS)
        for pending in self._pending:
            if pending.turn == answer.turn:
                pending.changed.set()

    async def _watch(self) -> None:
        with ExitStack() as stack:
            topics = [stack.enter_context(self._store.listen(topic)) for topic in _TOPICS]
            while True:
                for event in (*topics, self._added):
                    event.clear()
                with suppress(StoreError):  # the next round tries again
                    await self._update()
                await wait_any(*topics, self._added, timeout=POLL_SECONDS)
                await asyncio.sleep(DEBOUNCE_SECONDS)

    async def _update(self) -> None:
        unsettled = [pending for pending in self._pending if not pending.is_settled]
        for start in range(0, len(unsettled), PAGE_SIZE):
            page = unsettled[start : start + PAGE_SIZE]
            numbers = sorted({pending.number for pending in page})
            progress = await self._store.read(self._store.message_status.progress(numbers))
            found = {item.number: item for item in progress}
            for pending in page:
                now = found.get(pending.number)
                # A deleted message will never be answered.
                turn, is_settled = (now.turn, now.is_settled) if now else (None, True)
                if (turn, is_settled) != (pending.turn, pending.is_settled):
                    pending.turn, pending.is_settled = turn, is_settled
                    pending.changed.set()
