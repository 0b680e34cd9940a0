"""The adapter for ntfy. It keeps a subscription open, and publishes."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import quote

import httpx2
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from palaver.platforms.ntfy import PLATFORM
from palaver.protocols import (
    DM,
    Attachment,
    Inbound,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    Source,
    TargetGone,
    Trust,
    Unit,
    check_url,
    file_to_send,
    one_line,
    parse_or_skip,
    read_ahead,
    split_names,
)
from palaver.protocols.files import described_file
from palaver.protocols.options import AccountOptions
from palaver.protocols.rest import RestApi, read_receipt

Url = Annotated[str, AfterValidator(check_url("a URL, like https://ntfy.sh"))]
Topic = Annotated[str, Field(pattern=r"^[-_A-Za-z0-9]{1,64}$")]


class NtfyOptions(AccountOptions):
    topics: Annotated[list[Topic], BeforeValidator(split_names)] = Field(
        min_length=1, max_length=20, description="The topics; each is a chat."
    )
    token: SecretStr | None = Field(default=None, description="An access token, if the topics are protected.")
    url: Url = Field(default="https://ntfy.sh", description="The server.")


Json = Mapping[str, Any]
ROBOT = "robot"
"""The tag of what programs write; apps show it as an emoji. Without it we would answer ourselves."""


class Line(NamedTuple):
    event: str
    time: int
    inbound: Inbound | None = None


def parse(text: str, account: str, server: str) -> Line:
    """Parse a line. The server does not say who wrote a message, so a topic is one person."""
    found: Json = json.loads(text)
    event = str(found["event"])
    time = int(found["time"])
    if event != "message" or ROBOT in (found.get("tags") or ()):
        return Line(event, 0)
    topic = str(found["topic"])
    inbound = Inbound(
        source=Source(
            platform="ntfy",
            account=account,
            chat_kind=DM,
            chat_id=topic,
            user_id=topic,
            message_id=str(found["id"]),
        ),
        text="\n".join(str(part) for part in (found.get("title"), found.get("message")) if part),
        at=datetime.fromtimestamp(time, UTC),
        mentions_us=True,
        files=tuple(_files(found, server)),
    )
    return Line(event, time, inbound)


def _files(found: Json, server: str) -> Iterator[Attachment]:
    """Only files on the server itself: a message could name any address."""
    file = cast("Json | None", found.get("attachment"))
    url = str(file["url"]) if file else ""
    if file and url.startswith(f"{server}/file/"):
        yield described_file(file.get("name"), file.get("type"), file.get("size"), handle=url.removeprefix(server))


MAX_BYTES = 4096
MAX_FILE_BYTES = 15_000_000
_MAX_CHOICES = 3
_MAX_LABEL = 40


def render(outbound: Outbound, server: str, *, has_buttons: bool) -> dict[str, Any]:
    """Return what to publish. A button is pressed without our token, so a protected topic has none."""
    message = {"topic": outbound.chat_id, "message": outbound.text, "tags": [ROBOT], "markdown": True}
    if not outbound.choices or not has_buttons:
        return message
    actions = [
        {
            "action": "http",
            "label": one_line(choice.label, _MAX_LABEL),
            "url": f"{server}/{outbound.chat_id}",
            "method": "POST",
            "body": choice.says,
            "clear": True,
        }
        for choice in outbound.choices[:_MAX_CHOICES]
    ]
    return {**message, "actions": actions}


_WRONG_TOKEN = "The ntfy server rejects the access token. Make another one, and allow it to read and write the topics."  # noqa: S105
_DAY_IS_OVER = frozenset({42905, 42908})
"""No more files, or no more messages, today."""
_HOUR_SECONDS = 3600.0
_FIRST_LOOK_SECONDS = 60
"""The first start also takes what was written in the last minute."""
_STREAM_TIMEOUT = httpx2.Timeout(30.0, connect=10.0, read=120.0)
"""The server sends something every 45 seconds."""


class NtfyAdapter:
    platform = PLATFORM
    options = NtfyOptions
    # A longer message would become a file. 96 bytes are reserved for what the gateway adds.
    limits = Limits(text=MAX_BYTES - 96, unit=Unit.UTF8, interval=1.0, announces_requests=True)

    def __init__(self, account: str, options: NtfyOptions) -> None:
        self.account = account
        self._url = options.url
        self._topics = ",".join(options.topics)
        token = options.token and options.token.get_secret_value()
        headers = {"authorization": f"Bearer {token}"} if token else None
        self._has_buttons = not token
        self._api = RestApi("ntfy", options.url, headers=headers, fix=_WRONG_TOKEN, explain=_explain)

    async def check(self) -> str:
        async with self._api.stream("GET", f"/{self._topics}/json", params={"poll": "1", "since": "1s"}):
            return f"{self._topics} on {self._url}"

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        since = await receiver.load_position()
        if since is None:
            since = str(int(time.time()) - _FIRST_LOOK_SECONDS)
            await receiver.save_position(since)
        options: dict[str, Any] = {"params": {"since": since}, "timeout": _STREAM_TIMEOUT}
        async with (
            self._api.opened(),
            self._api.stream("GET", f"/{self._topics}/json", **options) as response,
        ):
            await read_ahead(response.aiter_lines(), lambda line: self._take(line, receiver))
        raise PlatformDown("The ntfy server closed the connection.")

    async def _take(self, text: str, receiver: Receiver) -> None:
        if not text:
            return
        line = parse_or_skip(self.platform.name, lambda: parse(text, self.account, self._url))
        if line is None:
            return
        if line.event == "open":
            await receiver.connected()
        if line.inbound is not None:
            await receiver.receive(line.inbound, Trust())
            # A second can have several messages. Those that come twice have the same ids.
            await receiver.save_position(str(line.time))

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        path = file.handle or ""
        if not path.startswith("/file/") or ".." in path:
            raise SendRefused("The file is not on the ntfy server.")
        return self._api.download(path)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:  # noqa: ARG002 - ntfy takes none
        message = render(outbound, self._url, has_buttons=self._has_buttons)
        sent = await self._api.call("POST", "/", sending=True, json=message)
        return read_receipt("The ntfy server", sent, "id")

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:  # noqa: ARG002
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        about = {"filename": file.name.plain() or "file", "tags": ROBOT}
        if outbound.text.strip():
            about["message"] = outbound.text
        body = await asyncio.to_thread(content.read_bytes)
        path = f"/{quote(outbound.chat_id, safe='')}"
        sent = await self._api.call("PUT", path, sending=True, params=about, content=body)
        return read_receipt("The ntfy server", sent, "id")


def _explain(response: httpx2.Response) -> PlatformError | None:
    """Explain an error answer; None if its status says enough."""
    if response.status_code == HTTPStatus.FORBIDDEN:
        is_reading = response.request.method == "GET"
        return PlatformRefused(_WRONG_TOKEN) if is_reading else TargetGone("The gateway may not write to this topic.")
    try:
        answer: Any = response.json()
        code = answer["code"]
        words = str(answer["error"])
    except (ValueError, LookupError, TypeError):
        return None
    if code in _DAY_IS_OVER:
        return PlatformBusy(_HOUR_SECONDS)
    return SendRefused(f"ntfy rejects it: {words[:200]}") if response.status_code == HTTPStatus.BAD_REQUEST else None
