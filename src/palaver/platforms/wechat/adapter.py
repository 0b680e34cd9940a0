"""The adapter for WeChat official accounts. WeChat calls for each message, three times until it is answered.

An answer goes out as a customer service message. Accounts without these can only answer a call, within five seconds:
then `send` waits for one (`passive`).
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from palaver.platforms.wechat import WECHAT
from palaver.platforms.wechat.parse import (
    SUCCESS,
    WeChatOptions,
    Xml,
    download,
    parse,
    render,
    render_reply,
    take_xml,
    upload_file,
)
from palaver.protocols import (
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
    Unit,
    VoiceFormat,
    receive_or_skip,
)
from palaver.protocols.recent import ReplyPossibleLater
from palaver.protocols.sealed import Envelope
from palaver.protocols.tokens import ApiCodes, TokenApi, in_query

_MAX_CALLS = 1000
_LAST_CALL = 3
_WRONG_SECRET = "WeChat rejects the AppID or AppSecret. Copy both from Development Interface Management."  # noqa: S105
_NO_IP = "WeChat does not accept this machine. Add its address to the IP whitelist of the account."
_NOT_VERIFIED = (
    "This account cannot send customer service messages: WeChat has to verify it. Until then, set the option passive."
)
_CODES = ApiCodes(
    expired=frozenset({40001, 40014, 42001}),
    errors={
        **dict.fromkeys((40002, 40013, 40125), partial(PlatformRefused, _WRONG_SECRET)),
        40164: partial(PlatformRefused, _NO_IP),
        **dict.fromkeys((48001, 50002), partial(PlatformRefused, _NOT_VERIFIED)),
        -1: partial(PlatformBusy, 5.0),
        45009: partial(PlatformBusy, 3600.0),
        45011: partial(PlatformBusy, 10.0),
        # 48 hours after somebody wrote, or after five messages; also if they no longer follow the account.
        **dict.fromkeys((45015, 45047), ReplyPossibleLater),
        **dict.fromkeys((40003, 43004), partial(TargetGone, "Nobody with this OpenID follows the account.")),
    },
    fix=_WRONG_SECRET,
)


class WeChatAdapter:
    platform = WECHAT
    options = WeChatOptions
    limits = Limits(text=2000, unit=Unit.UTF8, interval=0.5)
    takes_callbacks = True
    reply_seconds = 4.5
    """How long an answer to a call can take: WeChat gives up after 5 seconds."""
    repeat_seconds = 1.0
    """How much longer to be silent, so that WeChat calls again."""

    def __init__(self, account: str, options: WeChatOptions) -> None:
        self.account = account
        self._options = options
        self._envelope = Envelope(
            token=options.token.get_secret_value(),
            encoding_key=options.encoding_aes_key.get_secret_value(),
            receiver=options.app_id,
        )
        self._api = TokenApi("WeChat", options.api_url, fetch=self._fetch_token, place=in_query(), codes=_CODES)
        self._waiting: dict[str, asyncio.Future[str]] = {}
        """The calls that an answer can still go into, by person."""
        self._calls: Counter[str] = Counter()

    async def _fetch_token(self) -> tuple[Any, Any]:
        """Every gateway gets the same token, and a new one leaves the old one valid for five minutes."""
        secret = {"appid": self._options.app_id, "secret": self._options.app_secret.get_secret_value()}
        grant = {"grant_type": "client_credential", **secret}
        found = await self._api.ask("POST", "/cgi-bin/stable_token", json=grant)
        return found["access_token"], found["expires_in"]

    async def check(self) -> str:
        await self._api.call("GET", "/cgi-bin/get_api_domain_ip")
        return self._options.app_id

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        return await take_xml(request, self._envelope, lambda xml: self._take(xml, receiver), self.platform.name)

    async def _take(self, message: Xml, receiver: Receiver) -> HttpResponse:
        sender = message.get("FromUserName", "")
        call: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if self._options.passive and sender:
            self._waiting[sender] = call
        try:
            name = self.platform.name
            await receive_or_skip(name, lambda: parse(message, name, self.account), receiver)
            if sender:
                await receiver.chat_returned(sender)
            return await self._reply(call, message) if self._waiting.get(sender) is call else SUCCESS
        finally:
            if self._waiting.get(sender) is call:
                del self._waiting[sender]

    async def _reply(self, call: "asyncio.Future[str]", message: Xml) -> HttpResponse:
        """Wait for an answer. Without one, let WeChat call again, at most twice; then it waits for the next message."""
        await asyncio.wait({call}, timeout=self.reply_seconds)
        if call.done():
            return self._seal(call.result(), message)
        if self._waiting.get(message["FromUserName"]) is call:
            del self._waiting[message["FromUserName"]]
        if self._count(message.get("MsgId", "")) < _LAST_CALL:
            await asyncio.sleep(self.repeat_seconds)
        return SUCCESS

    def _count(self, message_id: str) -> int:
        if len(self._calls) > _MAX_CALLS:
            self._calls.clear()
        self._calls[message_id] += 1
        return self._calls[message_id]

    def _seal(self, text: str, message: Xml) -> HttpResponse:
        at = int(time.time())
        nonce = uuid4().hex
        reply = render_reply(text, to=message["FromUserName"], us=message.get("ToUserName", ""), at=at)
        sealed = self._envelope.seal(reply.encode(), timestamp=str(at), nonce=nonce)
        body = (
            f"<xml><Encrypt>{sealed.encrypted}</Encrypt><MsgSignature>{sealed.signature}</MsgSignature>"
            f"<TimeStamp>{at}</TimeStamp><Nonce>{nonce}</Nonce></xml>"
        )
        return HttpResponse(body=body.encode(), media_type="application/xml")

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return download(self._api, file)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        if not self._options.passive:
            return await self._post(render(outbound))
        call = self._waiting.pop(outbound.chat_id, None)
        if call is None or call.done():
            raise ReplyPossibleLater
        call.set_result(outbound.text)
        return idempotency_key

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        if self._options.passive:
            raise SendRefused("This account can only answer with text.")
        send = partial(self.send, outbound, idempotency_key=idempotency_key)
        return await upload_file(self._api, outbound, content, post=self._post, send=send, takes_files=False)

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.MP3

    async def typing(self, outbound: Outbound) -> None:
        if not self._options.passive:
            shown = {"touser": outbound.chat_id, "command": "Typing"}
            await self._api.call("POST", "/cgi-bin/message/custom/typing", json=shown)

    async def _post(self, message: Mapping[str, Any]) -> str:
        """WeChat does not tell the id of a customer service message."""
        await self._api.call("POST", "/cgi-bin/message/custom/send", sending=True, json=message)
        return uuid4().hex
