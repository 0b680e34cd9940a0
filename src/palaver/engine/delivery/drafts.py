"""Drafts: an answer that grows in the chat while it is being written, at a bounded rate."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from palaver.engine.retry import contain_cancellation, describe_error
from palaver.model.split import split
from palaver.model.turn import Outbound
from palaver.protocols.adapter import Adapter, Limits, PlatformBusy, SendUnclear, TargetAway
from palaver.protocols.capabilities import Drafting, Editing, supports

__all__ = [
    "Budget",
    "Draft",
]

log = logging.getLogger(__name__)


class Budget:
    """Per chat, when the next message may go, and the next draft. A chat that was quiet for long is not remembered."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        self._draft_at: dict[str, float] = {}
        """Drafts keep a slower pace than the chat has, so that there is room for answers."""
        self._owed: dict[str, int] = {}

    async def take(self, chat: str, interval: float) -> None:
        """For an answer: wait until the chat may be written to."""
        self._owed[chat] = self._owed.get(chat, 0) + 1
        try:
            while (wait := self.wait(chat)) > 0:  # noqa: ASYNC110 - it may be put off while waiting
                await asyncio.sleep(wait)
            self._spend(chat, interval)
        finally:
            self._owed[chat] -= 1
            if not self._owed[chat]:
                del self._owed[chat]

    def take_for_draft(self, chat: str, interval: float, draft_interval: float) -> bool:
        """Only if the chat is free, no answer waits for it and no draft was just shown; else the draft is dropped."""
        if chat in self._owed or self.wait(chat) > 0 or _left(self._draft_at, chat) > 0:
            return False
        self._spend(chat, interval)
        if draft_interval > 0:
            _block(self._draft_at, chat, draft_interval)
        return True

    def hold(self, chat: str, seconds: float) -> None:
        """The platform asked to wait. Drafts wait twice as long, so that answers come first."""
        _block(self._free_at, chat, max(seconds, self.wait(chat)))
        _block(self._draft_at, chat, max(2 * seconds, _left(self._draft_at, chat)))

    def wait(self, chat: str) -> float:
        """In how many seconds the chat may be written to."""
        return _left(self._free_at, chat)

    def _spend(self, chat: str, interval: float) -> None:
        if interval > 0:
            _block(self._free_at, chat, interval)


def _left(times: dict[str, float], chat: str) -> float:
    until = times.get(chat)
    return 0.0 if until is None else max(0.0, until - asyncio.get_running_loop().time())


def _block(times: dict[str, float], chat: str, seconds: float) -> None:
    loop = asyncio.get_running_loop()
    times[chat] = until = loop.time() + seconds
    loop.call_at(until, _forget, times, chat, until)


def _forget(times: dict[str, float], chat: str, until: float) -> None:
    if times.get(chat) == until:
        del times[chat]


class Draft:
    """One growing message. Whatever goes wrong with it, the answer itself is owed and will come."""

    def __init__(
        self,
        adapter: Adapter,
        outbound: Outbound,
        budget: Budget,
        *,
        keep: Callable[[str], Awaitable[None]],
        may_begin: Callable[[], Awaitable[bool]],
        receipt: str | None,
        name: str,
        limit: float,
        is_group: bool,
    ) -> None:
        self._adapter = adapter
        self._outbound = outbound
        self._chat = f"{adapter.platform.name}:{adapter.account}:{outbound.chat_id}"
        self._budget = budget
        self._keep = keep
        self._may_begin = may_begin
        """Whether nothing is owed to the chat that would have to come before it."""
        self.receipt = receipt
        """The platform's id of the message, once there is one."""
        self._name = name
        """No other draft has it: platforms know a message again by it."""
        self._limit = limit
        """How many seconds a send may take."""
        self.text = ""
        """What is to be shown of the answer; never longer than the answer itself."""
        self._showing: asyncio.Task[None] | None = None
        limits = adapter.limits
        self._interval = (is_group and limits.group_draft_interval) or limits.draft_interval
        self._is_lost = False
        """There may be a message of which we know no id: another one would be a second."""

    def show(self, text: str) -> None:
        """What there is of the answer now. It is left out where the chat may not be written to yet."""
        self.text = text
        is_idle = not self._is_lost and (self._showing is None or self._showing.done())
        if is_idle and supports(self._adapter, Editing) and self._may_show():
            self._showing = asyncio.create_task(self._show(self._adapter))

    def _may_show(self) -> bool:
        return self._budget.take_for_draft(self._chat, self._adapter.limits.interval, self._interval)

    async def rest(self) -> None:
        """Until nothing is on its way any more."""
        if self._showing is not None:
            await asyncio.gather(self._showing, return_exceptions=True)

    async def _show(self, editing: Editing) -> None:
        shown = replace(self._outbound, text=_beginning(self.text, self._adapter.limits))
        if not shown.text.strip():
            return
        try:
            if self.receipt is None and not await self._may_begin():
                return
            async with asyncio.timeout(self._limit):
                with contain_cancellation():
                    receipt = await self._put(editing, shown)
            if receipt != self.receipt:
                self.receipt = receipt
                await self._keep(receipt)
        except TargetAway:
            pass
        except PlatformBusy as busy:
            self._budget.hold(self._chat, busy.after)
        except (SendUnclear, TimeoutError):
            self._is_lost = self.receipt is None
        except Exception as error:  # noqa: BLE001 - the answer itself comes all the same
            log.info("a draft was dropped: %s", describe_error(error), extra={"action": "draft.dropped"})

    async def _put(self, editing: Editing, shown: Outbound) -> str:
        if supports(self._adapter, Drafting):
            return await self._adapter.draft(self.receipt, shown)
        if self.receipt is None:
            return await self._adapter.send(shown, idempotency_key=self._name)
        await editing.edit(self.receipt, shown)
        return self.receipt


def _beginning(text: str, limits: Limits) -> str:
    """What one message holds of it, with whatever it was cut out of closed."""
    pieces = split(text[: limits.text + 1], limits.text, limits.unit)
    return pieces[0].text if pieces else ""
