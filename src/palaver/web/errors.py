"""Errors as responses, in the form each client reads: a problem document, OpenAI's form, or plain text."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response

from palaver.engine.retry import log_outage
from palaver.model.attachment import TooLarge
from palaver.model.errors import (
    INTERNAL_ERROR,
    InvalidInput,
    LastOwner,
    LockedOut,
    NoAccess,
    NotAllowed,
    NotFound,
    NothingToCompact,
    PalaverError,
    SessionBusy,
    StoreDamaged,
    StoreUnavailable,
)
from palaver.web.address import API_ROOT
from palaver.web.bodies import BodyTooSlow, ServerBusy
from palaver.web.limits import TooManyRequests

API_PREFIX = "/api/"
OPENAI_PREFIX = "/v1/"
CALLBACK_PREFIX = "/in/"
STORE_AWAY = "The store does not answer. Try again later."
STORE_DAMAGED = "The database is damaged, so the gateway writes no more into it. palaver doctor says what to do."
_STATUS: Mapping[type[PalaverError], int] = {
    InvalidInput: 400,
    NoAccess: 403,
    NotAllowed: 403,
    NotFound: 404,
    SessionBusy: 409,
    LastOwner: 409,
    NothingToCompact: 409,
    TooLarge: 413,
    BodyTooSlow: 408,
    LockedOut: 429,
    TooManyRequests: 429,
    StoreUnavailable: 503,
    ServerBusy: 503,
}
_LISTS = {
    "grant": "grants",
    "job": "jobs",
    "note": "memory",
    "open turn": "turns",
    "person": "people",
    "process": "processes",
    "session": "sessions",
    "stranger": "pairing",
}
"""The endpoint that lists what there is, where something is not found."""
_BUSY_SECONDS = 5
_AWAY_SECONDS = 2
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAIError(HTTPException):
    """An error with a code that OpenAI's clients know."""

    def __init__(self, status: int, text: str, code: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, text, headers)
        self.code = code


def error_code(error: Exception) -> str | None:
    return error.code if isinstance(error, OpenAIError) else None


def status_of(error: Exception) -> int:
    if isinstance(error, HTTPException):
        return error.status_code
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 500)


def error_text(error: Exception) -> str:
    """Return what the client reads. An unexpected error can quote anything, so its text stays in the log."""
    if isinstance(error, HTTPException):
        return str(error.detail)
    if isinstance(error, StoreUnavailable):  # It names files of this machine.
        log_outage(error)
        return STORE_DAMAGED if isinstance(error, StoreDamaged) else STORE_AWAY
    return INTERNAL_ERROR if status_of(error) == HTTPStatus.INTERNAL_SERVER_ERROR else str(error)


def error_response(path: str, error: Exception) -> Response:
    facts, headers, code = {}, headers_of(error), error_code(error)
    if isinstance(error, InvalidInput):
        facts = {"found": error.found[:200], "allowed": error.allowed, "example": error.example}
    elif isinstance(error, NotFound) and error.what in _LISTS:
        facts = {"list": f"GET {API_ROOT}/{_LISTS[error.what]}"}
    return text_response(path, status_of(error), error_text(error), headers=headers, facts=facts, code=code)


def headers_of(error: Exception) -> Mapping[str, str] | None:
    match error:
        case HTTPException():
            return error.headers
        case TooManyRequests():
            return {"retry-after": str(error.retry_after)}
        case ServerBusy():
            return {"retry-after": str(_BUSY_SECONDS)}
        case StoreUnavailable() if not isinstance(error, StoreDamaged):
            return {"retry-after": str(_AWAY_SECONDS)}
        case _:
            return None


def text_response(
    path: str,
    status: int,
    text: str,
    *,
    headers: Mapping[str, str] | None = None,
    facts: Mapping[str, str] | None = None,
    code: str | None = None,
) -> Response:
    """Return an error in the form that clients of this path expect."""
    if path.startswith(OPENAI_PREFIX):
        return JSONResponse({"error": openai_problem(status, text, code)}, status_code=status, headers=headers)
    if path.startswith(API_PREFIX):
        title = HTTPStatus(status).phrase
        body = {"type": "about:blank", "title": title, "status": status, "detail": text, **(facts or {})}
        return JSONResponse(body, status_code=status, headers=headers, media_type="application/problem+json")
    return PlainTextResponse(f"{text}\n", status_code=status, headers=headers)


def openai_problem(status: int, text: str, code: str | None) -> dict[str, object]:
    is_server_error = status >= HTTPStatus.INTERNAL_SERVER_ERROR
    kind = _OPENAI_TYPES.get(status, "server_error" if is_server_error else "invalid_request_error")
    return {"message": text, "type": kind, "param": None, "code": code}
