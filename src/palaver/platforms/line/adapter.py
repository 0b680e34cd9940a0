"""The adapter for LINE. LINE calls for each event; an answer is a reply while that is free, and a push after that."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, NamedTuple, cast
from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

import httpx2
from pydantic import AfterValidator, Field, SecretStr

from palaver.platforms.line import PLATFORM
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Labels,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformError,
    Receiver,
    Revision,
    SendRefused,
    Source,
    TargetGone,
    Trust,
    Unit,
    check_url,
    edit_version,
    is_secret,
    one_line,
    parse_milliseconds,
    parse_or_skip,
    take_json,
)
from palaver.protocols.files import named_file
from palaver.protocols.markdown import to_plain
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import Names, ReplyWindows, remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import keep_checking

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.line.me"))]


class LineOptions(AccountOptions):
    channel_secret: SecretStr = Field(min_length=1, description="Signs LINE's calls.")
    token: SecretStr = Field(min_length=1, description="The channel access token.")
    api_url: Url = Field(default="https://api.line.me", description="The API.")
    data_url: Url = Field(default="https://api-data.line.me", description="Where files come from.")


Json = Mapping[str, Any]
_FILES = {"image": "image.jpg", "video": "video.mp4", "audio": "voice.m4a", "file": "file"}


class Event(NamedTuple):
    inbound: Inbound
    reply_token: str | None = None
    quote_token: str | None = None
    """With it, an answer can quote the message. It does not expire."""


def parse(event: Json, account: str) -> Event | None:
    """Parse an event; None if nobody says anything, or another program answers."""
    if event.get("mode") == "standby":
        return None
    kind = event["type"]
    place = _place(event["source"], account)
    at = parse_milliseconds(event["timestamp"])
    token = event.get("replyToken")
    if kind == "message":
        return Event(_message(event["message"], place, at), token, event["message"].get("quoteToken"))
    if kind == "messageEdited":
        edited = _message(event["message"], place, at)
        revision = Revision(version=edit_version(at.isoformat(), edited.text))
        return Event(replace(edited, revision=revision), token, event["message"].get("quoteToken"))
    if kind == "unsend":
        source = Source(**place, message_id=str(event["unsend"]["messageId"]))
        return Event(Inbound(source=source, text="", at=at, revision=Revision(version="unsent", deleted=True)))
    if kind == "postback":
        source = Source(**place, message_id=str(event["webhookEventId"]))
        return Event(Inbound(source=source, text=str(event["postback"]["data"]), at=at, mentions_us=True), token)
    return None


def _place(source: Json, account: str) -> dict[str, str]:
    """In a group, LINE does not always say who it was."""
    user = source.get("userId")
    chat = source.get("groupId") or source.get("roomId") or user
    kind = DM if source["type"] == "user" else GROUP
    ids = {"platform": "line", "account": account, "chat_kind": kind, "chat_id": str(chat)}
    return {**ids, **({"user_id": str(user)} if user else {})}


def _message(said: Json, place: dict[str, str], at: datetime) -> Inbound:
    text, mentions_us = _text(said)
    return Inbound(
        source=Source(**place, message_id=str(said["id"])),
        text=text,
        at=at,
        mentions_us=mentions_us,
        reply_to=said.get("quotedMessageId"),
        files=tuple(_files(said)),
        # An album: its pictures come as messages of their own.
        burst=_object(said, "imageSet").get("id"),
    )


def _object(said: Json, name: str) -> Json:
    return cast("Json", said.get(name) or {})


def _text(said: Json) -> tuple[str, bool]:
    """Return the text without a mention of us in front, and whether there is one."""
    match said["type"]:
        case "text":
            return _without_our_name(said)
        case "sticker":
            return f"[sticker {', '.join(said.get('keywords') or ())}".rstrip() + "]", False
        case "location":
            where = f"{said.get('latitude')}, {said.get('longitude')} {said.get('title') or said.get('address') or ''}"
            return f"[location {where.strip()}]", False
        case kind:
            return "" if kind in _FILES else "[content that cannot be shown here]", False


def _without_our_name(said: Json) -> tuple[str, bool]:
    text = str(said["text"])
    people: list[Json] = _object(said, "mention").get("mentionees") or []
    ours = [each for each in people if each.get("isSelf")]
    # LINE counts in UTF-16 units.
    units = text.encode("utf-16-le", "surrogatepass")
    for each in ours:
        if int(each["index"]) == 0:
            text = units[2 * int(each["length"]) :].decode("utf-16-le", "replace").lstrip()
    return text, bool(ours)


def _files(said: Json) -> Iterator[Attachment]:
    """Yield a file. LINE does not have those that an app shares from its own server, and anybody can name one there."""
    kind = said["type"]
    if kind not in _FILES:
        return
    name = str(said.get("fileName") or _FILES[kind])
    provider = _object(said, "contentProvider")
    file = named_file(name, said.get("fileSize"), handle=str(said["id"]))
    if provider.get("type", "line") == "line":
        yield file
    else:
        where = Label(str(provider.get("originalContentUrl") or "")).plain()
        yield file._replace(handle=None, problem=f"it is not on LINE's servers, but at {where or 'another place'}")


MAX_TEXT = 5000
_MAX_CHOICES = 13
_MAX_LABEL = 20


def render(outbound: Outbound, quote_token: str | None = None) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "text", "text": to_plain(outbound.text, MAX_TEXT, Unit.UTF16)}
    if quote_token:
        message["quoteToken"] = quote_token
    if outbound.choices:
        items = [
            {
                "type": "action",
                "action": {
                    "type": "postback",
                    "label": one_line(choice.label, _MAX_LABEL),
                    "data": choice.says,
                    "displayText": choice.label,
                },
            }
            for choice in outbound.choices[:_MAX_CHOICES]
        ]
        message["quickReply"] = {"items": items}
    return message


_WRONG_TOKEN = "LINE rejects the channel access token. Issue another one under Messaging API of the channel."  # noqa: S105
_MONTH_IS_OVER_SECONDS = 3600.0
_REPLY_SECONDS = 50.0
"""LINE does not say how long a reply token is valid; it has to be used within a minute."""
_LOADING_SECONDS = 20
_MAX_RECENT = 1000


class LineAdapter:
    platform = PLATFORM
    options = LineOptions
    # 96 characters are reserved for what the gateway adds.
    limits = Limits(text=MAX_TEXT - 96, unit=Unit.UTF16, interval=0.5, announces_requests=True)
    takes_callbacks = True

    def __init__(self, account: str, options: LineOptions) -> None:
        self.account = account
        self._secret = options.channel_secret.get_secret_value()
        headers = {"authorization": f"Bearer {options.token.get_secret_value()}"}
        self._api = RestApi("LINE", options.api_url, headers=headers, fix=_WRONG_TOKEN, explain=_explain)
        self._data = RestApi("LINE", options.data_url, headers=headers, fix=_WRONG_TOKEN)
        self._people = Names(self._fetch_name)
        self._replies = ReplyWindows(1)
        self._quote_tokens: dict[str, str] = {}
        """What LINE wants to see when an answer quotes one of the last messages."""
        self._sent: dict[str, None] = {}
        """Our last messages: LINE does not tell the author of what somebody quotes."""

    async def check(self) -> str:
        found = await self._api.call("GET", "/v2/bot/info")
        return one_line(f"{found.get('displayName', '')} {found.get('basicId', '')}", 200)

    async def run(self, receiver: Receiver) -> None:
        await keep_checking(self._api.opened(), self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        async def take(call: Mapping[str, Any]) -> None:
            for event in parse_or_skip(self.platform.name, lambda: list(call["events"])) or ():
                found = parse_or_skip(self.platform.name, lambda event=event: parse(event, self.account))
                if found is not None:
                    await self._take(found, receiver)

        expected = base64.b64encode(hmac.new(self._secret.encode(), request.body, hashlib.sha256).digest()).decode()
        is_authentic = is_secret(request.headers.get("x-line-signature", ""), expected)
        return await take_json(request, take, is_authentic=is_authentic)

    async def _take(self, event: Event, receiver: Receiver) -> None:
        inbound = event.inbound
        source = inbound.source
        place = "" if source.chat_kind == DM else source.chat_id
        name = await self._people.get(f"{place}/{source.user_id}") if source.user_id else None
        is_ours = inbound.mentions_us or inbound.reply_to in self._sent
        await receiver.receive(replace(inbound, labels=Labels(user=name), mentions_us=is_ours), Trust())
        if event.quote_token and source.message_id:
            remember(self._quote_tokens, source.message_id, event.quote_token)
        if event.reply_token:
            self._replies.open(source.chat_id or "", event.reply_token, _REPLY_SECONDS)

    async def _fetch_name(self, who: str) -> object:
        place, user = (quote(part, safe="") for part in who.rsplit("/", 1))
        where = {"": "profile", "C": f"group/{place}/member", "R": f"room/{place}/member"}[place[:1]]
        return (await self._api.call("GET", f"/v2/bot/{where}/{user}"))["displayName"]

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._data.download(f"/v2/bot/message/{quote(file.handle or '', safe='')}/content")

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Send it as a quote if that is wanted, and else, or if LINE rejects the quote, without one."""
        quoted = outbound.quoted(in_group=not outbound.chat_id.startswith("U"))
        if token := self._quote_tokens.get(quoted or ""):
            try:
                return await self._send(outbound, render(outbound, token), idempotency_key)
            except TargetGone:
                raise
            except SendRefused:
                pass
        return await self._send(outbound, render(outbound), idempotency_key)

    async def _send(self, outbound: Outbound, message: Mapping[str, Any], idempotency_key: str) -> str:
        """Reply, which is free, or push, which counts. A push that is repeated is shown once, a reply is not."""
        messages = [message]
        token = self._replies.take(outbound.chat_id)
        if token is not None:
            try:
                return await self._post("reply", {"replyToken": token, "messages": messages})
            except _InvalidReplyToken:
                pass
        headers = {"x-line-retry-key": str(uuid5(NAMESPACE_URL, idempotency_key))}
        try:
            return await self._post("push", {"to": outbound.chat_id, "messages": messages}, headers=headers)
        except _AlreadyAccepted as accepted:
            return accepted.message

    async def typing(self, outbound: Outbound) -> None:
        if outbound.chat_id.startswith("U"):
            loading = {"chatId": outbound.chat_id, "loadingSeconds": _LOADING_SECONDS}
            await self._api.call("POST", "/v2/bot/chat/loading/start", json=loading)

    async def _post(self, how: str, body: Mapping[str, Any], **options: Any) -> str:  # noqa: ANN401 - of httpx2
        sent = await self._api.call("POST", f"/v2/bot/message/{how}", sending=True, json=body, **options)
        message = read_receipt("LINE", sent, "sentMessages", 0, "id")
        remember(self._sent, message, None, _MAX_RECENT)
        return message


class _InvalidReplyToken(SendRefused):
    pass


class _AlreadyAccepted(SendRefused):
    def __init__(self, message: str) -> None:
        super().__init__("LINE has already sent this message.")
        self.message = message


def _explain(response: httpx2.Response) -> PlatformError | None:
    """Explain an error answer; None if its status says enough."""
    try:
        answer: Any = response.json()
        words = str(answer["message"])
        if response.status_code == HTTPStatus.CONFLICT:
            return _AlreadyAccepted(str(answer["sentMessages"][0]["id"]))
    except (ValueError, LookupError, TypeError):
        return None
    if "monthly limit" in words:
        return PlatformBusy(_MONTH_IS_OVER_SECONDS)
    return _explain_words(words) if response.status_code == HTTPStatus.BAD_REQUEST else None


def _explain_words(words: str) -> SendRefused:
    if words.startswith("Invalid reply token"):
        return _InvalidReplyToken("The reply token is no longer valid.")
    if words.startswith("Failed to send messages"):
        return TargetGone("LINE cannot deliver there: no such person, or the account is not in the group.")
    return SendRefused(f"LINE rejects it: {words[:200]}")
