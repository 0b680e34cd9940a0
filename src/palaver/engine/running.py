"""A turn that this process works on, and how to stop it."""

from asyncio import Future
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from palaver.domain.source import Source
from palaver.domain.turn import Received, Turn
from palaver.engine.answering import Answering
from palaver.engine.drafts import Draft
from palaver.engine.scene import Scene

__all__ = ["Running", "Stop"]


class Stop(StrEnum):
    """Why a turn ends before its agent is done."""

    ASKED = "somebody asked for it"
    NEWER = "a newer message takes its place"
    DRAIN = "the gateway shuts down"
    LOST = "another worker has taken it over"


@dataclass(kw_only=True)
class Running:
    """A turn that this process works on, and how to stop it."""

    turn: Turn
    messages: Sequence[Received]
    stop: Future[Stop]
    scene: Scene | None = None
    """What the agent is to be shown, if that is known already."""
    draft: Draft | None = None
    answering: Answering | None = None
    is_over: bool = False
    """Nothing that the agent still says is heard."""

    @property
    def source(self) -> Source:
        """Where the answer goes: to whoever spoke last."""
        return self.messages[-1].inbound.source

    def end(self, why: Stop) -> None:
        if not self.stop.done():
            self.stop.set_result(why)
