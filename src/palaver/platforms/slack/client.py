"""Slack's client library: options, errors and sessions."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Annotated, Any, TypeAlias, cast

import aiohttp
from pydantic import AfterValidator, Field, SecretStr
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from palaver.protocols import (
    ClientErrors,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    SendRefused,
    SendUnclear,
    TargetGone,
    announce_aiohttp,
    answer_error,
    check_secret,
    check_url,
    parse_retry_after,
)
from palaver.protocols.options import AccountOptions

_BOT_TOKEN = check_secret(
    "xoxb-[A-Za-z0-9-]{1,250}", "a bot token that begins with xoxb-, from Install App at api.slack.com/apps"
)
_APP_TOKEN = check_secret(
    "xapp-[A-Za-z0-9-]{1,250}",
    "an app-level token that begins with xapp-, from Basic Information at api.slack.com/apps",
)
Url = Annotated[str, AfterValidator(check_url("a URL, like https://slack.com/api"))]


class SlackOptions(AccountOptions):
    bot_token: Annotated[SecretStr, AfterValidator(_BOT_TOKEN)] = Field(
        description="The bot token, `xoxb-…`, from *Install App*."
    )
    app_token: Annotated[SecretStr, AfterValidator(_APP_TOKEN)] = Field(
        description="The app-level token, `xapp-…`, with the scope `connections:write`."
    )
    reply_in_thread: bool = Field(
        default=False,
        description="Answer a message in a channel in a thread of its own, which is a conversation.",
    )
    api_url: Url = Field(default="https://slack.com/api", description="URL of the Web API.")


_WRONG_BOT_TOKEN = (
    "Slack does not accept this bot token. Copy the one that begins with xoxb- from Install App at api.slack.com/apps."  # noqa: S105
)
_WRONG_APP_TOKEN = (
    "Slack does not accept this app-level token. Generate one with the scope connections:write under Basic Information "  # noqa: S105
    "at api.slack.com/apps, and switch on Socket Mode there."
)
_TOKEN_ERRORS = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)
_NOT_PERMITTED = frozenset({"missing_scope", "not_allowed_token_type"})
_GONE = frozenset(
    {
        "cannot_dm_bot",
        "channel_is_archived",
        "channel_not_found",
        "is_archived",
        "is_inactive",
        "messages_tab_disabled",
        "no_permission",
        "not_in_channel",
        "restricted_action",
        "restricted_action_read_only_channel",
        "user_disabled",
        "user_not_found",
    }
)
_TROUBLE = frozenset({"fatal_error", "internal_error", "request_timeout", "service_unavailable", "team_added_to_org"})
"""Slack's own failures, after which a message may be there."""


def error_code(error: Exception) -> str | None:
    """Return the code in Slack's answer, such as `channel_not_found`; None if there was none."""
    found = _answer(error).get("error")
    return found if isinstance(found, str) else None


def lacks_permission(error: Exception) -> bool:
    """Return whether this app cannot do just this; its token is valid."""
    return isinstance(error.__cause__, Exception) and error_code(error.__cause__) in _NOT_PERMITTED


def _response(error: Exception) -> object:
    return cast("Any", error).response if isinstance(error, SlackApiError) else None


def _answer(error: Exception) -> Mapping[str, Any]:
    data: object = getattr(_response(error), "data", None)
    return cast("dict[str, Any]", data) if isinstance(data, dict) else {}


def _explain(error: Exception, *, sending: bool, fix: str = _WRONG_BOT_TOKEN) -> PlatformError | None:
    if not isinstance(error, SlackApiError):
        return None
    response = _response(error)
    code = error_code(error)
    status = int(getattr(response, "status_code", 0) or getattr(response, "status", 0))
    if status == HTTPStatus.TOO_MANY_REQUESTS or code in {"ratelimited", "rate_limited", "message_limit_exceeded"}:
        headers: Mapping[str, str] = getattr(response, "headers", {})
        after = parse_retry_after(str(headers.get("Retry-After", "")))
        return answer_error("Slack", HTTPStatus.TOO_MANY_REQUESTS, sending=sending, after=after)
    if code is None:
        return None if status == HTTPStatus.OK else answer_error("Slack", status, sending=sending, fix=fix)
    return _explain_code(code, _answer(error), sending=sending, fix=fix)


def _explain_code(code: str, answer: Mapping[str, Any], *, sending: bool, fix: str) -> PlatformError:
    if code in _TOKEN_ERRORS:
        return PlatformRefused(fix)
    if code in _TROUBLE:
        return (SendUnclear if sending else PlatformDown)(f"Slack answered {code}.")
    if code == "missing_scope":
        scope = str(answer.get("needed", ""))[:100]
        words = f"The Slack app needs the scope {scope}. Add it under OAuth & Permissions and install the app again."
        return (SendRefused if sending else PlatformRefused)(words)
    return (TargetGone if code in _GONE else SendRefused)(f"Slack rejects it: {code[:100]}")


def _explain_connecting(error: Exception, *, sending: bool) -> PlatformError | None:
    """What is wrong with the app-level token ends the connection; nothing else does for good."""
    known = _explain(error, sending=sending, fix=_WRONG_APP_TOKEN)
    if isinstance(known, SendRefused):
        return PlatformRefused(f"{_WRONG_APP_TOKEN} Slack says: {error_code(error)}.")
    return PlatformDown("Slack asks us to connect later.") if isinstance(known, PlatformBusy) else known


API = ClientErrors(
    title="Slack",
    raised=(SlackClientError, aiohttp.ClientError, TimeoutError, ConnectionError),
    unsent=(aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL),
    explain=_explain,
)
CONNECTING = replace(API, explain=_explain_connecting)


SILENT = logging.getLogger("palaver.platforms.slack.library")
"""What the library logs contains messages and the address of the connection, which is a secret."""
SILENT.setLevel(logging.CRITICAL + 1)

_TIMEOUT_SECONDS = 30

WebClient: TypeAlias = Any
"""An AsyncWebClient: the types of its methods are incomplete."""


def new_session() -> aiohttp.ClientSession:
    """Wait for each answer, but not for the end of a large file. Requests are announced."""
    trace = aiohttp.TraceConfig()
    trace.on_request_headers_sent.append(announce_aiohttp)
    waits = aiohttp.ClientTimeout(total=None, connect=_TIMEOUT_SECONDS, sock_read=_TIMEOUT_SECONDS)
    return aiohttp.ClientSession(timeout=waits, trace_configs=[trace])


def web_client(options: SlackOptions, session: aiohttp.ClientSession) -> WebClient:
    """Without the library's retries, which would send a message twice."""
    token = options.bot_token.get_secret_value()
    url = f"{options.api_url}/"
    return AsyncWebClient(token=token, base_url=url, session=session, logger=SILENT, retry_handlers=[])
