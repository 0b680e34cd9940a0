"""Test an agent with one small question, and wait for the answer in the terminal."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TypeVar

from palaver.cli.loop import run
from palaver.cli.output import progress_line
from palaver.gateway.probe import Answer, ask_account, ask_agent
from palaver.model.errors import PalaverError
from palaver.protocols.agent import Agent, Failure

T = TypeVar("T")

_STEP_S = 1.0


class NotReached(PalaverError):
    """The agent did not answer."""


def try_out(build: Callable[[], Agent], name: str, secret: str) -> None:
    """Raise NotReached with the reason, without the secret."""
    if problem := find_problem(build, name, secret):
        why = problem.detail.removesuffix(".")
        raise NotReached(f"{name} does not answer: {why}. Nothing was changed. Use --no-test to skip the test.")


def find_problem(build: Callable[[], Agent], name: str, secret: str) -> Failure | None:
    """Ask the agent one question; return why it does not answer, without the secret; None if it does."""
    with progress_line() as show:
        show(f"Testing {name} …")  # what it imports can take seconds
        agent = build()
        return run(_watch(ask_agent(agent, secret), name, show))


def try_account(platform: str, account: str, options: Mapping[str, object]) -> Answer:
    """Ask the platform about the account."""
    with progress_line() as show:
        return run(_watch(ask_account(platform, account, options), platform, show))


async def _watch(test: Coroutine[None, None, T], name: str, show: Callable[[str], None]) -> T:
    """Show how long a test takes."""
    testing, began = asyncio.create_task(test), time.monotonic()
    while not testing.done():
        show(f"Testing {name} ({time.monotonic() - began:.0f} s)")
        await asyncio.wait([testing], timeout=_STEP_S)
    return testing.result()
