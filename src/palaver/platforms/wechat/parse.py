"""Parse the messages of WeChat and WeCom, and open their callbacks."""

from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from http import HTTPStatus

from palaver.protocols import Attachment, HttpRequest, HttpResponse, Inbound, Label, Source, parse_or_skip
from palaver.protocols.sealed import BadEnvelope, Envelope, read_xml

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
    kind, sender = message["MsgType"], message["FromUserName"]
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
    kind, sender, at = message["Event"].lower(), message["FromUserName"], message["CreateTime"]
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
