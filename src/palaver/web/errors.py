"""Problems: what goes wrong, in the form that whoever asked reads it."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from palaver.model.attachment import TooLarge
from palaver.model.errors import (
    InvalidInput,
    LastOwner,
    LockedOut,
    NotAllowed,
    NotFound,
    NothingToCompact,
    PalaverError,
    SessionBusy,
    StoreUnavailable,
)
from palaver.web.bodies import TooMuchAtOnce

__all__ = [
    "API",
    "IN",
    "OPENAI",
    "UNTOLD",
    "problem",
    "refusal",
    "status_of",
    "told",
]

API = "/api/"
OPENAI = "/v1/"
IN = "/in/"
"""Where platforms call."""
_STATUS: Mapping[type[PalaverError], int] = {
    InvalidInput: 400,
    NotAllowed: 403,
    NotFound: 404,
    SessionBusy: 409,
    LastOwner: 409,
    NothingToCompact: 409,
    TooLarge: 413,
    LockedOut: 429,
    StoreUnavailable: 503,
    TooMuchAtOnce: 503,
}
_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}
UNTOLD = "Something went wrong here; the log of the gateway says what."
_SERVERS = 500


def status_of(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), _SERVERS)


def problem(path: str, error: Exception) -> Response:
    """An error that is meant for whoever asked: with what was found, what is allowed, an example."""
    headers = error.headers if isinstance(error, HTTPException) else None
    facts = {}
    if isinstance(error, InvalidInput):
        facts = {"found": error.found[:200], "allowed": error.allowed, "example": error.example}
    return refusal(path, status_of(error), told(error), headers=headers, facts=facts)


def told(error: Exception) -> str:
    """What nobody expected may quote anybody: the log has it."""
    if isinstance(error, HTTPException):
        return str(error.detail)
    return UNTOLD if status_of(error) == _SERVERS else str(error)


def refusal(
    path: str,
    status: int,
    words: str,
    *,
    headers: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
) -> Response:
    if path.startswith(OPENAI):
        kind = _KINDS.get(status, "invalid_request_error" if status < _SERVERS else "server_error")
        body: dict[str, object] = {"error": {"message": words, "type": kind, "param": None, "code": None}}
        return JSONResponse(body, status_code=status, headers=headers)
    if path.startswith(API):
        title = HTTPStatus(status).phrase
        body = {"type": "about:blank", "title": title, "status": status, "detail": words, **(facts or {})}
        return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")
    return PlainTextResponse(f"{words}\n", status_code=status, headers=headers)
