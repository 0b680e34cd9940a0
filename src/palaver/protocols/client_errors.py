"""Translate what a client library raises into the errors of an adapter."""

import re
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from palaver.model.value import value
from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)
from palaver.protocols.capabilities import unannounced

_CLIENT_ERRORS = range(400, 500)
_MAX_WORDS = 200
_DEFAULT_WAIT_SECONDS = 5.0
"""How long to wait if a rate limit does not say."""
_MAX_WAIT_SECONDS = 3600.0
_SECONDS = re.compile(r"[0-9]+(\.[0-9]+)?")
"""In a header: the standard has whole seconds, some services send fractions."""


@value
class ClientErrors:
    """What a client library raises, and what it means: `with errors.sends(): await client.send(…)`."""

    title: str
    """Whom we are connected to: `Telegram`, `the homeserver`."""
    raised: tuple[type[Exception], ...]
    """Everything that the library raises about the platform: error answers, lost connections, timeouts."""
    unsent: tuple[type[Exception], ...] = ()
    """Those before which nothing was sent. They can also be the cause of another error."""
    explain: Callable[..., PlatformError | None] = lambda *_, **__: None
    """Return what an error answer means, usually with `answer_error`; None if there was no answer.

    Called as `explain(error, sending=…)`.
    """
    hint: str = ""
    """What to do if there is no connection for long."""

    @contextmanager
    def requests(self) -> Generator[None]:
        """Translate errors of requests that are safe to repeat, and announce none of them."""
        try:
            with unannounced():
                yield
        except self.raised as error:
            raise self.of_request(error) from error

    @contextmanager
    def sends(self) -> Generator[None]:
        """Translate errors of a send: it may have arrived, unless the platform refused it or nothing was sent."""
        try:
            yield
        except self.raised as error:
            raise self.of_send(error) from error

    def of_request(self, error: Exception) -> PlatformError:
        return self.explain(error, sending=False) or self._down(error)

    def of_send(self, error: Exception) -> PlatformError:
        if known := self.explain(error, sending=True):
            return known
        if isinstance(error, self.unsent) or isinstance(error.__cause__, self.unsent):
            return self._down(error)
        return SendUnclear(f"The connection was lost while sending: {_cause(error)}")

    def _down(self, error: Exception) -> PlatformDown:
        cause = _cause(error)
        why = "" if cause in _NOT_CONNECTED else f": {cause}"
        return PlatformDown(f"There is no connection to {self.title}{why}. {self.hint or 'Check the network.'}")


_NOT_CONNECTED = {"ConnectError", "ConnectTimeout", "ClientConnectorError", "ConnectionTimeoutError"}
"""Errors whose name says nothing more to people."""


def _cause(error: Exception) -> str:
    """Return only the type: the text can contain the URL, and with it a token."""
    return type(error.__cause__ if isinstance(error.__cause__, Exception) else error).__name__


def answer_error(
    title: str,
    status: int,
    *,
    sending: bool,
    words: str = "",
    after: float | None = None,
    fix: str = "",
    gone: Collection[int] = (),
) -> PlatformError:
    """Translate an HTTP error answer, which says `words`.

    `after` is how long it asks to wait, `fix` what a person does about 401, and `gone` has the statuses of a lost chat.
    """
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.SERVICE_UNAVAILABLE and after is not None):
        return PlatformBusy(after or _DEFAULT_WAIT_SECONDS)
    if status == HTTPStatus.UNAUTHORIZED:
        return PlatformRefused(fix or f"{title} does not accept the credentials.")
    if status not in _CLIENT_ERRORS or status == HTTPStatus.REQUEST_TIMEOUT:
        return (SendUnclear if sending else PlatformDown)(f"{title} answered {status}.")
    return (TargetGone if status in gone else SendRefused)(f"{title} rejects it: {words[:_MAX_WORDS] or status}")


def parse_retry_after(header: str) -> float | None:
    """Return the seconds in a Retry-After header, or until its date, at most an hour; None if it says neither."""
    try:
        is_number = _SECONDS.fullmatch(header.strip())
        seconds = float(header) if is_number else (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), _MAX_WAIT_SECONDS)
