"""Test an agent with one small question, and accounts with their adapter's check."""

import asyncio
import logging
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

from palaver.config.secrets import SET
from palaver.engine.retry import describe_error
from palaver.model.errors import PalaverError
from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.transcript import Role
from palaver.model.view import Message
from palaver.platforms.plugins import make_adapter
from palaver.protocols.adapter import PlatformError
from palaver.protocols.agent import Agent, Closable, Event, Failure, FailureKind, Final, Request
from palaver.protocols.capabilities import Checking, HttpCallbacks

_ANSWER_TIMEOUT_S = 90.0
_MAX_CHARS = 300
_QUESTION = Request(
    session="setup", turn=0, attempt=1, section="", messages=(Message(Role.USER, "Say yes, in one word."),)
)


async def ask_agent(agent: Agent, secret: str) -> Failure | None:
    """Ask the agent one question and close it; return why it does not answer, without the secret; None if it does."""
    problem = await _problem(agent)
    if problem is None:
        return None
    detail = problem.detail.replace(secret, SET) if secret else problem.detail
    return replace(problem, detail=one_line(redact(detail), _MAX_CHARS))


async def _problem(agent: Agent) -> Failure | None:
    try:
        async with asyncio.timeout(_ANSWER_TIMEOUT_S):
            return await _first_outcome(agent.answer(_QUESTION))
    except TimeoutError:
        return Failure(kind=FailureKind.STUCK, detail=f"no answer in {_ANSWER_TIMEOUT_S:.0f} seconds")
    finally:
        if isinstance(agent, Closable):
            await agent.close()


async def _first_outcome(events: AsyncIterator[Event]) -> Failure | None:
    async for event in events:
        if isinstance(event, Final):
            return None
        if isinstance(event, Failure):
            return event
    return Failure(kind=FailureKind.FATAL, detail="it ended without an answer")


_CHECK_TIMEOUT_S = 20.0

Account = tuple[str, str, Mapping[str, object]]
"""Platform, name, options."""


class Answer(NamedTuple):
    ok: bool
    words: str
    """The account's name on the platform, or what is wrong and what to do."""
    is_called: bool = False
    """It receives only while the web server is enabled."""
    was_asked: bool = True
    """False if the adapter cannot check without serving the account."""


async def ask_accounts(accounts: Sequence[Account]) -> Sequence[Answer]:
    return await asyncio.gather(*(ask_account(*account) for account in accounts))


async def ask_account(platform: str, account: str, options: Mapping[str, object]) -> Answer:
    with _quiet_logs():
        return await _answer(platform, account, options)


@contextmanager
def _quiet_logs() -> Generator[None]:
    """Suppress log output of libraries: the result says what is wrong."""
    root, nowhere = logging.getLogger(), logging.NullHandler()
    root.addHandler(nowhere)
    try:
        yield
    finally:
        root.removeHandler(nowhere)


async def _answer(platform: str, account: str, options: Mapping[str, object]) -> Answer:
    try:
        adapter = make_adapter(platform, account, options)
    except PalaverError as error:
        return Answer(ok=False, words=str(error))
    is_called = isinstance(adapter, HttpCallbacks) and adapter.takes_callbacks
    if not isinstance(adapter, Checking):
        return Answer(ok=True, words="", is_called=is_called, was_asked=False)
    ok, words = await _words(adapter)
    return Answer(ok=ok, words=one_line(redact(words), _MAX_CHARS), is_called=is_called)


async def _words(adapter: Checking) -> tuple[bool, str]:
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT_S):
            return True, await adapter.check()
    except TimeoutError:
        return False, f"no answer in {_CHECK_TIMEOUT_S:.0f} seconds. Check the network."
    except PlatformError as error:
        return False, str(error)
    except Exception as error:  # noqa: BLE001 - one broken adapter must not hide the others
        return False, f"the adapter failed: {describe_error(error)}"
