"""Trying an agent: whether it answers at all, found out with one tiny question."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import nullcontext

from rich.console import Console

from palaver.cli.loop import run
from palaver.config.secrets import SET
from palaver.domain.errors import PalaverError
from palaver.domain.redact import redact
from palaver.domain.text import one_line
from palaver.domain.transcript import Role
from palaver.domain.view import Message
from palaver.ports.agent import Agent, Closable, Event, Failure, Final, Request

__all__ = ["NotReached", "try_out"]

_PATIENCE = 90.0
_LONGEST = 300
_QUESTION = Request(
    session="setup", turn=0, attempt=1, section="", messages=(Message(Role.USER, "Say yes, in one word."),)
)


class NotReached(PalaverError):
    """It was asked something, and did not answer."""


def try_out(agent: Agent, name: str, secret: str) -> None:
    """Raises NotReached, saying why, without the secret in it."""
    waits = Console(stderr=True).status(f"Asking {name}") if sys.stderr.isatty() else nullcontext()
    with waits:
        problem = run(_problem(agent))
    if problem:
        told = one_line(redact(problem.replace(secret, SET) if secret else problem), _LONGEST)
        raise NotReached(f"{name} does not answer: {told}; nothing was changed, and --no-test does not ask")


async def _problem(agent: Agent) -> str:
    try:
        async with asyncio.timeout(_PATIENCE):
            return await _first_outcome(agent.answer(_QUESTION))
    except TimeoutError:
        return f"nothing came in {_PATIENCE:.0f} seconds"
    finally:
        if isinstance(agent, Closable):
            await agent.close()


async def _first_outcome(events: AsyncIterator[Event]) -> str:
    async for event in events:
        if isinstance(event, Final):
            return ""
        if isinstance(event, Failure):
            return event.detail
    return "it ended without an answer"
