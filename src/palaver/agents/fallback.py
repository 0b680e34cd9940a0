"""An agent with models in order: if one is down, out of credit or too small, the next answers.

A model that failed rests for a while; then it is asked first again. The gateway asks again with what tools did before
the failure, so nothing is done twice.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol

from palaver.model.errors import PalaverError
from palaver.model.session import ModelOverride
from palaver.protocols.agent import (
    Agent,
    Closable,
    Event,
    Excerpt,
    Failure,
    FailureKind,
    Final,
    GeneratedText,
    Priced,
    Request,
    Summarising,
    Titling,
)
from palaver.protocols.recent import remember

_REST_SECONDS: Mapping[FailureKind, float] = {
    FailureKind.TRANSIENT: 30.0,
    FailureKind.UNREACHABLE: 60.0,
    FailureKind.RATE_LIMITED: 60.0,
    FailureKind.NO_CREDIT: 600.0,
    FailureKind.UNAUTHORIZED: 600.0,
    FailureKind.UNKNOWN_MODEL: 600.0,
}
"""How long a model rests after a failure of its provider. Other failures are about one message."""
_LONGEST_REST_SECONDS = 3600.0
_MAX_TURNS = 1_000


class ModelAgentLike(Agent, Summarising, Titling, Priced, Closable, Protocol):
    def models(self) -> Sequence[ModelOverride]: ...


@dataclass(eq=False)
class _Candidate:
    name: str
    """`provider:model`."""
    agent: ModelAgentLike
    rests_until: float = 0.0
    failures: int = 0
    """How often it failed since it answered last."""


@dataclass
class FallbackAgent:
    candidates: Sequence[_Candidate]
    """The preferred one first."""
    clock: Callable[[], float] = time.monotonic
    _failed: dict[tuple[str, int], set[_Candidate]] = field(default_factory=dict[tuple[str, int], set[_Candidate]])
    """The models that failed in a turn that goes on."""

    @classmethod
    def of(cls, agents: Sequence[tuple[str, ModelAgentLike]]) -> "FallbackAgent":
        """Make it of models by name, the preferred one first."""
        return cls([_Candidate(name, agent) for name, agent in agents])

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        failed = self._failed.get((request.session, request.turn), set[_Candidate]())
        chosen = self._choose(failed)
        if chosen is not self.candidates[0]:
            request = replace(request, override=None)  # it names a model of the first
        async with aclosing(_stream(chosen.agent, request)) as events:
            async for event in events:
                if isinstance(event, Final):
                    chosen.failures, chosen.rests_until = 0, 0.0
                yield self._judge(chosen, event, request) if isinstance(event, Failure) else event

    def _choose(self, failed: set[_Candidate]) -> _Candidate:
        """Return the first model that did not fail in this turn and does not rest; if all rest, the first."""
        left = [each for each in self.candidates if each not in failed] or self.candidates
        return next((each for each in left if each.rests_until <= self.clock()), left[0])

    def _judge(self, model: _Candidate, failure: Failure, request: Request) -> Failure:
        """Let the model rest if its provider failed, and name the one that answers instead."""
        self._pause_after(model, failure)
        turn = request.session, request.turn
        failed = {*self._failed.pop(turn, ()), model}
        left = [each for each in self.candidates if each not in failed and _can_help(each, model, failure)]
        if not left:
            return replace(failure, model=model.name)
        # What cannot help is not asked either: a model that is no larger would overflow again.
        failed = {each for each in self.candidates if each not in left}
        remember(self._failed, turn, failed, _MAX_TURNS)
        return replace(failure, model=model.name, instead=self._choose(failed).name)

    def _pause_after(self, model: _Candidate, failure: Failure) -> None:
        model.failures += failure.kind in _REST_SECONDS
        # A single hiccup of a provider is no outage.
        if failure.kind in _REST_SECONDS and (failure.kind is not FailureKind.TRANSIENT or model.failures > 1):
            seconds = max(failure.after or 0.0, _REST_SECONDS[failure.kind])
            model.rests_until = self.clock() + min(seconds, _LONGEST_REST_SECONDS)

    def is_falling_back(self) -> bool:
        return self.candidates[0].failures > 0

    def answers_instead(self) -> str | None:
        chosen = self._choose(set())
        return None if chosen is self.candidates[0] else chosen.name

    def models(self) -> Sequence[ModelOverride]:
        return self.candidates[0].agent.models()

    def unpriced_models(self) -> Sequence[str]:
        return list(dict.fromkeys(name for each in self.candidates for name in each.agent.unpriced_models()))

    def context_window(self, override: ModelOverride | None) -> int | None:
        return self.candidates[0].agent.context_window(override)

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        return await self._first(lambda agent, asked: agent.summarise(asked), passage)

    async def title(self, passage: Excerpt) -> GeneratedText:
        return await self._first(lambda agent, asked: agent.title(asked), passage)

    async def _first(
        self, generate: Callable[[ModelAgentLike, Excerpt], Awaitable[GeneratedText]], passage: Excerpt
    ) -> GeneratedText:
        """Return what the first model generates that works."""
        failed = set[_Candidate]()
        while True:
            chosen = self._choose(failed)
            first = chosen is self.candidates[0]
            try:
                return await generate(chosen.agent, passage if first else replace(passage, override=None))
            except PalaverError:
                failed.add(chosen)
                if len(failed) == len(self.candidates):
                    raise

    async def close(self) -> None:
        for each in self.candidates:
            await each.agent.close()


def _can_help(other: _Candidate, failed: _Candidate, failure: Failure) -> bool:
    """Tell whether another model is worth asking after this failure: after an overflow, only a larger one."""
    if failure.kind is not FailureKind.OVERFLOW:
        return failure.kind in _REST_SECONDS
    mine, its = failed.agent.context_window(None), other.agent.context_window(None)
    return mine is not None and its is not None and its > mine


async def _stream(agent: Agent, request: Request) -> AsyncGenerator[Event]:
    async for event in agent.answer(request):
        yield event
