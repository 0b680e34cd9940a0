"""A turn that this process works on, and how to stop it."""

import asyncio
import logging
from asyncio import Future
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from functools import partial
from typing import Any, TypeVar

from palaver.domain.access import AccessRole
from palaver.domain.attachment import Attachment
from palaver.domain.source import Source
from palaver.domain.turn import Offered, Received, Turn, Usage
from palaver.domain.value import value
from palaver.engine.answering import Answering
from palaver.engine.drafts import Draft
from palaver.engine.ground import Ground
from palaver.engine.scene import Scene
from palaver.engine.traces import log_if_broken
from palaver.engine.waiting import contained
from palaver.ports.agent import Final
from palaver.ports.meter import Meter

__all__ = ["Running", "Stop", "Wish"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_LET_GO = 5.0
"""For how many seconds an agent is waited for that was told to stop."""


class Stop(StrEnum):
    """Why a turn ends before its agent is done."""

    ASKED = "somebody asked for it"
    NEWER = "a newer message takes its place"
    DRAIN = "the gateway shuts down"
    LOST = "another worker has taken it over"


@value
class Wish:
    """That a conversation be summarised."""

    focus: str = ""
    is_asked: bool = False
    """Somebody waits for a word about it."""


@dataclass(kw_only=True)
class Running:
    """A turn that this process works on, and how to stop it."""

    turn: Turn
    messages: Sequence[Received]
    stop: Future[Stop]
    scene: Scene | None = None
    """What the agent is to be shown, if that is known already."""
    shown: Scene | None = None
    """What it was shown last."""
    steered: list[Received] = field(default_factory=list[Received])
    """What was said to it while it ran."""
    filed: dict[str, tuple[Attachment, ...]] = field(default_factory=dict[str, tuple[Attachment, ...]])
    """Files that were sent for a call, by its id: they stand with what came of it."""
    draft: Draft | None = None
    answering: Answering | None = None
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
    def offered(self) -> Mapping[str, Offered]:
        """What whoever is answered does for the agent, by name."""
        return {each.name: each for each in self.messages[-1].inbound.offers}

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

    def end(self, why: Stop) -> None:
        if not self.stop.done():
            self.stop.set_result(why)

    async def until_over(self, work: Coroutine[Any, Any, T], limit: timedelta, on: Ground) -> T | Stop | None:
        """What comes of the work; else why it was stopped, or None where it took too long."""
        over: Future[None] = asyncio.get_running_loop().create_future()

        def end(_: object = None) -> None:
            if not over.done():
                over.set_result(None)

        task = asyncio.create_task(work)
        task.add_done_callback(end)
        self.stop.add_done_callback(end)
        late = on.limits.after(limit.total_seconds())
        late.join(end)
        try:
            await over
        finally:
            late.leave(end)
            is_done = task.done()
            await self._let_go(task, on.meter)
        if is_done:
            with contained():
                return task.result()
        return self.stop.result() if self.stop.done() else None

    async def _let_go(self, task: "asyncio.Task[Any]", meter: Meter) -> None:
        """Whether the agent heeds it or not, its turn is over: what it still says is not heard."""
        self.is_over = True
        if task.done():
            return
        told = {"action": "agent.left", "turn": self.turn.number}
        task.cancel()
        task.add_done_callback(partial(log_if_broken, log, "the agent broke while it was stopped", told))
        await asyncio.wait({task}, timeout=_LET_GO)
        if not task.done():
            meter.count("agents_left")
            log.error("the agent does not stop; it is left to itself", extra=told)
