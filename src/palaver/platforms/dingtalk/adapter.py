"""The adapter for DingTalk. Messages come over a stream that we open, or DingTalk calls; answers go to its API."""

import asyncio
import hashlib
import hmac
import json
import time
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from palaver.platforms.dingtalk import PLATFORM
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    ClientErrors,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Labels,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformRefused,
    Quote,
    Receiver,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
    check_url,
    file_to_send,
    is_secret,
    one_line,
    parse_milliseconds,
    parse_or_skip,
    proxy_of,
    receive_or_skip,
    take_json,
    value,
)
from palaver.protocols.files import named_file, send_text_of_file
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks, to_spans
from palaver.protocols.options import AccountOptions
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.dingtalk.com"))]


class DingTalkOptions(AccountOptions):
    client_id: str = Field(min_length=1, description="The Client ID, also called AppKey.")
    client_secret: SecretStr = Field(
        min_length=1, description="The Client Secret; with `http`, it signs DingTalk's calls."
    )
    mode: Literal["stream", "http"] = Field(
        default="stream", description="Whether to open a stream, or be called: `http` needs a public address."
    )
    robot_code: str | None = Field(default=None, description="The robot's code, if it is not the Client ID.")
    api_url: Url = Field(default="https://api.dingtalk.com", description="The API.")
    media_url: Url = Field(default="https://oapi.dingtalk.com", description="The older API, which takes files.")


_MAX_AGE_MS = 3_600_000


def sign(timestamp: str, secret: str) -> str:
    text = f"{timestamp}\n{secret}".encode("utf-8", "replace")
    return b64encode(hmac.new(secret.encode(), text, hashlib.sha256).digest()).decode()


def is_signed(headers: Mapping[str, str], secret: str, now_ms: int) -> bool:
    """Return whether the call was signed within the last hour."""
    timestamp = headers.get("timestamp", "")
    if not (timestamp.isascii() and timestamp.isdecimal()) or abs(now_ms - int(timestamp[:20])) > _MAX_AGE_MS:
        return False
    return is_secret(headers.get("sign", ""), sign(timestamp, secret))


Json = Mapping[str, Any]
_WORDS = ("text", "content", "recognition", "summary", "title", "fileName")
"""Where a quoted message has its words, by its kind."""
_NAMES = {"picture": "image.png", "audio": "voice.amr", "video": "video.mp4"}


def parse(message: Json, account: str) -> Inbound:
    is_group = str(message["conversationType"]) == "2"
    # A robot writes to people under their id in the company; guests have none.
    sender = str(message.get("senderStaffId") or message["senderId"])
    title = message.get("conversationTitle") if is_group else None
    replied = _replied(message)
    return Inbound(
        source=Source(
            platform="dingtalk",
            account=account,
            chat_kind=GROUP if is_group else DM,
            chat_id=str(message["conversationId"]) if is_group else sender,
            user_id=sender,
            message_id=str(message["msgId"]),
        ),
        text=_text(message),
        at=parse_milliseconds(message["createAt"]),
        labels=Labels(user=Label.of(message.get("senderNick")), chat=Label.of(title)),
        # In a group, DingTalk sends only what mentions the robot, without the mention.
        mentions_us=is_group,
        # Of a message of ours we know only the key of its sending.
        reply_to=message.get("originalProcessQueryKey") or message.get("originalMsgId") or replied.get("msgId"),
        quote=_quote(replied, message),
        files=tuple(_files(message)),
    )


def _replied(message: Json) -> Json:
    """Return the message that this one replies to. It comes inside the content, if at all."""
    for name in ("text", "content"):
        if replied := _object(message, name).get("repliedMsg"):
            return cast("Json", replied)
    return {}


def _object(message: Json, name: str) -> Json:
    """Return an object, which some versions of the API send as text."""
    found: Any = message.get(name)
    if isinstance(found, str):
        with suppress(ValueError, RecursionError):
            found = json.loads(found)
    return cast("Json", found) if isinstance(found, Mapping) else {}


def _quote(replied: Json, message: Json) -> Quote | None:
    content = _object(replied, "content")
    plain = replied.get("content")
    pieces: list[Json] = content.get("richText") or [content]
    words = [next((str(piece[name]) for name in _WORDS if piece.get(name)), "") for piece in pieces]
    text = "".join(words).strip() or (plain if isinstance(plain, str) and not content else "")
    is_ours = replied.get("senderId") == message.get("chatbotUserId")
    return Quote(text=text, is_ours=is_ours) if text else None


def _text(message: Json) -> str:
    match message["msgtype"]:
        case "text":
            return str(message["text"]["content"]).removeprefix(" ")
        case "richText":
            pieces: list[Json] = _object(message, "content")["richText"]
            return "".join(str(piece.get("text") or "") for piece in pieces).strip()
        case "audio":
            return str(_object(message, "content").get("recognition") or "")
        case "picture" | "video" | "file":
            return ""
        case _:
            return "[content that cannot be shown here]"


def _files(message: Json) -> Iterator[Attachment]:
    kind = message["msgtype"]
    content = _object(message, "content")
    pieces: list[Json] = content["richText"] if kind == "richText" else []
    codes = [piece["downloadCode"] for piece in pieces if piece.get("downloadCode")]
    name = _NAMES["picture"]
    if kind in {"picture", "audio", "video", "file"}:
        codes = [content["downloadCode"]]
        name = str(content.get("fileName") or _NAMES.get(kind, "file"))
    for code in codes:
        yield named_file(name, handle=str(code))


MAX_FILE_BYTES = 20_000_000
_MAX_BYTES = 15_000
_MAX_TITLE = 40
_MARKS = Marks(
    bold="**",
    italic="*",
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    layout=Layout(bullet="- ", is_linked=is_web_link, is_even=False),
)


def render(text: str) -> tuple[str, str]:
    """Return the key of the message, and its parameters. Its Markdown needs two spaces before a line break."""
    plain = to_spans(text, _MARKS.layout)
    shown = to_marks(text, _MARKS)
    is_plain = not plain.spans and plain.text.strip() in {"", text.strip()}
    if is_plain or len(shown.encode()) > _MAX_BYTES:
        return "sampleText", json.dumps({"content": text}, ensure_ascii=False)
    title = one_line(" ".join(shown.replace("*", "").split()), _MAX_TITLE)
    return "sampleMarkdown", json.dumps({"title": title, "text": shown.replace("\n", "  \n")}, ensure_ascii=False)


def render_file(file: Attachment, media_id: str) -> tuple[str, str]:
    name = file.name.plain() or "file"
    if file.media_type.startswith("image/"):
        return "sampleImageMsg", json.dumps({"photoURL": media_id})
    kind = name.rpartition(".")[2] if "." in name else "txt"
    return "sampleFile", json.dumps({"mediaId": media_id, "fileName": name, "fileType": kind}, ensure_ascii=False)


_TOPIC = "/v1.0/im/bot/messages/get"
_MAX_FRAME_BYTES = 1 << 20
_JSON = "application/json"
_LINE = ClientErrors(title="DingTalk", raised=(OSError, WebSocketException))
SUBSCRIPTIONS = [{"type": "CALLBACK", "topic": _TOPIC}]


@value
class Frame:
    kind: str
    topic: str
    id: str
    data: str

    @classmethod
    def decode(cls, raw: str | bytes) -> "Frame":
        found = json.loads(raw)
        headers = found["headers"]
        return cls(
            kind=str(found["type"]), topic=str(headers["topic"]), id=str(headers["messageId"]), data=found["data"]
        )

    def answer(self, data: str) -> str:
        headers = {"contentType": _JSON, "messageId": self.id}
        return json.dumps({"code": 200, "headers": headers, "message": "OK", "data": data})


async def listen(
    place: Mapping[str, Any], connected: Callable[[], Awaitable[None]], take: Callable[[str], Awaitable[None]]
) -> None:
    """Hand over messages until the connection is lost. Each is acknowledged when `take` has returned."""
    with _LINE.requests():
        url = f"{place['endpoint']}?ticket={quote(str(place['ticket']), safe='')}"
        async with connect(url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line:
            await connected()
            async for raw in line:
                frame = parse_or_skip("dingtalk", lambda raw=raw: Frame.decode(raw))
                if frame is None:
                    continue
                if frame.kind == "SYSTEM" and frame.topic == "disconnect":
                    break
                if frame.topic == _TOPIC:
                    await take(frame.data)
                # A ping wants its data back, a message an answer without content.
                await line.send(frame.answer(frame.data if frame.kind == "SYSTEM" else '{"response": null}'))
    raise PlatformDown("DingTalk closed the connection.")


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
