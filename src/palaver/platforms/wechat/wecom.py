"""The adapter for WeCom: an app of a company, to which its members write. WeCom calls for each message."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from palaver.platforms.wechat import WECOM
from palaver.platforms.wechat.parse import (
    SUCCESS,
    WeComOptions,
    Xml,
    download,
    parse,
    plain_text,
    take_xml,
    upload_file,
    wecom_markdown,
)
from palaver.protocols import (
    Attachment,
    HttpRequest,
    HttpResponse,
    Labels,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Receiver,
    TargetGone,
    Trust,
    Unit,
    one_line,
    parse_or_skip,
)
from palaver.protocols.recent import Names
from palaver.protocols.rest import read_receipt
from palaver.protocols.sealed import Envelope
from palaver.protocols.tokens import ApiCodes, TokenApi, in_query

_WRONG_SECRET = "WeCom rejects the company ID or the Secret. Copy the Secret of this app from App Management."  # noqa: S105
_WRONG_AGENT = "The AgentId and the Secret belong to different apps. Copy both from the same page."
_NO_IP = "WeCom does not accept this machine. Add its address to the trusted IPs of the app."
_CODES = ApiCodes(
    expired=frozenset({40014, 42001}),
    errors={
        **dict.fromkeys((40001, 40013, 40091), partial(PlatformRefused, _WRONG_SECRET)),
        **dict.fromkeys((40056, 301002), partial(PlatformRefused, _WRONG_AGENT)),
        60020: partial(PlatformRefused, _NO_IP),
        -1: partial(PlatformBusy, 5.0),
        **dict.fromkeys((45009, 45033), partial(PlatformBusy, 60.0)),
        **dict.fromkeys((40003, 60111, 81013), partial(TargetGone, "No such member, or the app is not for them.")),
    },
    fix=_WRONG_SECRET,
)


class WeComAdapter:
    platform = WECOM
    options = WeComOptions
    # 30 messages a minute for one member; WeCom silently drops the rest.
    limits = Limits(text=2000, unit=Unit.UTF8, interval=2.0, announces_requests=True)
    takes_callbacks = True

    def __init__(self, account: str, options: WeComOptions) -> None:
        self.account = account
        self._options = options
        self._envelope = Envelope(
            token=options.token.get_secret_value(),
            encoding_key=options.encoding_aes_key.get_secret_value(),
            receiver=options.corp_id,
        )
        self._api = TokenApi("WeCom", options.api_url, fetch=self._fetch_token, place=in_query(), codes=_CODES)
        self._people = Names(self._fetch_name)

    async def _fetch_token(self) -> tuple[Any, Any]:
        secret = {"corpid": self._options.corp_id, "corpsecret": self._options.secret.get_secret_value()}
        found = await self._api.ask("GET", "/cgi-bin/gettoken", params=secret)
        return found["access_token"], found["expires_in"]

    async def check(self) -> str:
        found = await self._api.call("GET", "/cgi-bin/agent/get", params={"agentid": str(self._options.agent_id)})
        return one_line(str(found.get("name") or self._options.agent_id), 200)

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        async def take(message: Xml) -> HttpResponse:
            inbound = parse_or_skip(self.platform.name, lambda: parse(message, self.platform.name, self.account))
            if inbound is not None:
                labels = Labels(user=await self._people.get(inbound.source.user_id or ""))
                await receiver.receive(replace(inbound, labels=labels), Trust())
            return SUCCESS

        return await take_xml(request, self._envelope, take, self.platform.name)

    async def _fetch_name(self, user_id: str) -> object:
        return (await self._api.call("GET", "/cgi-bin/user/get", params={"userid": user_id}))["name"]

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return download(self._api, file)

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """WeCom only recognises a repetition by its content, so the same answer would be shown once."""
        del idempotency_key
        kind = self._options.format
        text = (wecom_markdown if kind == "markdown" else plain_text)(outbound.text)
        return await self._post({"touser": outbound.chat_id, "msgtype": kind, kind: {"content": text}})

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        send = partial(self.send, outbound, idempotency_key=idempotency_key)
        return await upload_file(self._api, outbound, content, post=self._post, send=send, takes_files=True)

    async def _post(self, message: Mapping[str, Any]) -> str:
        message = {**message, "agentid": self._options.agent_id}
        sent = await self._api.call("POST", "/cgi-bin/message/send", sending=True, json=message)
        if sent.get("invaliduser"):
            raise TargetGone("No such member, or the app is not for them.")
        return read_receipt("WeCom", sent, "msgid")
