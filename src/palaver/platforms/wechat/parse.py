"""What WeChat and WeCom share: options, callbacks, text and files."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal
from xml.sax.saxutils import escape

from pydantic import AfterValidator, Field, SecretStr

from palaver.protocols import (
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Outbound,
    SendRefused,
    Source,
    Unit,
    check_secret,
    check_url,
    file_to_send,
    parse_or_skip,
)
from palaver.protocols.files import send_text_of_file
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks, to_plain
from palaver.protocols.options import AccountOptions
from palaver.protocols.sealed import BadEnvelope, Envelope, read_xml
from palaver.protocols.tokens import TokenApi

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.weixin.qq.com"))]
EncodingKey = Annotated[
    SecretStr, AfterValidator(check_secret("[0-9A-Za-z]{43}", "the EncodingAESKey: 43 letters and digits"))
]


class WeChatOptions(AccountOptions):
    app_id: str = Field(pattern=r"^wx[0-9a-z]+$", description="The AppID.")
    app_secret: SecretStr = Field(min_length=1, description="The AppSecret.")
    token: SecretStr = Field(min_length=3, description="The Token under Server Configuration; signs WeChat's calls.")
    encoding_aes_key: EncodingKey = Field(description="The EncodingAESKey; encrypts WeChat's calls.")
    passive: bool = Field(
        default=False, description="For accounts without customer service messages: answer only when people write."
    )
    api_url: Url = Field(default="https://api.weixin.qq.com", description="The API.")


class WeComOptions(AccountOptions):
    corp_id: str = Field(pattern=r"^[0-9a-zA-Z]+$", description="The company ID.")
    agent_id: int = Field(gt=0, description="The AgentId of the app.")
    secret: SecretStr = Field(min_length=1, description="The Secret of the app.")
    token: SecretStr = Field(min_length=1, description="The Token under Receive Messages; signs WeCom's calls.")
    encoding_aes_key: EncodingKey = Field(description="The EncodingAESKey; encrypts WeCom's calls.")
    format: Literal["markdown", "text"] = Field(
        default="markdown", description="`text` if people read in WeChat, which does not show WeCom's Markdown."
    )
    api_url: Url = Field(default="https://qyapi.weixin.qq.com", description="The API.")


MAX_BYTES = 2048
MAX_FILE_BYTES = 20_000_000
_MARKS = Marks(
    bold="**",
    code="`",
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    layout=Layout(is_linked=is_web_link, is_even=False),
)
_MEDIA = {
    "image": (("image/png", "image/jpeg", "image/gif"), 10_000_000),
    "voice": (("audio/amr", "audio/mpeg"), 2_000_000),
    "video": (("video/mp4",), 10_000_000),
}


def plain_text(text: str) -> str:
    return to_plain(text, MAX_BYTES, Unit.UTF8)


def wecom_markdown(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown.encode()) <= MAX_BYTES else text


def render(outbound: Outbound) -> dict[str, Any]:
    """Render a customer service message. Choices are a menu: its lines can be tapped."""
    to = {"touser": outbound.chat_id}
    text = plain_text(outbound.text)
    if outbound.choices:
        lines = [{"id": choice.says, "content": choice.label} for choice in outbound.choices]
        return {**to, "msgtype": "msgmenu", "msgmenu": {"head_content": text, "list": lines, "tail_content": ""}}
    return {**to, "msgtype": "text", "text": {"content": text}}


def render_reply(text: str, *, to: str, us: str, at: int) -> str:
    """Render the answer to a callback."""
    fields = {"ToUserName": to, "FromUserName": us, "CreateTime": at, "MsgType": "text", "Content": plain_text(text)}
    return f"<xml>{''.join(f'<{tag}>{escape(str(value))}</{tag}>' for tag, value in fields.items())}</xml>"


def media_kind(file: Attachment, size: int, *, takes_files: bool) -> str:
    """Return as what to send a file. Raise SendRefused if there is no way."""
    for kind, (types, largest) in _MEDIA.items():
        if file.media_type in types and size <= largest:
            return kind
    if takes_files:
        return "file"
    raise SendRefused(f"WeChat takes no files of the type {file.media_type} and this size.")


def download(api: TokenApi, file: Attachment) -> AsyncIterator[bytes]:
    return api.download("/cgi-bin/media/get", params={"media_id": file.handle or ""})


async def upload_file(
    api: TokenApi,
    outbound: Outbound,
    content: Path,
    *,
    post: Callable[[Mapping[str, Any]], Awaitable[str]],
    send: Callable[[], Awaitable[str]],
    takes_files: bool,
) -> str:
    """Upload and `post` a file, then `send` its text."""
    file = file_to_send(outbound, content, MAX_FILE_BYTES)
    body = await asyncio.to_thread(content.read_bytes)
    kind = media_kind(file, len(body), takes_files=takes_files)
    files = {"media": (file.name.plain() or "file", body, file.media_type)}
    uploaded = await api.call("POST", "/cgi-bin/media/upload", params={"type": kind}, files=files)
    receipt = await post({"touser": outbound.chat_id, "msgtype": kind, kind: {"media_id": str(uploaded["media_id"])}})
    await send_text_of_file(outbound, send)
    return receipt


Xml = Mapping[str, str]
SUCCESS = HttpResponse(body=b"success")
_EVENTS = frozenset({"event", "device_event", "device_text"})
_FILES = {
    "image": ("image.jpg", "image/jpeg"),
    "voice": ("voice.amr", "audio/amr"),
    "video": ("video.mp4", "video/mp4"),
    "shortvideo": ("video.mp4", "video/mp4"),
}


async def take_xml(
    request: HttpRequest, envelope: Envelope, take: Callable[[Xml], Awaitable[HttpResponse]], platform: str
) -> HttpResponse:
    """Answer the question about the address, or hand the message in a callback to `take`."""
    query = request.query
    stamps = {
        "signature": query.get("msg_signature", ""),
        "timestamp": query.get("timestamp", ""),
        "nonce": query.get("nonce", ""),
    }
    try:
        if request.method == "GET":
            return HttpResponse(body=_echo(query, envelope, stamps))
        body = envelope.open(read_xml(request.body)["Encrypt"], **stamps)
    except (BadEnvelope, ValueError, KeyError):
        return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
    message = parse_or_skip(platform, lambda: read_xml(body))
    return await take(message) if message is not None else SUCCESS


def _echo(query: Mapping[str, str], envelope: Envelope, stamps: dict[str, str]) -> bytes:
    """WeCom encrypts what we return, WeChat does not."""
    echo = query.get("echostr", "")
    if stamps["signature"]:
        return envelope.open(echo, **stamps)
    envelope.check(query.get("signature", ""), stamps["timestamp"], stamps["nonce"])
    return echo.encode()


def parse(message: Xml, platform: str, account: str) -> Inbound | None:
    """Parse a message or a tap on the account's menu; None for events that nobody says anything with."""
    kind = message["MsgType"]
    sender = message["FromUserName"]
    if kind in _EVENTS:
        return _event(message, platform, account)
    source = Source(
        platform=platform, account=account, chat_id=sender, user_id=sender, message_id=message["MsgId"] or None
    )
    files = ()
    if kind in _FILES and message.get("MediaId"):
        name, media_type = _FILES[kind]
        files = (Attachment(Label(name), media_type, handle=message["MediaId"]),)
    return Inbound(
        source=source,
        text=_text(kind, message),
        at=datetime.fromtimestamp(int(message["CreateTime"]), UTC),
        # What a choice of a menu says is its id.
        mentions_us="bizmsgmenuid" in message,
        files=files,
    )


def _event(message: Xml, platform: str, account: str) -> Inbound | None:
    """A tap says its key, and a new follower asks for help. Events have no id: they are known by person and time."""
    kind = message["Event"].lower()
    sender = message["FromUserName"]
    at = message["CreateTime"]
    text = {"click": message.get("EventKey", ""), "subscribe": "/help"}.get(kind)
    if not text:
        return None
    source = Source(
        platform=platform, account=account, chat_id=sender, user_id=sender, message_id=f"{kind}:{at}:{sender}"
    )
    return Inbound(source=source, text=text, at=datetime.fromtimestamp(int(at), UTC), mentions_us=True)


def _text(kind: str, message: Xml) -> str:
    match kind:
        case "text":
            return message.get("bizmsgmenuid") or message["Content"]
        case "voice":
            return message.get("Recognition", "")
        case "location":
            place = f"{message.get('Location_X', '')}, {message.get('Location_Y', '')} {message.get('Label', '')}"
            return f"[location {place.strip()}]"
        case "link":
            return f"{message.get('Title', '')}\n{message.get('Description', '')}\n{message.get('Url', '')}".strip()
        case _:
            return "" if kind in _FILES else "[content that cannot be shown here]"
