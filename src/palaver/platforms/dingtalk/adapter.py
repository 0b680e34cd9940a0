"""The adapter for DingTalk. Messages come over a stream that we open, or DingTalk calls; answers go to its API."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from palaver.platforms.dingtalk import PLATFORM
from palaver.platforms.dingtalk.crypto import is_signed
from palaver.platforms.dingtalk.options import DingTalkOptions
from palaver.platforms.dingtalk.parse import parse
from palaver.platforms.dingtalk.render import MAX_FILE_BYTES, render, render_file
from palaver.platforms.dingtalk.stream import SUBSCRIPTIONS, listen
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
    SendUnclear,
    TargetGone,
    file_to_send,
    receive_or_skip,
    take_json,
)
from palaver.protocols.files import send_text_of_file
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

_WRONG_SECRET = "DingTalk rejects the Client ID or Client Secret. Copy both from the app's credentials."  # noqa: S105
_NO_PERMISSION = "The app may not send as a robot. Allow it under Permissions of the app, and publish a version."
_WRONG_ROBOT = "The robot does not belong to this app. Set robot_code to the code in the robot's settings."
_NOBODY = "DingTalk does not know this person, or the robot is not for them."
_OUT = "The robot is not in this group, or the group is gone."
_CODES = ApiCodes(
    code="code",
    words="message",
    expired=frozenset({"InvalidAuthentication"}),
    errors={
        "Forbidden.AccessDenied.AccessTokenPermissionDenied": partial(PlatformRefused, _NO_PERMISSION),
        **dict.fromkeys(
            ("Forbidden.AccessDenied.QpsLimitForApi", "Forbidden.AccessDenied.QpsLimitForAppkeyAndApi"),
            partial(PlatformBusy, 5.0),
        ),
        **dict.fromkeys(
            ("invalid.openConversationId", "group.disbanded", "bot.stopped", "invalidParameter.robotCode.empty"),
            partial(TargetGone, _OUT),
        ),
        **dict.fromkeys(
            ("invalidParameter.robotCode.auth", "invalidParameter.robotCode.notExsit"),
            partial(PlatformRefused, _WRONG_ROBOT),
        ),
        "unknown.send.result": partial(SendUnclear, "DingTalk does not know whether it was sent."),
    },
    fix=_WRONG_SECRET,
)
_GROUP = "cid"
"""How the ids of groups begin."""


class DingTalkAdapter:
    platform = PLATFORM
    options = DingTalkOptions
    limits = Limits(text=4000, interval=1.0, announces_requests=True)

    def __init__(self, account: str, options: DingTalkOptions) -> None:
        self.account = account
        self._options = options
        self._secret = options.client_secret.get_secret_value()
        self._robot = options.robot_code or options.client_id
        self._api = TokenApi(
            "DingTalk",
            options.api_url,
            fetch=self._fetch_token,
            place=in_header("x-acs-dingtalk-access-token"),
            codes=_CODES,
        )
        self._media = RestApi("DingTalk", options.media_url, fix=_WRONG_SECRET)

    async def _fetch_token(self) -> tuple[Any, Any]:
        secret = {"appKey": self._options.client_id, "appSecret": self._secret}
        found = await self._api.ask("POST", "/v1.0/oauth2/accessToken", json=secret)
        return found["accessToken"], found["expireIn"]

    async def check(self) -> str:
        """Nothing tells the robot's name, so this only shows that the credentials are right."""
        await self._api.fetch_token()
        return self._robot

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        if self.takes_callbacks:
            await self._api.keep_checking(self.check, receiver)
            return

        async def take(data: str) -> None:
            await receive_or_skip(self.platform.name, lambda: parse(json.loads(data), self.account), receiver)

        async with self._api.opened():
            await listen(await self._open_stream(), receiver.connected, take)

    async def _open_stream(self) -> Mapping[str, Any]:
        asked = {"clientId": self._options.client_id, "clientSecret": self._secret, "subscriptions": SUBSCRIPTIONS}
        try:
            return await self._api.ask("POST", "/v1.0/gateway/connections/open", json={**asked, "ua": "palaver"})
        except SendRefused as error:
            raise PlatformRefused(f"{_WRONG_SECRET} ({error})") from error

    @property
    def takes_callbacks(self) -> bool:
        return self._options.mode == "http"

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        async def take(message: Mapping[str, Any]) -> None:
            await receive_or_skip(self.platform.name, lambda: parse(message, self.account), receiver)

        authentic = is_signed(request.headers, self._secret, int(time.time() * 1000))
        return await take_json(request, take, is_authentic=authentic and self.takes_callbacks)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        asked = {"downloadCode": file.handle, "robotCode": self._robot}
        found = await self._api.call("POST", "/v1.0/robot/messageFiles/download", json=asked)
        async for chunk in self._media.download(str(found["downloadUrl"])):
            yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """DingTalk has no idempotency keys."""
        del idempotency_key
        return await self._post(outbound.chat_id, *render(outbound.text))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        body = await asyncio.to_thread(content.read_bytes)
        kind = "image" if file.media_type.startswith("image/") else "file"
        query = {"access_token": await self._api.token.get(), "type": kind}
        files = {"media": (file.name.plain() or "file", body, file.media_type)}
        uploaded = await self._media.call("POST", "/media/upload", params=query, files=files)
        if uploaded.get("errcode"):
            raise SendRefused(f"DingTalk rejects the file: {uploaded['errcode']} {uploaded.get('errmsg')}")
        receipt = await self._post(outbound.chat_id, *render_file(file, str(uploaded["media_id"])))
        await send_text_of_file(outbound, partial(self.send, outbound, idempotency_key=idempotency_key))
        return receipt

    async def _post(self, chat: str, key: str, parameters: str) -> str:
        message = {"robotCode": self._robot, "msgKey": key, "msgParam": parameters}
        if chat.startswith(_GROUP):
            message["openConversationId"] = chat
            sent = await self._api.call("POST", "/v1.0/robot/groupMessages/send", sending=True, json=message)
        else:
            message = {**message, "userIds": [chat]}
            sent = await self._api.call("POST", "/v1.0/robot/oToMessages/batchSend", sending=True, json=message)
        if sent.get("flowControlledStaffIdList"):
            raise PlatformBusy(60.0)
        if sent.get("invalidStaffIdList"):
            raise TargetGone(_NOBODY)
        return read_receipt("DingTalk", sent, "processQueryKey")
