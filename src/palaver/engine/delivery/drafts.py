"""Show an answer in the chat while it is being written, and what the agent does before it, at a bounded rate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from palaver.engine.delivery.sender import SendBudget
from palaver.engine.retry import contain_cancellation, describe_error, off_loop
from palaver.model.split import split
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Adapter, Limits, PlatformBusy, PlatformDown, SendRefused, TargetAway
from palaver.protocols.capabilities import Drafting, Editing, announced, supports
from palaver.store.records import chat_columns

log = logging.getLogger(__name__)


class _NotNow(Exception):
    """Another message is owed to the chat first, or the turn is over."""


class Draft:
    """One growing message. If it fails, nothing is lost: the answer itself is owed by the outbox."""

    def __init__(
        self,
        adapter: Adapter,
        outbound: Outbound,
        budget: SendBudget,
        *,
        store_receipt: Callable[[str | None], Awaitable[None]],
        begin: Callable[[], Awaitable[bool]],
        receipt: str | None,
        is_unclear: bool,
        idempotency_key: str,
        timeout: float,
        is_group: bool,
    ) -> None:
        self._adapter = adapter
        self._outbound = outbound
        self._chat = chat_columns(outbound)
        self._budget = budget
        self._store_receipt = store_receipt
        self._begin = begin
        """Records that the first request leaves; returns False if it may not."""
        self._has_left = False
        """The first request can have left."""
        self.receipt = receipt
        """The platform's id of the message, once it has one."""
        self._idempotency_key = idempotency_key
        self._timeout = timeout
        self.text = ""
        """What to show of the answer; never longer than the answer itself."""
        self._progress = ""
        """What the agent is doing, shown below the text until more of it comes."""
        self._showing: asyncio.Task[None] | None = None
        limits = adapter.limits
        self._interval = (is_group and limits.group_draft_interval) or limits.draft_interval
        self.is_unclear = self._was_unclear = is_unclear
        """The first request may have left, and its receipt is unknown."""
        self.is_answered = False
        """The answer was stored meanwhile: it has to learn what became of the first request."""
        self.delays_answer = False
        """The answer that was stored meanwhile is not due before the request has ended."""
        self._is_lost = is_unclear and not limits.repeats_safely
        """Without the id of the first, another draft would be a second message."""

    def show(self, text: str) -> None:
        """Show the answer so far, or skip it if the chat may not get a message yet."""
        self.text, self._progress = text, ""
        self._start()

    def show_progress(self, line: str) -> None:
        """Show what the agent is doing, likewise."""
        self._progress = line
        self._start()

    def _start(self) -> None:
        is_idle = not self._is_lost and not self.is_under_way
        if is_idle and supports(self._adapter, Editing) and self._may_show():
            self.is_unclear, self._has_left = self.receipt is None, False
            self._showing = asyncio.create_task(self._show(self._adapter, self._budget.hold(self._chat)))

    def _may_show(self) -> bool:
        return self._budget.try_acquire_draft(self._chat, self._adapter.limits.interval, self._interval)

    @property
    def is_under_way(self) -> bool:
        return self._showing is not None and not self._showing.done()

    async def finish(self) -> None:
        """Wait for a draft that is being sent."""
        if self._showing is not None:
            await asyncio.gather(self._showing, return_exceptions=True)

    async def _show(self, editing: Editing, release: Callable[[], None]) -> None:
        try:
            await self._show_now(editing)
        except Exception as error:  # noqa: BLE001 - the answer itself is sent later
            self.is_unclear = self._is_lost = self.is_unclear and (self._has_left or self._was_unclear)
            log.info("a draft was dropped: %s", describe_error(error), extra={"action": "draft.dropped"})
        finally:
            release()

    async def _show_now(self, editing: Editing) -> None:
        text, limits = "\n\n".join(filter(None, (self.text, self._progress))), self._adapter.limits
        piece = await off_loop(min(len(text), limits.text), lambda: _first_piece(text, limits))
        shown = replace(self._outbound, text=piece)
        receipt = await self._request(editing, shown) if shown.text.strip() else self.receipt
        was_unclear, self.is_unclear = self.is_unclear, False
        if receipt != self.receipt or (was_unclear and (self._has_left or self.is_answered)):
            self.receipt = receipt
            await self._store_receipt(receipt)

    async def _request(self, editing: Editing, shown: Outbound) -> str | None:
        """Send or edit it and return its receipt. What the platform did not take is no draft."""
        try:
            async with asyncio.timeout(self._timeout):
                with contain_cancellation(), announced(self._leave):
                    if not self._adapter.limits.announces_requests:
                        await self._leave()
                    return await self._send_or_edit(editing, shown)
        except (TargetAway, _NotNow):
            pass
        except PlatformBusy as busy:
            self._budget.back_off(self._chat, busy.after)
        except (PlatformDown, SendRefused) as error:
            log.info("a draft was dropped: %s", describe_error(error), extra={"action": "draft.dropped"})
        return self.receipt

    async def _leave(self) -> None:
        """Record once that the first request leaves."""
        if self.receipt is None and not self._has_left:
            if not await self._begin():
                raise _NotNow
            self._has_left = True

    async def _send_or_edit(self, editing: Editing, shown: Outbound) -> str:
        if supports(self._adapter, Drafting):
            return await self._adapter.draft(self.receipt, shown)
        if self.receipt is None:
            return await self._adapter.send(shown, idempotency_key=self._idempotency_key)
        await editing.edit(self.receipt, shown)
        return self.receipt


def _first_piece(text: str, limits: Limits) -> str:
    """Return what fits into one message, with open markup closed."""
    pieces = split(text[: limits.text + 1], limits.text, limits.unit)
    return pieces[0].text if pieces else ""
