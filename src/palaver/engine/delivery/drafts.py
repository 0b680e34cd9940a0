"""Show an answer in the chat while it is being written, and what the agent does before it, at a bounded rate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from palaver.engine.delivery.sender import SendBudget
from palaver.engine.retry import contain_cancellation, describe_error, off_loop
from palaver.model.split import split
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Adapter, Limits, PlatformBusy, SendUnclear, TargetAway
from palaver.protocols.capabilities import Drafting, Editing, supports

log = logging.getLogger(__name__)


class Draft:
    """One growing message. If it fails, nothing is lost: the answer itself is owed by the outbox."""

    def __init__(
        self,
        adapter: Adapter,
        outbound: Outbound,
        budget: SendBudget,
        *,
        store_receipt: Callable[[str], Awaitable[None]],
        may_begin: Callable[[], Awaitable[bool]],
        receipt: str | None,
        idempotency_key: str,
        timeout: float,
        is_group: bool,
    ) -> None:
        self._adapter = adapter
        self._outbound = outbound
        self._chat = outbound.chat
        self._budget = budget
        self._store_receipt = store_receipt
        self._may_begin = may_begin
        """Tells whether no other message is owed to the chat first."""
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
        self._is_lost = False
        """The first send is unclear: without its id, another draft would be a second message."""

    def show(self, text: str) -> None:
        """Show the answer so far, or skip it if the chat may not get a message yet."""
        self.text, self._progress = text, ""
        self._start()

    def show_progress(self, line: str) -> None:
        """Show what the agent is doing, likewise."""
        self._progress = line
        self._start()

    def _start(self) -> None:
        is_idle = not self._is_lost and (self._showing is None or self._showing.done())
        if is_idle and supports(self._adapter, Editing) and self._may_show():
            self._showing = asyncio.create_task(self._show(self._adapter))

    def _may_show(self) -> bool:
        return self._budget.try_acquire_draft(self._chat, self._adapter.limits.interval, self._interval)

    async def finish(self) -> None:
        """Wait for a draft that is being sent."""
        if self._showing is not None:
            await asyncio.gather(self._showing, return_exceptions=True)

    async def _show(self, editing: Editing) -> None:
        text, limits = "\n\n".join(filter(None, (self.text, self._progress))), self._adapter.limits
        piece = await off_loop(min(len(text), limits.text), lambda: _first_piece(text, limits))
        shown = replace(self._outbound, text=piece)
        if not shown.text.strip():
            return
        try:
            if self.receipt is None and not await self._may_begin():
                return
            async with asyncio.timeout(self._timeout):
                with contain_cancellation():
                    receipt = await self._send_or_edit(editing, shown)
            if receipt != self.receipt:
                self.receipt = receipt
                await self._store_receipt(receipt)
        except TargetAway:
            pass
        except PlatformBusy as busy:
            self._budget.back_off(self._chat, busy.after)
        except (SendUnclear, TimeoutError):
            self._is_lost = self.receipt is None
        except Exception as error:  # noqa: BLE001 - the answer itself is sent later
            log.info("a draft was dropped: %s", describe_error(error), extra={"action": "draft.dropped"})

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
