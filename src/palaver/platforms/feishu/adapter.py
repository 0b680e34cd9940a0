"""The adapter for Feishu and Lark. Feishu calls for each event, up to four times more until it is answered with 200."""

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import quote

from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.platforms.feishu import PLATFORM, stream
from palaver.platforms.feishu.parse import Event, Json, is_signed, parse, read_event, token_of
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    HttpRequest,
    HttpResponse,
    Labels,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    QuoteMode,
    Receiver,
    SendRefused,
    SendUnclear,
    TargetGone,
    check_url,
    file_to_send,
    is_secret,
    one_line,
    parse_or_skip,
    read_object,
)
from palaver.protocols.files import send_text_of_file
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import Names, remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Url = Annotated[str, AfterValidator(check_url("a URL, like https://open.feishu.cn or https://open.larksuite.com"))]


class FeishuOptions(AccountOptions):
    app_id: str = Field(pattern=r"^cli_[0-9a-zA-Z]+$", description="The App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The App Secret.")
    mode: Literal["http", "stream"] = Field(
        default="http", description="Whether to be called at a public address, or open a long connection."
    )
    encrypt_key: SecretStr | None = Field(
        default=None, min_length=1, description="Encrypts and signs what Feishu sends you; needed for `http`."
    )
    verification_token: SecretStr | None = Field(default=None, description="Also expected in what Feishu sends you.")
    api_url: Url = Field(default="https://open.feishu.cn", description="For Lark, https://open.larksuite.com.")

    @model_validator(mode="after")
    def _check_key(self) -> Self:
        if self.mode == "http" and self.encrypt_key is None:
            raise ValueError("an encrypt_key for the mode http: without it, anybody could call in Feishu's name")
        return self


MAX_IMAGE_BYTES = 10_000_000
MAX_FILE_BYTES = 30_000_000
_MAX_CARD_BYTES = 28_000
"""Feishu takes 30 KB."""
_MAX_LABEL = 40
_SPECIAL = re.compile(r"[&<>*_~`\[\]()#|\\]")
_KINDS = {"pdf": "pdf", "doc": "doc", "docx": "doc", "xls": "xls", "xlsx": "xls", "ppt": "ppt", "pptx": "ppt"}


def _escape(text: str) -> str:
    """Write what means something in a card as an entity, mentions such as <at id=all> included."""
    return _SPECIAL.sub(lambda found: f"&#{ord(found[0])};", text)


_MARKS = Marks(
    bold="**",
    italic="*",
    struck="~~",
    code="`",
    code_block="```",
    has_languages=True,
    link=lambda url: ("[", f"]({url.replace(')', '%29').replace(' ', '%20')})"),
    escape=_escape,
    layout=Layout(bullet="- ", is_linked=is_web_link),
)


def render_text(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown.encode()) <= _MAX_CARD_BYTES else _escape(text)


def render(outbound: Outbound) -> str:
    """Return the content of a card."""
    # A press does not say in which topic the card is.
    place = {"thread": outbound.thread_id} if outbound.thread_id else {}
    elements: list[dict[str, Any]] = [{"tag": "markdown", "content": render_text(outbound.text)}]
    elements += [
        {
            "tag": "button",
            "text": {"tag": "plain_text", "content": one_line(choice.label, _MAX_LABEL)},
            "behaviors": [{"type": "callback", "value": {"says": choice.says, **place}}],
        }
        for choice in outbound.choices
    ]
    card = {"schema": "2.0", "config": {"update_multi": True}, "body": {"elements": elements}}
    return json.dumps(card, ensure_ascii=False)


def file_kind(file: Attachment) -> str:
    """Return what the upload of a file is called; `stream` for anything."""
    return _KINDS.get(file.name.plain().rpartition(".")[2].lower(), "stream")


_WRONG_SECRET = "Feishu rejects the App ID or App Secret. Copy both from Credentials & Basic Info of the app."  # noqa: S105
_NO_BOT = "The app has no bot, or its version with the bot is not published. Add the bot capability and publish it."
_NO_PERMISSION = (
    "The app lacks a permission. Add im:message, im:message:send_as_bot and im:resource, and publish a version."
)
_OUT = "The bot is not in this chat, or cannot write there."
_CODES = ApiCodes(
    code="code",
    words="msg",
    expired=frozenset({99991661, 99991663, 99991664, 99991668, 99991671}),
    errors={
        **dict.fromkeys((10003, 10014), partial(PlatformRefused, _WRONG_SECRET)),
        **dict.fromkeys((11205, 230006), partial(PlatformRefused, _NO_BOT)),
        **dict.fromkeys((99991672, 99991679, 230027), partial(PlatformRefused, _NO_PERMISSION)),
        **dict.fromkeys((99991400, 11232, 11233, 11247, 230020), partial(PlatformBusy, 2.0)),
        **dict.fromkeys((230002, 230013, 230018, 230035, 232009), partial(TargetGone, _OUT)),
        230049: partial(SendUnclear, "Feishu is still sending this message."),
    },
    fix=_WRONG_SECRET,
)
_ID_TYPES = {"ou_": "open_id", "on_": "union_id"}


class FeishuAdapter:
    platform = PLATFORM
    options = FeishuOptions
    # Five messages a second for one chat. A card has 30 KB: at most 7 bytes for each character.
    limits = Limits(text=4000, interval=0.2, repeats_safely=True)

    def __init__(self, account: str, options: FeishuOptions) -> None:
        self.account = account
        self._options = options
        self._key = options.encrypt_key.get_secret_value() if options.encrypt_key else ""
        self._api = TokenApi(
            "Feishu",
            f"{options.api_url}/open-apis",
            fetch=self._fetch_token,
            place=in_header("authorization", "Bearer "),
            codes=_CODES,
        )
        self._open = RestApi("Feishu", options.api_url)
        """Without a token, for the long connection."""
        self._us = ""
        """Our open id, once it is known."""
        self._people = Names(self._fetch_name)
        self._chats = Names(self._fetch_chat_kind)
        self._ours = Names(self._fetch_author)
        self._places: dict[str, str | None] = {}
        """The chats of our messages that somebody reacted to; None for messages of others."""

    async def _fetch_token(self) -> tuple[Any, Any]:
        secret = {"app_id": self._options.app_id, "app_secret": self._options.app_secret.get_secret_value()}
        found = await self._api.ask("POST", "/auth/v3/tenant_access_token/internal", json=secret)
        return found["tenant_access_token"], found["expire"]

    async def check(self) -> str:
        bot = (await self._api.call("GET", "/bot/v3/info"))["bot"]
        self._us = str(bot["open_id"])
        return one_line(str(bot.get("app_name") or self._us), 200)

    @property
    def takes_callbacks(self) -> bool:
        return self._options.mode == "http"

    async def run(self, receiver: Receiver) -> None:
        if self.takes_callbacks:
            await self._api.keep_checking(self.check, receiver)
            return
        async with self._api.opened():
            await self.check()
            url, ping_seconds = await self._open_stream()
            await stream.listen(url, ping_seconds, receiver.connected, lambda payload: self._hear(payload, receiver))

    # Incoming

    async def _open_stream(self) -> tuple[str, float]:
        """Ask where to connect, and how often Feishu wants a ping."""
        secret = {"AppID": self._options.app_id, "AppSecret": self._options.app_secret.get_secret_value()}
        found = await self._open.call("POST", "/callback/ws/endpoint", json=secret)
        try:
            return stream.read_place(found)
        except (LookupError, TypeError, ValueError) as error:
            raise PlatformDown("Feishu did not say where to connect.") from error

    async def _hear(self, payload: bytes, receiver: Receiver) -> None:
        event = parse_or_skip(self.platform.name, lambda: read_object(payload))
        if event is not None:
            await self._take(event, receiver)

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        if not self.takes_callbacks:
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        try:
            event, is_encrypted = read_event(request.body, self._key)
        except ValueError:
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        if not self._is_authentic(request, event, is_encrypted=is_encrypted):
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        if event.get("type") == "url_verification":
            return HttpResponse.of_json({"challenge": str(event.get("challenge", ""))})
        await self._take(event, receiver)
        return HttpResponse.of_json({})

    async def _take(self, event: Json, receiver: Receiver) -> None:
        if not self._us:
            await self.check()
        found = parse_or_skip(self.platform.name, lambda: parse(event, self.account, self._us))
        if found is None:
            return
        if found.inbound.reaction is not None:
            place = await self._find_place(found.inbound.reply_to or "")
            if place is None:
                return
            source = replace(found.inbound.source, chat_id=place)
            found = found._replace(inbound=replace(found.inbound, source=source))
        await receiver.receive((await self._complete(found)).inbound, found.trust)

    def _is_authentic(self, request: HttpRequest, event: Json, *, is_encrypted: bool) -> bool:
        """Feishu does not sign the question that it asks when you enter the address; it encrypts it."""
        is_question = is_encrypted and event.get("type") == "url_verification"
        token = self._options.verification_token
        if token is not None and not is_secret(token_of(event), token.get_secret_value()):
            return False
        return is_question or is_signed(request.headers, request.body, self._key)

    async def _complete(self, event: Event) -> Event:
        """Look up what Feishu does not send along: the name, the kind of chat, and the author of what is quoted."""
        inbound = event.inbound
        source = inbound.source
        mentions_us = inbound.mentions_us
        if event.parent:
            author = await self._ours.get(event.parent)
            mentions_us = author is not None and author.plain() == self._options.app_id
        if not event.kind_is_known:
            kind = await self._chats.get(source.chat_id or "")
            source = replace(source, chat_kind=DM if kind and kind.plain() == "p2p" else GROUP)
        labels = Labels(user=await self._people.get(source.user_id)) if source.user_id else Labels()
        return event._replace(inbound=replace(inbound, source=source, mentions_us=mentions_us, labels=labels))

    async def _fetch_name(self, open_id: str) -> object:
        found = await self._api.call("GET", f"/contact/v3/users/{quote(open_id, safe='')}")
        return found["data"]["user"]["name"]

    async def _fetch_chat_kind(self, chat: str) -> object:
        return (await self._api.call("GET", f"/im/v1/chats/{quote(chat, safe='')}"))["data"]["chat_mode"]

    async def _fetch_author(self, message: str) -> object:
        return (await self._fetch_message(message))["sender"]["id"]

    async def _find_place(self, message: str) -> str | None:
        """Return the chat of one of our messages. Raises PlatformError if Feishu cannot say: the event comes again."""
        if message not in self._places:
            try:
                found = await self._fetch_message(message)
                is_ours = found["sender"]["id"] == self._options.app_id
                place = str(found["chat_id"]) if is_ours else None
            except PlatformRefused:  # without the permission to read messages there are no reactions
                return None
            except (PlatformBusy, PlatformDown):
                raise
            except (PlatformError, LookupError, TypeError):  # it is gone, for example
                place = None
            remember(self._places, message, place)
        return self._places[message]

    async def _fetch_message(self, message: str) -> Json:
        return (await self._api.call("GET", f"/im/v1/messages/{quote(message, safe='')}"))["data"]["items"][0]

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        message, kind, key = (quote(part, safe="") for part in (file.handle or "//").split("/", 2))
        return self._api.download(f"/im/v1/messages/{message}/resources/{key}", params={"type": kind})

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._post(outbound, "interactive", render(outbound), idempotency_key)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Topics have no names; the message begins one."""
        return await self.send(outbound, idempotency_key=idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        path = f"/im/v1/messages/{quote(receipt, safe='')}"
        await self._api.call("PATCH", path, sending=True, json={"content": render(outbound)})

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        name = file.name.plain() or "file"
        body = await asyncio.to_thread(content.read_bytes)
        if file.media_type in {"image/png", "image/jpeg", "image/gif", "image/webp"} and len(body) <= MAX_IMAGE_BYTES:
            kind = "image"
            data = {"image_type": "message"}
            files = {"image": (name, body, file.media_type)}
        else:
            kind = "file"
            data = {"file_type": file_kind(file), "file_name": name}
            files = {"file": (name, body)}
        uploaded = await self._api.call("POST", f"/im/v1/{kind}s", data=data, files=files)
        key = {f"{kind}_key": uploaded["data"][f"{kind}_key"]}
        receipt = await self._post(outbound, kind, json.dumps(key), idempotency_key)
        await send_text_of_file(outbound, partial(self.send, outbound, idempotency_key=f"{idempotency_key}:text"))
        return receipt

    async def _post(self, outbound: Outbound, kind: str, content: str, key: str) -> str:
        """Send to a chat or person, or into a topic: as a reply to its first message. A key is known for an hour.

        A message that is gone cannot be replied to: then it is sent without a quote.
        """
        uuid = hashlib.sha256(key.encode()).hexdigest()[:40]
        message: dict[str, Any] = {"msg_type": kind, "content": content, "uuid": uuid}
        if outbound.thread_id:
            path = f"/im/v1/messages/{quote(outbound.thread_id, safe='')}/reply"
            sent = await self._api.call("POST", path, sending=True, json={**message, "reply_in_thread": True})
        elif quoted := await self._quoted(outbound):
            path = f"/im/v1/messages/{quote(quoted, safe='')}/reply"
            try:
                sent = await self._api.call("POST", path, sending=True, json=message)
            except SendRefused:
                return await self._post(replace(outbound, reply_to=None), kind, content, f"{key}:plain")
        else:
            to = {"receive_id_type": _ID_TYPES.get(outbound.chat_id[:3], "chat_id")}
            message["receive_id"] = outbound.chat_id
            sent = await self._api.call("POST", "/im/v1/messages", sending=True, params=to, json=message)
        return read_receipt("Feishu", sent, "data", "message_id")

    async def _quoted(self, outbound: Outbound) -> str | None:
        if outbound.quotes is not QuoteMode.GROUPS or not (outbound.reply_to or "").startswith("om_"):
            return outbound.quoted(in_group=False)
        kind = await self._chats.get(outbound.chat_id) if outbound.chat_id.startswith("oc_") else None
        return outbound.quoted(in_group=kind is not None and kind.plain() != "p2p")
