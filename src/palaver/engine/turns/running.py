"""A turn that this process runs: its state, what reaches it from outside, how it stops, the typing indicator."""

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Self, TypeVar

from palaver.db.transaction import Database, key_topic
from palaver.engine.delivery.drafts import Draft
from palaver.engine.delivery.replies import Replies
from palaver.engine.hooks import Meter
from palaver.engine.retry import Timeouts, contain_cancellation, describe_error, log_error, log_task_error
from palaver.engine.turns.agent import AgentRun, TurnSnapshot
from palaver.engine.turns.progress import ToolProgress
from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment
from palaver.model.firing import FiredJob, is_silent
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.turn import NO_USAGE, Cause, ClientTool, Destination, Received, Turn, Usage
from palaver.model.value import value
from palaver.protocols.agent import Failure, Final
from palaver.protocols.capabilities import Typing, supports

log = logging.getLogger(__name__)

T = TypeVar("T")

SIGNAL_RETRY_SECONDS = 1.0
CANCEL_TIMEOUT_SECONDS = 5.0
_WRITING = "…"
TYPING_DELAY_SECONDS = 0.5
"""Answers that take less need no indicator."""
TYPING_INTERVAL_SECONDS = 4.0
"""Platforms hide the indicator after about five seconds."""


class TurnSignals:
    """Listens for messages and stop requests of a conversation, even before its turn begins. A context manager."""

    def __init__(self, database: Database, key: SessionKey) -> None:
        self.key = key
        self._database = database
        self._subscriptions = ExitStack()
        self._is_pending = False
        self._handler: Callable[[], Awaitable[None]] | None = None
        self._handling: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._subscribe()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach()
        self._subscriptions.close()

    def notify(self) -> None:
        self._is_pending = True
        if self._handler is not None and (self._handling is None or self._handling.done()):
            self._handling = asyncio.create_task(self._handle(self._handler))

    def attach(self, handler: Callable[[], Awaitable[None]]) -> None:
        """Call `handler` after every signal from now on, and at once for one that is pending."""
        self._handler = handler
        if self._is_pending:
            self.notify()

    def detach(self) -> None:
        """Call no handler any more; later signals wait for the next one."""
        self._handler = None
        if self._handling is not None:
            self._handling.cancel()
            self._handling = None

    def follow(self, key: SessionKey) -> None:
        """Listen under the conversation's new key too, and check what was said there before."""
        self.key = key
        self._subscribe()
        self.notify()

    def _subscribe(self) -> None:
        self._subscriptions.enter_context(self._database.hear(key_topic(self.key), self.notify))

    async def _handle(self, handler: Callable[[], Awaitable[None]]) -> None:
        while self._is_pending:
            self._is_pending = False
            try:
                await handler()
            except Exception as error:  # noqa: BLE001 - a later stop request must still be heard
                extra = {"action": "turn.signals_unavailable", "key": self.key.text}
                log_error(log, "reading the signals of a turn failed", error, extra)
                await asyncio.sleep(SIGNAL_RETRY_SECONDS)
                self._is_pending = True


class StopReason(StrEnum):
    """Why a turn ends before its agent is done."""

    ASKED = "somebody asked for it"
    NEWER = "a newer message takes its place"
    DRAIN = "the gateway is shutting down"
    LOST = "another worker has taken it over"


@value
class CompactionRequest:
    focus: str = ""
    is_asked: bool = False
    """Somebody asked for it and waits for a reply."""
    is_overdue: bool = False
    """It gives way to no message: as long as messages wait, the conversation would grow without limit."""


@dataclass(kw_only=True, slots=True)
class RunningTurn:
    turn: Turn
    messages: Sequence[Received]
    stop: Future[StopReason]
    next_snapshot: TurnSnapshot | None = None
    """What to show the agent next, if it is loaded already."""
    shown: TurnSnapshot | None = None
    """What the agent saw last."""
    # `dict` and `list`, not `list[Received]`: that takes seven times as long to call.
    steered: list[Received] = field(default_factory=list)
    """Messages that joined the turn while it ran."""
    call_files: dict[str, tuple[Attachment, ...]] = field(default_factory=dict)
    """Files that a tool call returned or sent, by call id: they are recorded with its result."""
    call_progress: dict[str, str] = field(default_factory=dict)
    """How far a tool call is that still runs, in the words of its tool, by call id."""
    draft: Draft | None = None
    typing: "TypingIndicator | None" = None
    progress: ToolProgress | None = None
    """Once the agent has used a tool, where the chat shows that."""
    agent_run: AgentRun | None = None
    switched: Failure | None = None
    """Why another model answers, if the agent has several and the preferred one has just failed."""
    answer: Final | None = None
    """The answer, once it is stored."""
    prompt_tokens: int = 0
    """The size of the prompt that led to the answer; 0 if unknown."""
    summary_usage: Usage = NO_USAGE
    has_sent_here: bool = False
    """A tool of the turn has sent something to the chat that asks."""
    is_over: bool = False
    """Ignore what the agent still says."""
    held_until: datetime | None = None
    """How far the lease was extended; None for as far as the turn says."""
    message_waits: asyncio.Event = field(default_factory=asyncio.Event)
    """A person has written since the turn began and waits for an answer."""
    wait_notice: asyncio.Task[None] | None = None
    """Tells the first person whose message waits that the turn goes on."""
    gives_way: bool = True
    """A newer message can take its place, where that is the busy mode."""
    signals: "TurnSignals | None" = None

    @property
    def source(self) -> Source:
        """Return where the last message came from."""
        return self.messages[-1].inbound.origin

    @property
    def job(self) -> FiredJob | None:
        """Return the job that the turn runs for."""
        return self.messages[-1].inbound.job

    @property
    def destinations(self) -> Sequence[Destination]:
        """Return where the answer goes: as the last message says, or else back. For a job, where its owner can."""
        named = self.messages[-1].inbound.destinations or (Destination(place=self.source),)
        if self.job is None or self.role >= AccessRole.ADMIN:
            return named
        has_access = self.messages[-1].role is not None
        return [to for to in named if has_access and to.place.address == self.source.address]

    @property
    def dropped(self) -> Sequence[Source]:
        """Return where the answer of a job does not go, because its owner lost the role that it needs."""
        last = self.messages[-1]
        if last.inbound.job is None or last.role is None:
            return ()
        kept = {to.place.address for to in self.destinations}
        return [to.place for to in last.inbound.destinations if to.place.address not in kept]

    @property
    def offered(self) -> Mapping[str, ClientTool]:
        """Return the tools that the sender runs for the agent, by name."""
        return {tool.name: tool for tool in self.messages[-1].inbound.client_tools}

    @property
    def role(self) -> AccessRole:
        """Return the lowest role of all whose messages the turn answers."""
        spoken = [each for each in (*self.messages, *self.steered) if not each.inbound.observed]
        return min([each.role or AccessRole.GUEST for each in spoken], default=AccessRole.GUEST)

    def is_silence(self, text: str) -> bool:
        """Return whether a person who asked would hear nothing. Jobs, notices and overheard talk need no answer."""
        is_asked = any(each.inbound.counts_as_activity for each in (*self.messages, *self.steered))
        return is_asked and not self.has_sent_here and not text.strip()

    @property
    def is_notice(self) -> bool:
        """Return whether it only hears of background processes, so that nobody waits for an answer."""
        return (
            all(each.inbound.cause is Cause.PROCESS or each.inbound.observed for each in self.messages)
            and not self.steered
        )

    def takes_silence(self, text: str) -> bool:
        """Return whether an answer says that there is nothing to send, and nobody waits for one."""
        return self.job.is_silent(text) if self.job else self.is_notice and is_silent(text)

    @property
    def usage(self) -> Usage:
        return self.summary_usage.plus(self.agent_run.usage) if self.agent_run else self.summary_usage

    @property
    def resumes(self) -> bool:
        """Return whether a turn that was stopped goes on later."""
        return self.stop.done() and self.stop.result() in {StopReason.DRAIN, StopReason.LOST}

    def is_held(self, now: datetime) -> bool:
        """Return whether nobody else can have taken it over. A process that was frozen finds out like this."""
        return now < (self.held_until or self.turn.lease_until)

    def note_waiting(self, waiting: Sequence[Received]) -> None:
        """Record whether a person waits behind the turn."""
        if any(received.inbound.counts_as_activity for received in waiting):
            self.message_waits.set()
        else:
            self.message_waits.clear()

    def add_steered(self, messages: Sequence[Received]) -> None:
        known = {received.number for received in (*self.messages, *self.steered)}
        joined = [received for received in messages if received.number not in known]
        self.steered += joined
        self.charge_transcriptions(joined)

    def charge_transcriptions(self, messages: Sequence[Received]) -> None:
        if spent := sum(received.inbound.transcription_micros for received in messages):
            self.summary_usage = self.summary_usage.plus(Usage(cost_micros=spent))

    def end(self, why: StopReason) -> None:
        if not self.stop.done():
            self.stop.set_result(why)

    async def run(
        self, work: Coroutine[Any, Any, T], limit: timedelta, *, timeouts: Timeouts, meter: Meter
    ) -> T | StopReason | None:
        """Run work until it is done. Return its result, why it was stopped, or None if it took too long."""
        over: Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        task = asyncio.create_task(work)
        task.add_done_callback(end)
        self.stop.add_done_callback(end)
        timer = timeouts.queue(limit.total_seconds())
        timer.add(end)
        try:
            await over
        finally:
            timer.remove(end)
            is_done = task.done()
            await self._cancel(task, meter)
        if is_done:
            with contain_cancellation():
                return task.result()
        return self.stop.result() if self.stop.done() else None

    async def _cancel(self, task: "asyncio.Task[Any]", meter: Meter) -> None:
        """Cancel the agent. Whether it obeys or not, its turn is over."""
        self.is_over = True
        if task.done():
            return
        extra = {"action": "agent.unresponsive", "turn": self.turn.number}
        task.cancel()
        task.add_done_callback(partial(log_task_error, log, "the agent failed while being stopped", extra))
        await asyncio.wait({task}, timeout=CANCEL_TIMEOUT_SECONDS)
        if not task.done():
            meter.count("agents_left")
            log.error("the agent does not stop; leaving it alone", extra=extra)


class TypingIndicator:
    """Shows that an answer is being written, from a moment after its creation until `end`."""

    def __init__(self, replies: Replies, timeouts: Timeouts, source: Source) -> None:
        self._replies = replies
        self._source = source
        self._doing = _WRITING
        self._task: asyncio.Task[None] | None = None
        self._context = copy_context()
        self._timer = timeouts.queue(TYPING_DELAY_SECONDS)
        self._timer.add(self._begin)

    def end(self) -> None:
        self._timer.remove(self._begin)
        if self._task is not None:
            self._task.cancel()

    def say(self, doing: str) -> None:
        """Say what the agent is doing, from now on; nothing if it just writes."""
        self._doing = doing or _WRITING
        self.show_anew()

    def show_anew(self) -> None:
        """Show it at once: what it says has changed."""
        self.end()
        self._begin()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._show(), context=self._context)

    async def _show(self) -> None:
        """Show it until cancelled. Give up on the first error: an indicator is not worth a retry."""
        adapter = self._replies.adapter_for(self._source.platform, self._source.account)
        try:
            targets = self._replies.to(self._source, self._doing)
            while targets and supports(adapter, Typing):
                async with asyncio.timeout(TYPING_INTERVAL_SECONDS):
                    await adapter.typing(targets[0])
                await asyncio.sleep(TYPING_INTERVAL_SECONDS)
        except Exception as error:  # noqa: BLE001 - the answer comes without it
            log.info("typing is not shown: %s", describe_error(error), extra={"action": "typing.failed"})
