"""Provider errors: which failure each one is, and which blobs a provider rejected."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from hashlib import blake2b
from http import HTTPStatus
from typing import cast

import httpx2
from pydantic_ai.exceptions import (
    AgentRunError,
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
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

_MAX_REMEMBERED = 4_096


@value(kw_only=False)
class RejectedBlobs:
    """Remembers the latest blobs that a provider rejected."""

    _known: dict[bytes, None] = field(default_factory=dict[bytes, None])

    def add(self, messages: Sequence[Message]) -> None:
        """Remember the blobs of all messages: the provider does not say which one it rejected."""
        self._known.update(dict.fromkeys(_digest(blob) for message in messages for blob in message.blobs))
        for oldest in list(self._known)[:-_MAX_REMEMBERED]:
            del self._known[oldest]

    def without(self, messages: Sequence[Message]) -> list[Message]:
        """Remove the blobs of each message that has a rejected one."""
        return [
            message._replace(blobs=()) if any(_digest(blob) in self._known for blob in message.blobs) else message
            for message in messages
        ]


def _digest(blob: bytes) -> bytes:
    return blake2b(blob, digest_size=16).digest()


PROVIDER_ERRORS = (AgentRunError,)
"""All errors of a provider call; any other error is a bug of ours."""
CUT_OFF = Failure(kind=FailureKind.TRANSIENT, detail="the provider's answer was cut off")
_TRANSIENT_ERRORS = (
    ModelServerError,
    ModelUnavailableError,
    ModelConnectionError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
)
_SETUP_ERRORS: dict[type[AgentRunError], FailureKind] = {
    ModelQuotaExceededError: FailureKind.NO_CREDIT,
    ModelAuthenticationError: FailureKind.UNAUTHORIZED,
    ModelNotFoundError: FailureKind.UNKNOWN_MODEL,
}
_TRANSIENT_STATUSES = frozenset({408, 409, 425})
_FIRST_SERVER_ERROR = 500
_TOO_LONG = re.compile(
    r"context (?:length|size|window|limit)|prompt is too long|too many (?:input )?tokens", re.IGNORECASE
)
"""How servers without a code for it say so, such as llama.cpp."""
_NOT_TAKEN = re.compile(r"(?:image|audio|video) input is not supported|not support multimodal", re.IGNORECASE)
"""How llama.cpp rejects a file, with status 500, as if asking again could help."""
_DELAY = re.compile(r"([0-9]{1,6}(?:\.[0-9]+)?)s", re.ASCII)
_MAX_DETAIL_LENGTH = 300


def to_failure(error: AgentRunError, secret: str | None) -> Failure:
    """Convert an error. The detail can quote the provider, but never the key."""
    message = _said(error) if secret is None else _said(error).replace(secret, "(key)")
    detail = one_line(redact(message), _MAX_DETAIL_LENGTH)
    return Failure(kind=_kind(error), detail=detail, after=_retry_after(error))


def _retry_after(error: AgentRunError) -> float | None:
    """Return how long to wait, from the header or, as Google says it, from the body."""
    if not isinstance(error, ModelAPIError) or error.retry_after is not None:
        return error.retry_after if isinstance(error, ModelAPIError) else None
    details = _part(_part(error.body, "error"), "details") if isinstance(error, ModelHTTPError) else None
    for detail in cast("list[object]", details) if isinstance(details, list) else ():
        if found := _DELAY.fullmatch(str(_part(detail, "retryDelay"))):
            return float(found[1])
    return None


def _said(error: AgentRunError) -> str:
    """Return the provider's own words if its answer has some, else everything that is known."""
    body = error.body if isinstance(error, ModelHTTPError) else None
    words = _message(body) or _message(_part(body, "error"))
    if isinstance(error, ModelHTTPError) and words:
        return f"status {error.status_code}: {words}"
    if failed := _connect_error(error):
        return _say_unreached(failed)
    return f"{type(error).__name__}: {error}"


def _say_unreached(failed: httpx2.ConnectError | httpx2.ConnectTimeout) -> str:
    """Name the server, without what else its URL contains."""
    try:
        server = failed.request.url.netloc.decode()
    except RuntimeError:  # it does not know its request
        server = "the server's address"
    is_refused = any(isinstance(each, ConnectionRefusedError) for each in _causes(failed))
    return f"nothing listens at {server}" if is_refused else f"{server} cannot be reached"


def _message(body: object) -> str:
    words = _part(body, "message")
    return words if isinstance(words, str) else ""


def _part(body: object, name: str) -> object:
    return cast("Mapping[str, object]", body).get(name) if isinstance(body, Mapping) else None


def is_about_content(error: ModelRequestRejectedError | ModelServerError) -> bool:
    """Return whether the provider might accept less content. "Not found" can mean something the request refers to."""
    return _kind(error) in {FailureKind.FATAL, FailureKind.REJECTED, FailureKind.UNKNOWN_MODEL}


def _kind(error: AgentRunError) -> FailureKind:
    if setup := _setup_kind(error):
        return setup
    is_not_taken = isinstance(error, ModelServerError) and bool(_NOT_TAKEN.search(_said(error)))
    is_rejected = is_not_taken or isinstance(error, ModelRequestRejectedError)
    if isinstance(error, ModelContextWindowExceededError) or (is_rejected and _TOO_LONG.search(str(error))):
        return FailureKind.OVERFLOW
    status = error.status_code if isinstance(error, ModelHTTPError) else 0
    if isinstance(error, ModelRateLimitError) or status == HTTPStatus.TOO_MANY_REQUESTS:
        return FailureKind.RATE_LIMITED
    if is_rejected:
        return FailureKind.REJECTED
    if isinstance(error, _TRANSIENT_ERRORS) or type(error) is ModelAPIError:  # an unreadable answer
        return FailureKind.TRANSIENT
    is_transient = status >= _FIRST_SERVER_ERROR or status in _TRANSIENT_STATUSES
    return FailureKind.TRANSIENT if is_transient else FailureKind.FATAL


def _setup_kind(error: AgentRunError) -> FailureKind | None:
    """Return the kind of an error that a person has to set right, for any message."""
    if isinstance(error, ModelConnectionError) and _connect_error(error):
        return FailureKind.UNREACHABLE
    return next((kind for type_, kind in _SETUP_ERRORS.items() if isinstance(error, type_)), None)


def _connect_error(error: BaseException) -> httpx2.ConnectError | httpx2.ConnectTimeout | None:
    """Return why a connection failed before anything was sent; None if it did not."""
    found = (each for each in _causes(error) if isinstance(each, httpx2.ConnectError | httpx2.ConnectTimeout))
    return next(found, None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
