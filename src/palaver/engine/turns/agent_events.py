"""Answering: the agent's events become entries as they happen, and at the end an outcome."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from palaver.engine.retry import Timeouts, contain_cancellation, log_error
from palaver.model.errors import StoreError
from palaver.model.transcript import Entry, Role, ToolCall
from palaver.model.turn import Usage
from palaver.model.view import open_calls
from palaver.protocols.agent import (
    Agent,
    ApprovalNeeded,
    Event,
    Failure,
    FailureKind,
    Final,
    Request,
    TextDelta,
    ToolCalled,
    ToolReturned,
    UsageReport,
)

__all__ = [
    "AgentRun",
    "Outcome",
]

log = logging.getLogger(__name__)

_CLOSE_LIMIT = 5.0

Outcome = Final | Failure | ApprovalNeeded


@dataclass(kw_only=True)
class AgentRun:
    """One agent at work on one turn."""

    agent: Agent
    write: Callable[[Entry], Awaitable[None]]
    """Makes an entry durable under the turn's fence."""
    show: Callable[[str], None]
    """Given all that was said so far, again and again."""
    now: Callable[[], datetime]
    timeouts: Timeouts
    quiet_limit: timedelta
    usage: Usage = field(default_factory=Usage)
    said: str = ""
    """What was heard of the answer so far."""
    has_called: bool = False
    """Something was called since the turn was taken up: whatever a person allowed before was for other calls."""
    _called: dict[str, ToolCall] = field(default_factory=dict[str, ToolCall])
    """What the agent called last and has no result of, by id."""
    _placed: int = 0
    """Tokens put out that stand with an entry already."""

    async def ask(self, request: Request) -> Outcome:
        """Until the agent is done, has failed, or has said nothing for too long."""
        self.said = ""
        self._called = {call.id: call for call in open_calls(request.messages)}
        try:
            with contain_cancellation():
                return await self._heard(request)
        except StoreError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever an agent raises ends one turn
            log_error(log, "the agent broke", error, {"action": "agent.error", "turn": request.turn})
            return Failure(kind=FailureKind.FATAL, detail=f"the agent broke: {type(error).__name__}")

    async def _heard(self, request: Request) -> Outcome:
        stream = aiter(self.agent.answer(request))
        try:
            return await self._until_done(stream)
        finally:
            await self._close(stream, request.turn)

    def take_tokens(self) -> int:
        """What was put out since the last entry of the agent, as far as it has reported."""
        tokens = self.usage.output_tokens - self._placed
        self._placed += tokens
        return tokens

    async def _close(self, stream: AsyncIterator[Event], turn: int) -> None:
        """However the agent cleans up after itself, what it has answered counts."""
        try:
            if isinstance(stream, AsyncGenerator):
                with self.timeouts.timeout(_CLOSE_LIMIT), contain_cancellation():
                    await stream.aclose()
        except Exception as error:  # noqa: BLE001 - see above
            log_error(log, "the agent did not close", error, {"action": "agent.close_error", "turn": turn})

    async def _until_done(self, stream: AsyncIterator[Event]) -> Outcome:
        while True:
            event = await self._next(stream)
            if isinstance(event, ApprovalNeeded):
                if event.call.id not in self._called:
                    await self._take(ToolCalled(calls=(event.call,)))
                elif event.call != self._called[event.call.id]:
                    return Failure(kind=FailureKind.FATAL, detail="the agent asked about another call than it had made")
            if isinstance(event, Outcome):
                return event
            await self._take(event)

    async def _next(self, stream: AsyncIterator[Event]) -> Event:
        quiet = self.timeouts.timeout(self.quiet_limit.total_seconds())
        try:
            with quiet:
                return await anext(stream)
        except TimeoutError:
            if not quiet.expired:  # then it is the agent's own
                raise
            return Failure(kind=FailureKind.STUCK, detail=f"the agent said nothing for {self.quiet_limit}")
        except StopAsyncIteration:
            return Failure(kind=FailureKind.FATAL, detail="the agent ended without an answer")

    async def _take(self, event: TextDelta | ToolCalled | ToolReturned | UsageReport) -> None:
        match event:
            case TextDelta(text):
                self.said += text
                self.show(self.said)
            case UsageReport(usage):
                self.usage = self.usage.plus(usage)
            case ToolCalled():
                self.said = ""
                self.has_called = True
                self._called = {call.id: call for call in event.calls}
                await self.write(
                    Entry(
                        seq=0,
                        role=Role.ASSISTANT,
                        at=self.now(),
                        text=event.text,
                        calls=event.calls,
                        reasoning=event.reasoning,
                        blob=event.blob,
                        tokens=self.take_tokens(),
                    )
                )
            case ToolReturned():
                self._called.pop(event.call, None)
                await self.write(Entry(seq=0, role=Role.TOOL, at=self.now(), text=event.text, answers=event.call))
