"""Accounts asked, all at once, whether what was configured for them works."""

import asyncio
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from palaver.domain.errors import PalaverError
from palaver.domain.redact import redact
from palaver.domain.text import one_line
from palaver.engine.traces import trace
from palaver.platforms.others import make_adapter
from palaver.ports.adapter import Checking, Listening, PlatformError

__all__ = ["Answer", "ask_account", "ask_accounts"]

_PATIENCE = 20.0
_LONGEST = 300

Account = tuple[str, str, Mapping[str, object]]
"""Platform, name, options."""


class Answer(NamedTuple):
    ok: bool
    words: str
    """Who we are there, or what is wrong and what to do."""
    is_called: bool = False
    """It only hears while a window is open."""
    was_asked: bool = True
    """False for an adapter that cannot be asked without serving its account."""


async def ask_accounts(accounts: Sequence[Account]) -> Sequence[Answer]:
    return await asyncio.gather(*(ask_account(*account) for account in accounts))


async def ask_account(platform: str, account: str, options: Mapping[str, object]) -> Answer:
    with _unheard():
        return await _answer(platform, account, options)


@contextmanager
def _unheard() -> Generator[None]:
    """What is logged meanwhile, by libraries mostly, is not printed: the answer says what is wrong."""
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
    is_called = isinstance(adapter, Listening) and adapter.listens
    if not isinstance(adapter, Checking):
        return Answer(ok=True, words="", is_called=is_called, was_asked=False)
    ok, words = await _words(adapter)
    return Answer(ok=ok, words=one_line(redact(words), _LONGEST), is_called=is_called)


async def _words(adapter: Checking) -> tuple[bool, str]:
    try:
        async with asyncio.timeout(_PATIENCE):
            return True, await adapter.check()
    except TimeoutError:
        return False, f"no answer in {_PATIENCE:.0f} seconds: is the network there?"
    except PlatformError as error:
        return False, str(error)
    except Exception as error:  # noqa: BLE001 - whatever an adapter raises, the others are told of
        return False, f"the adapter broke: {trace(error)}"
