"""The library's client of the Web API, without its logs and retries."""

import logging
from typing import Any, TypeAlias

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from palaver.platforms.slack.options import SlackOptions
from palaver.protocols import announce_aiohttp

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
    token, url = options.bot_token.get_secret_value(), f"{options.api_url}/"
    return AsyncWebClient(token=token, base_url=url, session=session, logger=SILENT, retry_handlers=[])
