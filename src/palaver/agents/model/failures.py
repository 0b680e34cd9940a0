"""Failures: what a provider's errors mean for a turn."""

import re

from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelServerError,
    ModelUnavailableError,
    UnexpectedModelBehavior,
)

from palaver.domain.redact import redact
from palaver.domain.text import one_line
from palaver.ports.agent import Failure, FailureKind

__all__ = ["CUT_OFF", "PROVIDER_ERRORS", "failure_of", "is_about_content"]

PROVIDER_ERRORS = (AgentRunError,)
"""Whatever comes of asking a provider; anything else is a mistake of ours."""
CUT_OFF = Failure(kind=FailureKind.TRANSIENT, detail="the answer of the provider was cut off")
_MAY_PASS = (
    ModelRateLimitError,
    ModelServerError,
    ModelUnavailableError,
    ModelConnectionError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
)
_WORTH_ANOTHER_TRY = frozenset({408, 409, 425, 429})
_SERVERS_FAULT = 500
_TOO_LONG = re.compile(r"context (?:length|size|window)|prompt is too long|too many (?:input )?tokens", re.IGNORECASE)
"""How servers say so that have no code for it, such as llama.cpp."""
_LONGEST = 300


def failure_of(error: AgentRunError, secret: str | None) -> Failure:
    """The detail may quote the provider, never the key."""
    said = str(error) if secret is None else str(error).replace(secret, "(key)")
    detail = one_line(redact(f"{type(error).__name__}: {said}"), _LONGEST)
    after = error.retry_after if isinstance(error, ModelAPIError) else None
    return Failure(kind=_kind(error), detail=detail, after=after)


def is_about_content(error: ModelRequestRejectedError) -> bool:
    """Whether less might be taken. What is not found may be the model, or something that the request refers to."""
    return not isinstance(error, ModelAuthenticationError) and _kind(error) is FailureKind.FATAL


def _kind(error: AgentRunError) -> FailureKind:
    if isinstance(error, ModelContextWindowExceededError) or _finds_too_long(error):
        return FailureKind.OVERFLOW
    if isinstance(error, ModelQuotaExceededError):
        return FailureKind.FATAL
    if isinstance(error, _MAY_PASS) or type(error) is ModelAPIError:  # an answer that is none
        return FailureKind.TRANSIENT
    if isinstance(error, ModelHTTPError) and _is_passing(error.status_code):
        return FailureKind.TRANSIENT
    return FailureKind.FATAL


def _finds_too_long(error: AgentRunError) -> bool:
    return isinstance(error, ModelRequestRejectedError) and bool(_TOO_LONG.search(str(error)))


def _is_passing(status: int) -> bool:
    return status >= _SERVERS_FAULT or status in _WORTH_ANOTHER_TRY
