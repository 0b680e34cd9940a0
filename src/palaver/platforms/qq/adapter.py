"""The adapter for QQ. QQ calls for each message, and takes replies to it for a while; then they wait for the next."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from palaver.platforms.qq import PLATFORM
from palaver.platforms.qq.crypto import Signer
from palaver.platforms.qq.options import QqOptions
from palaver.platforms.qq.parse import GROUP_PREFIX, parse
from palaver.platforms.qq.render import MAX_FILE_BYTES, file_kind, render
from palaver.protocols import (
    GROUP,
    Attachment,
    HttpRequest,
    HttpResponse,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Receiver,
    SendRefused,
    TargetGone,
    Trust,
    file_to_send,
    one_line,
    parse_or_skip,
    read_object,
    take_json,
)
from palaver.protocols.files import check_file_url
from palaver.protocols.recent import ReplyPossibleLater, ReplyWindows
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

_WRONG_SECRET = "QQ rejects the AppID or AppSecret. Copy both from Development Settings of the bot."  # noqa: S105
_NO_IP = "QQ does not accept this machine. Add its address to the IP whitelist of the bot."
_BANNED = "QQ does not let this bot send: it is banned, or lacks the permission. Look at its page on q.qq.com."
_CODES = ApiCodes(
    code="code",
    words="message",
    expired=frozenset({11241, 11243, 11244}),
    errors={
        11298: partial(PlatformRefused, _NO_IP),
        **dict.fromkeys((11251, 11261), partial(PlatformRefused, _WRONG_SECRET)),
        **dict.fromkeys((11253, 11254, 11265), partial(PlatformRefused, _BANNED)),
        **dict.fromkeys((10001, 10003, 10004), partial(TargetGone, "QQ does not know this chat.")),
        22009: partial(PlatformBusy, 10.0),
        304003: partial(SendRefused, "QQ takes only web addresses that are listed under Development Settings."),
        # The message that we reply to is too old, unknown, or has all its replies.
        **dict.fromkeys((304026, 304027, 40034025), ReplyPossibleLater),
    },
    fix=_WRONG_SECRET,
)
_QUESTION, _ACKNOWLEDGED = 13, 12
_ALONE_SECONDS, _GROUP_SECONDS = 3540.0, 285.0
"""How long QQ takes replies to a message: 60 minutes alone, 5 in a group, less a little."""
_REPLIES = 5
_FILE_HOSTS = (".qq.com", ".qq.com.cn", ".qpic.cn")
"""Files are fetched from QQ only."""


class QqAdapter:
    platform = PLATFORM
    options = QqOptions
    limits = Limits(text=2000, interval=1.0, announces_requests=True)
    takes_callbacks = True

    def __init__(self, account: str, options: QqOptions) -> None:
        self.account = account
        self._options = options
        self._signer = Signer(options.app_secret.get_secret_value())
        self._api = TokenApi(
            "QQ",
            options.api_url,
            fetch=self._fetch_token,
            place=in_header("authorization", "QQBot "),
            codes=_CODES,
        )
        self._files = RestApi("QQ", options.api_url)
        self._windows = ReplyWindows(_REPLIES)

    async def _fetch_token(self) -> tuple[Any, Any]:
        secret = {"appId": self._options.app_id, "clientSecret": self._options.app_secret.get_secret_value()}
        found = await self._api.ask("POST", f"{self._options.token_url}/app/getAppAccessToken", json=secret)
        return found["access_token"], found["expires_in"]

    async def check(self) -> str:
        found = await self._api.call("GET", "/users/@me")
        return one_line(str(found.get("username") or self._options.app_id), 200)

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        if answer := self._answer(request.body):
            return HttpResponse.of_json(answer)
        headers = request.headers
        signature, timestamp = headers.get("x-signature-ed25519", ""), headers.get("x-signature-timestamp", "")

        async def take(event: Mapping[str, Any]) -> None:
            inbound = parse_or_skip(self.platform.name, lambda: parse(event, self.account))
            if inbound is None:
                return
            await receiver.receive(inbound, Trust())
            source = inbound.source
            seconds = _GROUP_SECONDS if source.chat_kind == GROUP else _ALONE_SECONDS
            self._windows.open(source.chat_id or "", source.message_id or "", seconds)
            await receiver.chat_returned(source.chat_id or "")

        is_authentic = self._signer.is_signed(signature, timestamp, request.body)
        response = await take_json(request, take, is_authentic=is_authentic)
        return HttpResponse.of_json({"op": _ACKNOWLEDGED}) if response.status == HTTPStatus.OK else response

    def _answer(self, body: bytes) -> Mapping[str, str] | None:
        """Return the answer to a question about the address; None if it is none."""
        try:
            found = read_object(body)
            return self._signer.answer(found["d"]) if found["op"] == _QUESTION else None
        except (ValueError, LookupError, TypeError):
            return None

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        url = check_file_url(file.handle or "", api_url=self._options.api_url, hosts=_FILE_HOSTS)
        return self._files.download(url)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._post(outbound, render(outbound.text, self._reply_to(outbound), idempotency_key))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        kind, body = file_kind(file), await asyncio.to_thread(content.read_bytes)
        reply_to = self._reply_to(outbound)
        asked = {"file_type": kind, "srv_send_msg": False, "file_data": b64encode(body).decode()}
        uploaded = await self._api.call("POST", _path(outbound, "files"), json=asked)
        message = render(outbound.text, reply_to, idempotency_key)
        return await self._post(
            outbound,
            {
                **message,
                "content": message["content"] or " ",
                "msg_type": 7,
                "media": {"file_info": uploaded["file_info"]},
            },
        )

    def _reply_to(self, outbound: Outbound) -> str:
        """Return the message to reply to: the last one, or after a restart the one that is answered."""
        message = self._windows.take(outbound.chat_id) or outbound.reply_to
        if message is None:
            raise ReplyPossibleLater
        return message

    async def _post(self, outbound: Outbound, message: Mapping[str, Any]) -> str:
        sent = await self._api.call("POST", _path(outbound, "messages"), sending=True, json=message)
        return read_receipt("QQ", sent, "id")


def _path(outbound: Outbound, what: str) -> str:
    chat = outbound.chat_id
    if chat.startswith(GROUP_PREFIX):
        return f"/v2/groups/{quote(chat.removeprefix(GROUP_PREFIX), safe='')}/{what}"
    return f"/v2/users/{quote(chat, safe='')}/{what}"
