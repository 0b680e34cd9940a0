"""A turn that this process works on, and how to stop it."""

import asyncio
import logging
from asyncio import Future
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Self, TypeVar

from palaver.db.database import Database, key_topic
from palaver.engine.context import EngineContext
from palaver.engine.delivery.drafts import Draft
from palaver.engine.metrics import Meter
from palaver.engine.retry import contain_cancellation, describe_error, log_error, log_task_error
from palaver.engine.turns.agent_events import AgentRun
from palaver.engine.turns.agent_request import TurnSnapshot
from palaver.model.access import AccessRole
from palaver.model.attachment import Attachment
from palaver.model.key import SessionKey
from palaver.model.source import Source
from palaver.model.turn import ClientTool, Received, Turn, Usage
from palaver.model.value import value
from palaver.protocols.agent import Final
from palaver.protocols.capabilities import Typing, supports

__all__ = [
    "CompactionRequest",
    "RunningTurn",
    "StopReason",
    "TurnSignals",
    "TypingIndicator",
]

log = logging.getLogger(__name__)

_LOOK_AGAIN = 1.0


class TurnSignals:
    """Rung when something is said to a conversation, also before there is a turn to hear it. A context manager."""

    def __init__(self, database: Database, key: SessionKey) -> None:
        self.key = key
        self._database = database
        self._heard = ExitStack()
        self._is_rung = False
        self._heed: Callable[[], Awaitable[None]] | None = None
        self._heeding: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._hear()
        return self

    def __exit__(self, *_: object) -> None:
        self.ignore()
        self._heard.close()

    def ring(self) -> None:
        self._is_rung = True
        if self._heed is not None and (self._heeding is None or self._heeding.done()):
            self._heeding = asyncio.create_task(self._until_quiet(self._heed))

    def answer(self, heed: Callable[[], Awaitable[None]]) -> None:
        """From now on `heed` is called after every ring, and at once where it has rung already."""
        self._heed = heed
        if self._is_rung:
            self.ring()

    def ignore(self) -> None:
        """Nobody heeds it any more; what rings from now on is for whoever answers next."""
        self._heed = None
        if self._heeding is not None:
            self._heeding.cancel()
            self._heeding = None

    def follow(self, key: SessionKey) -> None:
        """The conversation has another key by now; what was said under it before it was heard counts."""
        self.key = key
        self._hear()
        self.ring()

    def _hear(self) -> None:
        self._heard.enter_context(self._database.hear(key_topic(self.key), self.ring))

    async def _until_quiet(self, heed: Callable[[], Awaitable[None]]) -> None:
        while self._is_rung:
            self._is_rung = False
            try:
                await heed()
            except Exception as error:  # noqa: BLE001 - whoever says stop later must still be heard
                log_error(
                    log, "a turn does not hear", error, {"action": "turn.signals_unavailable", "key": self.key.text}
                )
                await asyncio.sleep(_LOOK_AGAIN)
                self._is_rung = True


T = TypeVar("T")

_LET_GO = 5.0
"""For how many seconds an agent is waited for that was told to stop."""


class StopReason(StrEnum):
    """Why a turn ends before its agent is done."""

    ASKED = "somebody asked for it"
    NEWER = "a newer message takes its place"
    DRAIN = "the gateway shuts down"
    LOST = "another worker has taken it over"


@value
class CompactionRequest:
    """That a conversation be summarised."""

    focus: str = ""
    is_asked: bool = False
    """Somebody waits for a word about it."""


@dataclass(kw_only=True)
class RunningTurn:
    """A turn that this process works on, and how to stop it."""

    turn: Turn
    messages: Sequence[Received]
    stop: Future[StopReason]
    scene: TurnSnapshot | None = None
    """What the agent is to be shown, if that is known already."""
    shown: TurnSnapshot | None = None
    """What it was shown last."""
    steered: list[Received] = field(default_factory=list[Received])
    """What was said to it while it ran."""
    filed: dict[str, tuple[Attachment, ...]] = field(default_factory=dict[str, tuple[Attachment, ...]])
    """Files that were sent for a call, by its id: they stand with what came of it."""
    draft: Draft | None = None
    answering: AgentRun | None = None
    answer: Final | None = None
    """What was answered, once that is safe."""
    spent: Usage = field(default_factory=Usage)
    """On summaries; what answering takes is counted there."""
    is_over: bool = False
    """Nothing that the agent still says is heard."""

    @property
    def source(self) -> Source:
        """Where the answer goes: to whoever spoke last."""
        return self.messages[-1].inbound.source

    @property
    def offered(self) -> Mapping[str, ClientTool]:
        """What whoever is answered does for the agent, by name."""
        return {each.name: each for each in self.messages[-1].inbound.client_tools}

    @property
    def role(self) -> AccessRole:
        """As what everybody was let in whose words it answers: the least of them."""
        spoken = [each for each in (*self.messages, *self.steered) if not each.inbound.observed]
        return min((each.role or AccessRole.GUEST for each in spoken), default=AccessRole.GUEST)

    @property
    def usage(self) -> Usage:
        return self.spent.plus(self.answering.usage) if self.answering else self.spent

    def hear(self, messages: Sequence[Received]) -> None:
        """Everything that it answers by now."""
        known = {each.number for each in (*self.messages, *self.steered)}
        self.steered += [each for each in messages if each.number not in known]

    def end(self, why: StopReason) -> None:
        if not self.stop.done():
            self.stop.set_result(why)

    async def until_over(
        self, work: Coroutine[Any, Any, T], limit: timedelta, ctx: EngineContext
    ) -> T | StopReason | None:
        """What comes of the work; else why it was stopped, or None where it took too long."""
        over: Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        task = asyncio.create_task(work)
        task.add_done_callback(end)
        self.stop.add_done_callback(end)
        late = ctx.timeouts.queue(limit.total_seconds())
        late.add(end)
        try:
            await over
        finally:
            late.remove(end)
            is_done = task.done()
            await self._let_go(task, ctx.meter)
        if is_done:
            with contain_cancellation():
                return task.result()
        return self.stop.result() if self.stop.done() else None

    async def _let_go(self, task: "asyncio.Task[Any]", meter: Meter) -> None:
        """Whether the agent heeds it or not, its turn is over: what it still says is not heard."""
        self.is_over = True
        if task.done():
            return
        told = {"action": "agent.unresponsive", "turn": self.turn.number}
        task.cancel()
        task.add_done_callback(partial(log_task_error, log, "the agent broke while it was stopped", told))
        await asyncio.wait({task}, timeout=_LET_GO)
        if not task.done():
            meter.count("agents_left")
            log.error("the agent does not stop; it is left to itself", extra=told)


_AFTER = 0.5
"""What is answered sooner needs no sign."""
_EVERY = 4.0
"""Platforms let the sign go out after about five seconds."""


class TypingIndicator:
    """The sign that somebody is writing, from a moment after it is made until its end."""

    def __init__(self, ctx: EngineContext, source: Source) -> None:
        self._replies = ctx.replies
        self._source = source
        self._shows: asyncio.Task[None] | None = None
        self._context = copy_context()
        self._soon = ctx.timeouts.queue(_AFTER)
        self._soon.add(self._begin)

    def end(self) -> None:
        self._soon.remove(self._begin)
        if self._shows is not None:
            self._shows.cancel()

    def _begin(self) -> None:
        self._shows = asyncio.create_task(self._show(), context=self._context)

    async def _show(self) -> None:
        """Until cancelled, or until the platform does not want it: a sign is worth no second try."""
        adapter = self._replies.adapter_for(self._source.platform, self._source.account)
        try:
            there = self._replies.to(self._source, "…")
            while there and supports(adapter, Typing):
                async with asyncio.timeout(_EVERY):
                    await adapter.typing(there[0])
                await asyncio.sleep(_EVERY)
        except Exception as error:  # noqa: BLE001 - the answer comes without it
            log.info("typing is not shown: %s", describe_error(error), extra={"action": "typing.failed"})
