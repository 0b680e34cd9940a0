"""Test an agent with one small question, and wait for the answer in the terminal."""

import sys
from contextlib import nullcontext

from rich.console import Console

from palaver.cli.loop import run
from palaver.gateway.probe import ask_agent
from palaver.model.errors import PalaverError
from palaver.protocols.agent import Agent, Failure


class NotReached(PalaverError):
    """The agent did not answer."""


def try_out(agent: Agent, name: str, secret: str) -> None:
    """Raise NotReached with the reason, without the secret."""
    if problem := find_problem(agent, name, secret):
        why = problem.detail.removesuffix(".")
        raise NotReached(f"{name} does not answer: {why}. Nothing was changed. Use --no-test to skip the test.")


def find_problem(agent: Agent, name: str, secret: str) -> Failure | None:
    """Ask the agent one question; return why it does not answer, without the secret; None if it does."""
    waits = Console(stderr=True).status(f"Asking {name}") if sys.stderr.isatty() else nullcontext()
    with waits:
        return run(ask_agent(agent, secret))
