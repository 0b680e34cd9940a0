"""Translate errors of a homeserver into errors of an adapter."""

from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus

import aiohttp
from nio.exceptions import EncryptionError, GroupEncryptionError, LocalProtocolError, MembersSyncError
from nio.responses import ErrorResponse

from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    TargetGone,
    answer_error,
)

EXPIRY_HINT = (
    "Tokens from Element expire within hours on homeservers with the Matrix Authentication Service, such as"
    " matrix.org: configure password there instead."
)
_DEFAULT_WAIT_SECONDS = 5.0
"""How long to wait if a rate limit does not say."""
_LOGGED_OUT = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
_NO_ACCESS = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN"})
_POSITION_ERRORS = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})
_DEFINITE = frozenset({400, 403, 404, 413})
"""Statuses that a retry would not change."""


def common_error(answer: ErrorResponse) -> PlatformError | None:
    """Translate the errors that any request can get; None for others."""
    code = answer.status_code or ""
    if code == "M_LIMIT_EXCEEDED":
        return PlatformBusy((answer.retry_after_ms or _DEFAULT_WAIT_SECONDS * 1000) / 1000)
    if code in _LOGGED_OUT:
        return PlatformRefused(f"The access token has expired ({code}). Configure a new one. {EXPIRY_HINT}")
    if code == "M_USER_DEACTIVATED":
        return PlatformRefused(f"The account is deactivated ({code}). Configure another one.")
    return None


def sync_error(answer: ErrorResponse) -> PlatformError:
    """Translate an error of /sync. A rate limit counts as a lost connection."""
    known = common_error(answer)
    if isinstance(known, PlatformRefused):
        return known
    return PlatformDown(str(known or f"The sync failed: {answer.status_code or 'no reason given'}"))


def is_unknown_position(answer: object) -> bool:
    """Return whether the homeserver rejects our position. A proxy in front of it would send no error code."""
    if not isinstance(answer, ErrorResponse) or answer.status_code not in _POSITION_ERRORS:
        return False
    return getattr(answer.transport_response, "status", 0) == HTTPStatus.BAD_REQUEST


def request_error(answer: ErrorResponse, status: int) -> PlatformError | None:
    """Translate an error of any other request; None for a definite no."""
    if known := common_error(answer):
        return known
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return PlatformBusy(_DEFAULT_WAIT_SECONDS)
    return None if status in _DEFINITE else PlatformDown(f"The homeserver answered {status}.")


def send_error(answer: ErrorResponse) -> PlatformError:
    """Translate an error of sending a message."""
    code = answer.status_code or ""
    if known := common_error(answer):
        return known
    if code in _NO_ACCESS:
        return TargetGone(f"We cannot write to this room ({code}).")
    status = getattr(answer.transport_response, "status", 0)
    return answer_error("The homeserver", status, sending=True, words=code)


API = ClientErrors(
    title="the homeserver",
    raised=(aiohttp.ClientError, TimeoutError),
    unsent=(aiohttp.ClientConnectorError,),
    hint="If that lasts, check the homeserver option and the network.",
)


@contextmanager
def encryption_errors() -> Generator[None]:
    """Translate errors of encrypting a message: nothing was sent."""
    try:
        yield
    except (GroupEncryptionError, MembersSyncError) as error:
        raise PlatformDown("The room key has not reached every member yet.") from error
    except (EncryptionError, LocalProtocolError) as error:
        raise SendRefused(f"The message cannot be encrypted: {type(error).__name__}") from error
