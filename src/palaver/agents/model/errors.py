"""Failures: what a provider's errors mean for a turn."""

import re
from collections.abc import Sequence
from dataclasses import field
from hashlib import blake2b

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

from palaver.model.redact import redact
from palaver.model.text import one_line
from palaver.model.value import value
from palaver.model.view import Message
from palaver.protocols.agent import Failure, FailureKind

__all__ = [
    "CUT_OFF",
    "PROVIDER_ERRORS",
    "Refusals",
    "failure_of",
    "is_about_content",
]

_MOST = 4_096
"""So many are known; one that was forgotten is refused, and known, again."""


@value(kw_only=False)
class Refusals:
    _known: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def add(self, messages: Sequence[Message]) -> None:
        """Which of them was refused nobody says, so it was all of them."""
        self._known.update(dict.fromkeys(_digest(blob) for message in messages for blob in message.blobs))
        for oldest in list(self._known)[:-_MOST]:
            del self._known[oldest]

    def without(self, messages: Sequence[Message]) -> list[Message]:
        """Of a message with one that was refused, the words alone are left."""
        return [
            message._replace(blobs=()) if any(_digest(blob) in self._known for blob in message.blobs) else message
            for message in messages
        ]


def _digest(blob: bytes) -> bytes:
    return blake2b(blob, digest_size=16).digest()


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
