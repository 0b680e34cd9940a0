"""The adapter for QQ. QQ calls for each message, and takes replies to it for a while; then they wait for the next."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from palaver.platforms.catalog import PLATFORMS
from palaver.platforms.qq.crypto import Signer
from palaver.platforms.qq.options import GUIDE, QqOptions
from palaver.platforms.qq.parse import GROUP_PREFIX, Json, parse
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
    SendUnclear,
    TargetAway,
    Trust,
    file_to_send,
    one_line,
    parse_or_skip,
    take_json,
)
from palaver.protocols.recent import ReplyWindows
from palaver.protocols.rest import RestApi
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

_WRONG_SECRET = "QQ rejects the AppID or AppSecret. Copy both from Development Settings of the bot."  # noqa: S105
_NO_IP = "QQ does not accept this machine. Add its address to the IP whitelist of the bot."
_AWAY_SECONDS = 3600.0
_CODES = ApiCodes(
    code="code",
    words="message",
    expired=frozenset({11243, 11244}),
    errors={
        11298: partial(PlatformRefused, _NO_IP),
        22009: partial(PlatformBusy, 10.0),
        **dict.fromkeys((304027, 40034025), partial(TargetAway, _AWAY_SECONDS)),
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
    platform = PLATFORMS["qq"]
    options = QqOptions
    guide = GUIDE
    limits = Limits(text=2000, interval=1.0)
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
            gone=(404,),
        )
        self._files = RestApi("QQ", options.api_url)
        self._windows = ReplyWindows(_REPLIES)

    @classmethod
    def make(cls, account: str, options: QqOptions) -> "QqAdapter":
        return cls(account, options)

    async def _fetch_token(self) -> tuple[str, float]:
        secret = {"appId": self._options.app_id, "clientSecret": self._options.app_secret.get_secret_value()}
        found = await self._api.ask("POST", f"{self._options.token_url}/app/getAppAccessToken", json=secret)
        return str(found["access_token"]), float(found["expires_in"])

    async def check(self) -> str:
        found = await self._api.call("GET", "/users/@me")
        return one_line(str(found.get("username") or self._options.app_id), 200)

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        headers, answer = request.headers, {"op": _ACKNOWLEDGED}
        signature, timestamp = headers.get("x-signature-ed25519", ""), headers.get("x-signature-timestamp", "")

        async def take(event: Mapping[str, Any]) -> None:
            if event.get("op") == _QUESTION:
                answer.clear()
                answer.update(parse_or_skip(self.platform.name, lambda: self._answer(event)) or {})
                return
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
        if response.status != HTTPStatus.OK:
            return response
        return HttpResponse(body=json.dumps(answer).encode(), media_type="application/json")

    def _answer(self, event: Json) -> Mapping[str, Any]:
        """Answer the question that QQ asks when somebody enters the address."""
        token, at = str(event["d"]["plain_token"]), str(event["d"]["event_ts"])
        return {"plain_token": token, "signature": self._signer.sign(at, token)}

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        url, own = urlsplit(file.handle or ""), urlsplit(self._options.api_url)
        if url.netloc != own.netloc and not (url.scheme == "https" and (url.hostname or "").endswith(_FILE_HOSTS)):
            raise SendRefused("The file is not on a server of QQ.")
        async for chunk in self._files.download(file.handle or ""):
            yield chunk

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
        return await self._post(outbound, {**message, "msg_type": 7, "media": {"file_info": uploaded["file_info"]}})

    def _reply_to(self, outbound: Outbound) -> str:
        """Return the message to reply to: the last one, or after a restart the one that is answered."""
        message = self._windows.take(outbound.chat_id) or outbound.reply_to
        if message is None:
            raise TargetAway(_AWAY_SECONDS)
        return message

    async def _post(self, outbound: Outbound, message: Mapping[str, Any]) -> str:
        sent = await self._api.call("POST", _path(outbound, "messages"), sending=True, json=message)
        if not isinstance(sent, dict) or "id" not in sent:
            raise SendUnclear("QQ did not say which message was sent.")
        return str(sent["id"])  # pyright: ignore[reportUnknownArgumentType] - JSON is anything


def _path(outbound: Outbound, what: str) -> str:
    chat = outbound.chat_id
    if chat.startswith(GROUP_PREFIX):
        return f"/v2/groups/{quote(chat.removeprefix(GROUP_PREFIX), safe='')}/{what}"
    return f"/v2/users/{quote(chat, safe='')}/{what}"
