"""The adapter for QQ. QQ calls for each message, and takes replies to it for a while; then they wait for the next."""

import asyncio
import hashlib
import re
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator, Mapping
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import AfterValidator, Field, SecretStr

from palaver.platforms.qq import PLATFORM
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Receiver,
    SendRefused,
    Source,
    TargetGone,
    Trust,
    check_url,
    file_to_send,
    one_line,
    parse_or_skip,
    parse_time,
    read_object,
    take_json,
)
from palaver.protocols.files import check_file_url, described_file
from palaver.protocols.markdown import to_plain
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import ReplyPossibleLater, ReplyWindows
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.sgroup.qq.com"))]


class QqOptions(AccountOptions):
    app_id: str = Field(pattern=r"^[0-9]+$", description="The AppID.")
    app_secret: SecretStr = Field(min_length=1, description="The AppSecret; QQ's signatures are made with it.")
    api_url: Url = Field(default="https://api.sgroup.qq.com", description="The API; the sandbox has another one.")
    token_url: Url = Field(default="https://bots.qq.com", description="Where access tokens come from.")


_SEED_BYTES = 32
_STAMP = re.compile(r"[0-9]{1,20}")
_TOKEN = re.compile(r"[0-9A-Za-z_-]{1,128}")


class Signer:
    def __init__(self, secret: str) -> None:
        seed = secret.encode()
        self._key = Ed25519PrivateKey.from_private_bytes((seed * (_SEED_BYTES // len(seed) + 1))[:_SEED_BYTES])

    @property
    def public_key(self) -> bytes:
        return self._key.public_key().public_bytes_raw()

    def sign(self, timestamp: str, text: str) -> str:
        return self._key.sign(f"{timestamp}{text}".encode("utf-8", "replace")).hex()

    def answer(self, question: Mapping[str, Any]) -> dict[str, str]:
        """Answer the question that QQ asks, unsigned, when somebody enters the address.

        It must not sign what could be a callback, which is a JSON object: raise ValueError for anything but a token.
        """
        token = str(question["plain_token"])
        at = str(question["event_ts"])
        if not (_STAMP.fullmatch(at) and _TOKEN.fullmatch(token)):
            raise ValueError("not a token")
        return {"plain_token": token, "signature": self.sign(at, token)}

    def is_signed(self, signature: str, timestamp: str, body: bytes) -> bool:
        try:
            self._key.public_key().verify(bytes.fromhex(signature), timestamp.encode("utf-8", "replace") + body)
        except (InvalidSignature, ValueError):
            return False
        return True


Json = Mapping[str, Any]
GROUP_PREFIX = "group/"
"""Of a chat id: groups and people have ids of the same form."""


def parse(event: Json, account: str) -> Inbound | None:
    """Parse an event; None if it is no message."""
    said = event["d"]
    match event["t"]:
        case "C2C_MESSAGE_CREATE":
            kind = DM
            user = str(said["author"]["user_openid"])
            chat = user
        case "GROUP_AT_MESSAGE_CREATE":
            kind = GROUP
            user = str(said["author"]["member_openid"])
            chat = f"{GROUP_PREFIX}{said['group_openid']}"
        case _:
            return None
    return Inbound(
        source=Source(
            platform="qq",
            account=account,
            chat_kind=kind,
            chat_id=chat,
            user_id=user,
            user_id_alt=said["author"].get("union_openid"),
            message_id=str(said["id"]),
        ),
        text=str(said.get("content") or "").removeprefix(" "),
        at=parse_time(said["timestamp"]),
        # In a group, QQ sends only what mentions the bot, without the mention.
        mentions_us=kind == GROUP,
        files=tuple(_files(said)),
    )


def _files(said: Json) -> Iterator[Attachment]:
    for file in said.get("attachments") or ():
        url = str(file["url"])
        kind = str(file.get("content_type") or "")
        handle = url if "://" in url else f"https://{url}"
        yield described_file(file.get("filename"), kind if "/" in kind else None, handle=handle)


MAX_FILE_BYTES = 10_000_000
_SEQUENCES = 1_000_000_000
_KINDS = {"image/png": 1, "image/jpeg": 1, "video/mp4": 2}


def render(text: str, reply_to: str, key: str) -> dict[str, Any]:
    """Render a reply. QQ shows one message for each number of a reply, so a key always has the same one."""
    number = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % _SEQUENCES + 1
    return {"content": to_plain(text), "msg_type": 0, "msg_id": reply_to, "msg_seq": number}


def file_kind(file: Attachment) -> int:
    if file.media_type not in _KINDS:
        raise SendRefused(f"QQ takes no files of the type {file.media_type}.")
    return _KINDS[file.media_type]


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
_QUESTION = 13
_ACKNOWLEDGED = 12
_ALONE_SECONDS = 3540.0
_GROUP_SECONDS = 285.0
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
        signature = headers.get("x-signature-ed25519", "")
        timestamp = headers.get("x-signature-timestamp", "")

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
        kind = file_kind(file)
        body = await asyncio.to_thread(content.read_bytes)
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
