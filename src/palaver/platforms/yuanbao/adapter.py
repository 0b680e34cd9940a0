"""The adapter for Yuanbao. It keeps a WebSocket open; what is pushed is acknowledged once it is stored."""

import asyncio
import hashlib
import hmac
import secrets
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import parse_qs, quote, urlsplit
from uuid import uuid4

from pydantic import AfterValidator, Field, SecretStr
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from palaver.platforms.yuanbao import PLATFORM
from palaver.platforms.yuanbao.wire import (
    CONNECTION,
    GROUP_PREFIX,
    MESSAGES,
    Frame,
    Kind,
    body_of,
    elements,
    parse,
    receipt_of,
    render,
)
from palaver.protocols import (
    Attachment,
    ClientErrors,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
    Trust,
    check_url,
    file_to_send,
    parse_or_skip,
    proxy_of,
    read_ahead,
    run_together,
    value,
)
from palaver.protocols.files import check_file_url, send_text_of_file
from palaver.protocols.options import AccountOptions
from palaver.protocols.pending import PendingAnswers
from palaver.protocols.protobuf import decode, encode, number_of, text_of
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi
from palaver.protocols.tokens import ApiCodes, TokenApi

Url = Annotated[str, AfterValidator(check_url("a URL, like https://bot.yuanbao.tencent.com"))]


class YuanbaoOptions(AccountOptions):
    app_key: str = Field(min_length=1, description="The App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The App Secret.")
    terminal_type: str = Field(
        default="", pattern=r"^[0-9]*$", description="The number that Tencent has given your program, if any."
    )
    api_url: Url = Field(default="https://bot.yuanbao.tencent.com", description="The API.")
    storage_url: Url | None = Field(default=None, description="Where files go, if that is not what Yuanbao says.")
    socket_url: str = Field(
        default="wss://bot-wss.yuanbao.tencent.com/wss/connection",
        pattern=r"^wss?://\S+$",
        description="The WebSocket.",
    )


MAX_FILE_BYTES = 20 << 20
_ANY_FORMAT = 255


@value
class Place:
    """Where a file goes, and the URL under which people then find it."""

    url: str
    headers: Mapping[str, str]
    resource: str

    @classmethod
    def read(cls, found: Mapping[str, Any], size: int, storage_url: str | None) -> "Place":
        path = f"/{str(found['location']).lstrip('/')}"
        url = (storage_url or f"https://{found['bucketName']}.cos.{found['region']}.myqcloud.com") + path
        token = str(found["encryptToken"])
        signed = {"content-length": str(size), "host": urlsplit(url).netloc, "x-cos-security-token": token}
        during = f"{int(found['startTime'])};{int(found['expiredTime'])}"
        secret_id = str(found["encryptTmpSecretId"])
        secret = str(found["encryptTmpSecretKey"])
        headers = {"authorization": sign(path, signed, during, secret_id, secret), "x-cos-security-token": token}
        return cls(url=url, headers=headers, resource=str(found["resourceUrl"]))


def sign(path: str, headers: Mapping[str, str], during: str, secret_id: str, secret: str) -> str:
    """Sign a PUT as Tencent's documentation of COS describes it."""
    names = sorted(headers)
    listed = "&".join(f"{name}={quote(headers[name], safe='')}" for name in names)
    request = hashlib.sha1(f"put\n{path}\n\n{listed}\n".encode()).hexdigest()  # noqa: S324 - COS wants it
    signature = _hmac(_hmac(secret, during), f"sha1\n{during}\n{request}\n")
    parts = {
        "q-sign-algorithm": "sha1",
        "q-ak": secret_id,
        "q-sign-time": during,
        "q-key-time": during,
        "q-header-list": ";".join(names),
        "q-url-param-list": "",
        "q-signature": signature,
    }
    return "&".join(f"{name}={part}" for name, part in parts.items())


def file_part(file: Attachment, content: bytes, url: str) -> list[bytes]:
    """Return a message body: a picture, or another file."""
    digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
    if file.media_type.startswith("image/"):
        picture = encode((1, 1), (2, len(content)), (5, url))
        return elements([("TIMImageElem", encode((2, digest), (3, _ANY_FORMAT), (8, picture)))])
    name = file.name.plain() or "file"
    return elements([("TIMFileElem", encode((2, digest), (10, url), (11, len(content)), (12, name)))])


def _hmac(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), hashlib.sha1).hexdigest()


_WRONG_SECRET = "Yuanbao rejects the App ID or App Secret. Copy both from the bot's settings in the app."  # noqa: S105
_BANNED = "Yuanbao has closed this bot: it is banned, deleted, or connected from somewhere else."
_CODES = ApiCodes(code="code", words="msg", errors={10099: partial(PlatformBusy, 1.0)}, fix=_WRONG_SECRET)
_EXPIRED = frozenset({41103, 41104, 41108})
_ALREADY_BOUND = 41101
_OVERLOADED = 50503
_UNKNOWN_USER = 20002
_INTERNAL = frozenset({50400, 90001, 90003})
_BANS = frozenset({4012, 4013, 4014, 4018, 4019, 4021})
"""The codes with which the server closes a connection for good."""
_BEIJING = timezone(timedelta(hours=8))
_FIRST_BEAT_SECONDS = 5.0
_RESULT_SECONDS = 30.0
_MAX_FRAME_BYTES = 1 << 20
_FILE_HOSTS = (".tencent.com", ".myqcloud.com", ".qq.com")
"""Files are fetched from Tencent only: a message could name any address."""


def _explain_closed(error: Exception, *, sending: bool) -> PlatformError | None:
    code = error.rcvd.code if isinstance(error, ConnectionClosed) and error.rcvd else 0
    return PlatformRefused(_BANNED) if code in _BANS and not sending else None


_LINE = ClientErrors(title="Yuanbao", raised=(OSError, WebSocketException), explain=_explain_closed)


@value
class Signed:
    """What the server says about our bot, with its token."""

    bot: str
    source: str


class YuanbaoAdapter:
    platform = PLATFORM
    options = YuanbaoOptions
    limits = Limits(text=3000, interval=0.5)

    def __init__(self, account: str, options: YuanbaoOptions) -> None:
        self.account = account
        self._options = options
        self._api = TokenApi("Yuanbao", options.api_url, fetch=self._sign, place=self._place, codes=_CODES)
        self._files = RestApi("Yuanbao", options.api_url)
        self._signed = Signed(bot="", source="bot")
        self._line: ClientConnection | None = None
        self._results = PendingAnswers[str, Frame]()
        self._numbers = count(1)
        self._names: dict[str, str] = {}
        """The names of people we have met, by id."""
        self._met: dict[str, str] = {}
        """The group in which we met somebody: a private message goes through it."""

    async def _sign(self) -> tuple[Any, Any]:
        key = self._options.app_key
        secret = self._options.app_secret.get_secret_value()
        nonce = secrets.token_hex(16)
        stamp = datetime.now(UTC).astimezone(_BEIJING).isoformat(timespec="seconds")
        plain = f"{nonce}{stamp}{key}{secret}"
        signature = hmac.new(secret.encode(), plain.encode(), hashlib.sha256).hexdigest()
        asked = {"app_key": key, "nonce": nonce, "signature": signature, "timestamp": stamp}
        found = await self._api.ask("POST", "/api/v5/robotLogic/sign-token", json=asked, headers=self._device())
        data = found["data"]
        self._signed = Signed(bot=str(data["bot_id"]), source=str(data.get("source") or "bot"))
        return data["token"], data.get("duration") or 0

    def _device(self) -> Mapping[str, str]:
        return {"x-instance-id": self._options.terminal_type} if self._options.terminal_type else {}

    async def check(self) -> str:
        await self._api.fetch_token()
        return self._signed.bot

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        token = await self._api.token.get()
        try:
            with _LINE.requests():
                async with connect(
                    self._options.socket_url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(self._options.socket_url)
                ) as line:
                    await run_together(self._read(line, receiver), self._serve(line, token, receiver))
        finally:
            self._line = None
            self._results.fail("The connection was lost while sending.")

    async def _serve(self, line: ClientConnection, token: str, receiver: Receiver) -> None:
        async with asyncio.timeout(_RESULT_SECONDS):
            await self._bind(line, token)
        self._line = line
        await receiver.connected()
        await self._beat(line)

    async def _bind(self, line: ClientConnection, token: str) -> None:
        """Say who we are. A token that has expired is replaced with the next connection."""
        identity = encode((1, self._signed.bot), (2, self._signed.source), (3, token))
        device = encode((10, self._options.terminal_type))
        answer = await self._ask(line, "auth-bind", encode((1, "ybBot"), (2, identity), (3, device)), CONNECTION)
        code = answer.status or number_of(decode(answer.data), 1)
        if code in _EXPIRED:
            self._api.token.drop(token)
            raise PlatformDown("The token has expired.")
        if code and code != _ALREADY_BOUND:
            if code in {*_INTERNAL, _OVERLOADED}:
                raise PlatformDown(f"Yuanbao does not connect the bot: {code}.")
            raise PlatformRefused(f"{_WRONG_SECRET} ({code})")

    async def _read(self, line: ClientConnection, receiver: Receiver) -> None:
        await read_ahead(self._pushes(line), partial(self._take, line=line, receiver=receiver))
        raise PlatformDown("Yuanbao closed the connection.")

    async def _pushes(self, line: ClientConnection) -> AsyncIterator[Frame]:
        """Yield what is pushed, but settle results at once: a send does not wait until messages are stored."""
        async for raw in line:
            frame = parse_or_skip(self.platform.name, lambda raw=raw: Frame.decode(_bytes(raw)))
            if frame is None:
                continue
            if frame.kind is Kind.RESPONSE:
                self._results.settle(frame.id, frame)
            elif frame.kind is Kind.PUSH:
                yield frame

    async def _take(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        if frame.command == "kickout":
            raise PlatformRefused(_BANNED)
        push = parse_or_skip(self.platform.name, lambda: parse(frame.data, self.account, self._signed.bot))
        if push is not None:
            for known, found in ((self._names, push.name), (self._met, push.group)):
                if push.sender and found:
                    remember(known, push.sender, found)
            for inbound in push.inbounds:
                await receiver.receive(inbound, Trust())
        if frame.needs_ack:
            ack = Frame(
                kind=Kind.ACK, command=frame.command, id=frame.id, module=frame.module, number=next(self._numbers)
            )
            await line.send(ack.encode())

    async def _beat(self, line: ClientConnection) -> None:
        """Ping as often as the server asks. Without an answer the connection is made anew."""
        pause = _FIRST_BEAT_SECONDS
        while True:
            await asyncio.sleep(pause)
            try:
                async with asyncio.timeout(2 * _FIRST_BEAT_SECONDS + pause):
                    answer = await self._ask(line, "ping", b"", CONNECTION)
                pause = max(float(number_of(decode(answer.data), 1) - 1), 1.0)
            except (TimeoutError, ValueError) as error:
                raise PlatformDown("Yuanbao does not respond.") from error

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        url = file.handle or ""
        resource = parse_qs(urlsplit(url).query).get("resourceId")
        if resource:
            found = await self._api.call("GET", "/api/resource/v1/download", params={"resourceId": resource[0]})
            data = found.get("data") or found
            url = str(data.get("url") or data.get("realUrl") or "")
        async for chunk in self._files.download(check_file_url(url, api_url=self._options.api_url, hosts=_FILE_HOSTS)):
            yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._send(outbound, body_of(outbound.text, self._names), idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        body = await asyncio.to_thread(content.read_bytes)
        url = await self._upload(file, body)
        receipt = await self._send(outbound, file_part(file, body, url), idempotency_key)
        await send_text_of_file(outbound, lambda: self.send(outbound, idempotency_key=f"{idempotency_key} text"))
        return receipt

    async def _upload(self, file: Attachment, body: bytes) -> str:
        asked = {"fileName": file.name.plain() or "file", "fileId": uuid4().hex, "docFrom": "localDoc", "docOpenId": ""}
        found = await self._api.call("POST", "/api/resource/genUploadInfo", json=asked)
        try:
            place = Place.read(found.get("data") or found, len(body), self._options.storage_url)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise SendRefused("Yuanbao gives no place for the file.") from error
        headers = {**place.headers, "content-type": file.media_type}
        async with self._files.stream("PUT", place.url, content=body, headers=headers) as response:
            await response.aread()
        return place.resource

    def _place(self, token: str) -> Mapping[str, Mapping[str, str]]:
        bot = {"x-id": self._signed.bot, "x-source": self._signed.source}
        return {"headers": {**bot, "x-token": token, **self._device()}}

    async def _send(self, outbound: Outbound, body: list[bytes], idempotency_key: str) -> str:
        us = self._signed.bot
        met_in = self._met.get(outbound.chat_id, "")
        command, data = render(outbound, body, us=us, key=idempotency_key, met_in=met_in)
        answer = await self._request(command, data)
        fields = parse_or_skip(self.platform.name, lambda: decode(answer.data)) or {}
        code = answer.status or number_of(fields, 1)
        if code:
            raise _explain(code, text_of(fields, 2))
        return receipt_of(idempotency_key)

    async def typing(self, outbound: Outbound) -> None:
        us = self._signed.bot
        running = 1
        chat = outbound.chat_id
        if chat.startswith(GROUP_PREFIX):
            group = chat.removeprefix(GROUP_PREFIX)
            await self._request("send_group_heartbeat", encode((1, us), (3, group), (5, running)))
        else:
            await self._request("send_private_heartbeat", encode((1, us), (2, chat), (3, running)))

    async def _request(self, command: str, data: bytes) -> Frame:
        if self._line is None:
            raise PlatformDown("There is no connection to Yuanbao.")
        with _LINE.sends():
            async with asyncio.timeout(_RESULT_SECONDS):
                return await self._ask(self._line, command, data, MESSAGES)

    async def _ask(self, line: ClientConnection, command: str, data: bytes, module: str) -> Frame:
        request = Frame(
            kind=Kind.REQUEST, command=command, id=uuid4().hex, module=module, number=next(self._numbers), data=data
        )
        with self._results.expect(request.id) as answer:
            await line.send(request.encode())
            return await answer


def _bytes(raw: str | bytes) -> bytes:
    return raw if isinstance(raw, bytes) else raw.encode()


def _explain(code: int, words: str) -> PlatformError:
    if code == _OVERLOADED:
        return PlatformBusy(5.0)
    if code == _UNKNOWN_USER:
        return TargetGone("Yuanbao does not know this person or group.")
    if code in _INTERNAL:
        return SendUnclear(f"Yuanbao answered {code}.")
    return SendRefused(f"Yuanbao rejects it: {code} {words[:200]}".rstrip())
