"""What a homeserver answers when it does not do what it was asked, as the errors of an adapter."""

from collections.abc import Generator
from contextlib import contextmanager

import aiohttp
from nio.exceptions import EncryptionError, GroupEncryptionError, LocalProtocolError, MembersSyncError
from nio.responses import ErrorResponse

from palaver.protocols.adapter import (
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
)

__all__ = [
    "EXPIRES",
    "asking",
    "is_lost",
    "refusal",
    "sending",
    "unanswered",
    "unheard",
    "unsent",
]

EXPIRES = (
    "tokens from Element end within hours where the homeserver has the Matrix Authentication Service,"
    " as matrix.org has; configure password instead there"
)
_PATIENCE = 5.0
"""Seconds to wait where a homeserver asks for patience and does not say how much."""
_LOGGED_OUT = frozenset({"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN"})
_SHUT = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_GUEST_ACCESS_FORBIDDEN"})
_NO_POSITION = frozenset({"M_UNKNOWN", "M_INVALID_PARAM"})
_OUR_FAULT = range(400, 500)
_BAD_REQUEST = 400
_TOO_SLOW = 408
_BUSY = 429
_NO = frozenset({_BAD_REQUEST, 403, 404, 413})
"""What is answered so is answered so tomorrow, too."""


def refusal(answer: ErrorResponse) -> PlatformError | None:
    """What any request may be told; None for what only the request itself can make sense of."""
    code = answer.status_code or ""
    if code == "M_LIMIT_EXCEEDED":
        return PlatformBusy((answer.retry_after_ms or _PATIENCE * 1000) / 1000)
    if code in _LOGGED_OUT:
        return PlatformRefused(f"the access token is not valid any more ({code}): configure a new one; {EXPIRES}")
    if code == "M_USER_DEACTIVATED":
        return PlatformRefused(f"the account is deactivated ({code}): configure another one")
    return None


def unheard(answer: ErrorResponse) -> PlatformError:
    """Of reading. To be asked to wait is a connection that does not stand."""
    known = refusal(answer)
    if isinstance(known, PlatformRefused):
        return known
    return PlatformDown(str(known or f"the homeserver does not tell what is new: {answer.status_code or 'no reason'}"))


def is_lost(answer: object) -> bool:
    """The homeserver can make nothing of the position that we give. Whoever stands before it speaks without a code."""
    if not isinstance(answer, ErrorResponse) or answer.status_code not in _NO_POSITION:
        return False
    return getattr(answer.transport_response, "status", 0) == _BAD_REQUEST


def unanswered(answer: ErrorResponse, status: int) -> PlatformError | None:
    """Of anything else. None where the answer is a plain no."""
    if known := refusal(answer):
        return known
    if status == _BUSY:
        return PlatformBusy(_PATIENCE)
    return None if status in _NO else PlatformDown(f"the homeserver answers {status}")


def unsent(answer: ErrorResponse) -> PlatformError:
    """Of a message."""
    code = answer.status_code or ""
    if known := refusal(answer):
        return known
    if code in _SHUT:
        return TargetGone(f"we may not write there ({code})")
    status = getattr(answer.transport_response, "status", 0)
    if status == _BUSY:
        return PlatformBusy(_PATIENCE)
    if status in _OUR_FAULT and status != _TOO_SLOW:
        return SendRefused(f"the homeserver does not take it ({code or status})")
    return SendUnclear(f"the homeserver did not say whether it was sent ({code or 'no reason'})")


@contextmanager
def asking() -> Generator[None]:
    """Requests that may be made again without harm."""
    try:
        yield
    except (aiohttp.ClientError, TimeoutError) as error:
        raise PlatformDown(f"no answer from the homeserver: {type(error).__name__}") from error


@contextmanager
def sending() -> Generator[None]:
    """Only where no connection was made is it certain that nothing was sent."""
    try:
        yield
    except aiohttp.ClientConnectorError as error:
        raise PlatformDown("the homeserver cannot be reached") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise SendUnclear(f"the connection was lost while sending: {type(error).__name__}") from error
    except (GroupEncryptionError, MembersSyncError) as error:
        raise PlatformDown("the key of the room is not with everybody yet") from error
    except (EncryptionError, LocalProtocolError) as error:
        raise SendRefused(f"it cannot be encrypted: {type(error).__name__}") from error
