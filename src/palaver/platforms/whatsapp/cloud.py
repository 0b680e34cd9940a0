"""The adapter for the Cloud API. WhatsApp calls the webhook again until it answers 200."""

import asyncio
import logging
import re
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Self, cast
from urllib.parse import quote

import httpx2
from pydantic import AfterValidator, Field, SecretStr, model_validator

from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.parse import (
    Change,
    FailedSend,
    NewMessage,
    OwnNumber,
    list_changes,
    parse_change,
    parse_failure,
    parse_message,
    parse_new_number,
)
from palaver.platforms.whatsapp.render import (
    MAX_FILE_BYTES,
    MAX_TEXT,
    is_group,
    media_of,
    render,
    render_file,
    render_template,
)
from palaver.protocols import (
    Attachment,
    BackgroundTasks,
    HttpRequest,
    HttpResponse,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    TargetGone,
    Trust,
    Unit,
    VoiceFormat,
    answer_error,
    check_url,
    file_to_send,
    is_secret,
    is_signed,
    one_line,
    parse_or_skip,
    rest,
    take_json,
)
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import remember
from palaver.protocols.tokens import keep_checking

_NONE = SecretStr("")
_CLOUD = ("phone_number_id", "token", "app_secret", "verify_token")
_BRIDGE = ("bridge_secret",)
_DIGITS = re.compile(r"[0-9]{1,32}")
_NAME = re.compile(r"[a-z0-9_]{1,512}")
_LANGUAGE = re.compile(r"[a-z]{2,3}(_[A-Z]{2,3})?")


def _check(pattern: re.Pattern[str], words: str) -> AfterValidator:
    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise ValueError(words)
        return text

    return AfterValidator(check)


Url = Annotated[str, AfterValidator(check_url("a URL, like https://graph.facebook.com/v25.0"))]


class WhatsAppOptions(AccountOptions):
    """Either those of a number at the Cloud API, or those of a bridge to a personal number."""

    phone_number_id: Annotated[str, _check(_DIGITS, "the phone number ID: digits, like 106540352242922")] = Field(
        default="", description="The ID of your number, from API Setup."
    )
    token: SecretStr = Field(default=_NONE, description="The token of a system user.")
    app_secret: SecretStr = Field(default=_NONE, description="Signs what WhatsApp sends you.")
    verify_token: SecretStr = Field(default=_NONE, description="What you enter as the verify token of the webhook.")
    template: Annotated[str, _check(_NAME, "the name of a template: a-z, 0-9 and _")] | None = Field(
        default=None, description="A template with one variable, for messages outside the 24-hour window."
    )
    template_language: Annotated[str, _check(_LANGUAGE, "a language code, like en or en_US")] = Field(
        default="en", description="The language of the template."
    )
    api_url: Url = Field(default="https://graph.facebook.com/v25.0", description="The Graph API, with its version.")
    bridge_url: Url | None = Field(default=None, description="For a personal number: the address of its bridge.")
    bridge_secret: SecretStr = Field(default=_NONE, description="The secret that the bridge asks for.")
    read_receipts: bool = Field(default=True, description="Whether to mark messages as read.")

    @model_validator(mode="after")
    def _check_kind(self) -> Self:
        needed, others = (_BRIDGE, _CLOUD) if self.bridge_url else (_CLOUD, _BRIDGE)
        for name in needed:
            given: str | SecretStr = getattr(self, name)
            if not (given if isinstance(given, str) else given.get_secret_value()).strip():
                raise ValueError(f"{name}: a text that is not empty")
        if unused := [name for name in others if name in self.model_fields_set]:
            raise ValueError(f"either a bridge_url or a phone_number_id, but {', '.join(unused)} is for the other")
        return self


OUTSIDE_WINDOW = 131047
WRONG_TOKEN = (
    "WhatsApp rejects the token: it is wrong, expired or revoked. Generate another one for a system user in your "  # noqa: S105
    "business settings; those do not expire."
)
_NO_PERMISSION = (
    "The token has no permission for this number. Give its system user the app, the WhatsApp account and the "
    "permission whatsapp_business_messaging."
)
_NOT_REGISTERED = "This number is not registered for the Cloud API. Register it under API Setup."
_LOCKED = "Meta has restricted or locked this account. Open business.facebook.com/accountquality to see why."
_NOT_PAID = "Meta cannot charge your account. Check the payment method in WhatsApp Manager."
_REFUSED = {
    0: WRONG_TOKEN,
    3: _NO_PERMISSION,
    10: _NO_PERMISSION,
    190: WRONG_TOKEN,
    368: _LOCKED,
    131005: _NO_PERMISSION,
    131031: _LOCKED,
    131042: _NOT_PAID,
    131045: _NOT_REGISTERED,
    133010: _NOT_REGISTERED,
}
_PERMISSIONS = range(200, 300)
# Seconds to wait: for the app or account as a whole, for one number, for one person.
_BUSY = {4: 60.0, 80007: 60.0, 130429: 5.0, 131048: 3600.0, 131056: 8.0, 131208: 60.0, 133016: 3600.0}
_GONE = {
    131026: "The number is not on WhatsApp, or cannot get messages of businesses.",
    131041: "The group does not exist, or this number is no longer in it.",
    131207: "Meta has suspended the group.",
}
_WORDS = {
    131020: "Nobody else is in the group.",
    131021: "This is the number of the account itself.",
    131030: "While the app is in development, you can only write to the numbers listed under API Setup. Add this one.",
    131049: "Meta did not deliver the message, to limit how many messages of businesses people get.",
    131050: "The person has stopped marketing messages of this account.",
}


class OutsideWindow(SendRefused):
    """More than 24 hours have passed since the person last wrote: only templates are delivered."""

    def __init__(self) -> None:
        super().__init__(
            "The person has not written for 24 hours, so WhatsApp only delivers templates. Set the option template."
        )


def explain_code(code: int) -> PlatformError | None:
    """Return what an error code means; None if it does not say more than the status."""
    if code == OUTSIDE_WINDOW:
        return OutsideWindow()
    if code in _BUSY:
        return PlatformBusy(_BUSY[code])
    if code in _REFUSED or code in _PERMISSIONS:
        return PlatformRefused(_REFUSED.get(code, _NO_PERMISSION))
    if code in _GONE:
        return TargetGone(_GONE[code])
    return SendRefused(_WORDS[code]) if code in _WORDS else None


def explain(response: httpx2.Response) -> PlatformError | None:
    try:
        found: Any = response.json()
        error = cast("dict[str, Any]", found["error"])
        code = int(error["code"])
    except (ValueError, KeyError, TypeError):
        return None
    if known := explain_code(code):
        return known
    if not 400 <= response.status_code < 500 or response.status_code in {401, 408, 429}:  # noqa: PLR2004
        return None
    data: Any = error.get("error_data")
    details = cast("dict[str, Any]", data).get("details") if isinstance(data, dict) else None
    words = f"{code} {details or error.get('message') or ''}".strip()
    return answer_error("WhatsApp", response.status_code, sending=False, words=words)


log = logging.getLogger(__name__)

_TYPING_SECONDS = 20.0
"""WhatsApp shows it for 25 seconds."""
_MAX_RECENT = 256


class CloudAdapter:
    platform = PLATFORM
    # 96 characters are reserved for what the gateway adds. WhatsApp takes ten messages a minute for one person, and
    # more in bursts: beyond that it answers 131056.
    limits = Limits(text=MAX_TEXT - 96, unit=Unit.UTF16, interval=1.0, announces_requests=True)
    takes_callbacks = True

    def __init__(self, account: str, options: WhatsAppOptions) -> None:
        self.account = account
        self._options = options
        self._us = OwnNumber(account=account, id=options.phone_number_id)
        self._api = rest.RestApi(
            "WhatsApp",
            options.api_url,
            headers={"authorization": f"Bearer {options.token.get_secret_value()}"},
            fix=WRONG_TOKEN,
            explain=explain,
        )
        self._background: BackgroundTasks | None = None
        """While this worker serves the account."""
        self._typing_until: dict[str, float] = {}
        """By message that is being answered."""
        self._recent: dict[str, Outbound] = {}
        """The last texts sent, by receipt: WhatsApp may report later that one came too late."""

    async def check(self) -> str:
        try:
            found = await self._api.call("GET", self._path(), params={"fields": "display_phone_number,verified_name"})
        except SendRefused as error:
            raise PlatformRefused(
                f"WhatsApp does not give access to this phone number ID. Copy it from API Setup. ({error})"
            ) from error
        return one_line(f"{found.get('display_phone_number', '')} {found.get('verified_name', '')}", 200)

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        self._background = tasks = BackgroundTasks()
        try:
            await keep_checking(self._api.opened(), self.check, receiver)
        finally:
            self._background = None
            await tasks.end()

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        if request.method == "GET":
            return self._verify(request.query)
        secret = self._options.app_secret.get_secret_value()
        signature = request.headers.get("x-hub-signature-256", "")

        async def take(update: Mapping[str, Any]) -> None:
            for raw in parse_or_skip(self.platform.name, lambda: list_changes(update)) or ():
                change = parse_or_skip(self.platform.name, lambda raw=raw: parse_change(raw))
                if change is not None:
                    await self._process(change, receiver)

        return await take_json(request, take, is_authentic=is_signed(request.body, secret, signature))

    def _verify(self, query: Mapping[str, str]) -> HttpResponse:
        """Answer the question that WhatsApp asks when somebody enters the address of the webhook."""
        token = self._options.verify_token.get_secret_value()
        if query.get("hub.mode") != "subscribe" or not is_secret(query.get("hub.verify_token", ""), token):
            return HttpResponse(status=HTTPStatus.FORBIDDEN)
        return HttpResponse(body=query.get("hub.challenge", "").encode())

    async def _process(self, change: Change, receiver: Receiver) -> None:
        if change.number_id != self._us.id:
            # One app calls one address for all of its numbers.
            log.warning("skipped messages of another number", extra={"action": "whatsapp.other_number"})
            return
        for raw in change.messages:
            found = parse_or_skip(
                self.platform.name, lambda raw=raw: (parse_new_number(raw), parse_message(raw, change, self._us))
            )
            renumbered, message = found or (None, None)
            if renumbered is not None:
                await receiver.person_moved(*renumbered)
            elif message is not None:
                await self._receive(message, receiver)
        for raw in change.statuses:
            failed = parse_or_skip(self.platform.name, lambda raw=raw: parse_failure(raw))
            if failed is not None:
                await self._report_failure(failed)

    async def _receive(self, message: NewMessage, receiver: Receiver) -> None:
        for alias, canonical in message.aliases:
            await receiver.link_alias(alias, canonical)
        await receiver.receive(message.inbound, Trust())
        source = message.inbound.source
        if (
            self._background
            and self._options.read_receipts
            and not (message.inbound.revision or is_group(source.chat_id or ""))
        ):
            self._background.run(self._mark_read(source.message_id or ""))

    async def _report_failure(self, failed: FailedSend) -> None:
        """Log it, and if it came too late, send it again as a template."""
        sent = self._recent.pop(failed.message_id, None)
        extra = {"action": "whatsapp.undelivered"}
        log.warning("WhatsApp did not deliver a message: %s", explain_code(failed.code) or failed.code, extra=extra)
        if sent is None or failed.code != OUTSIDE_WINDOW or not self._options.template:
            return
        try:
            await self._post(render_template(sent, self._options.template, self._options.template_language))
        except PlatformError as error:
            log.warning("the template failed: %s", error, extra={"action": "whatsapp.template_failed"})

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        found = await self._api.call("GET", f"/{quote(file.handle or '', safe='')}")
        async for chunk in self._api.download(str(found["url"])):
            yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """The Cloud API has no idempotency keys."""
        del idempotency_key
        try:
            receipt = await self._post(render(outbound))
        except OutsideWindow:
            if not self._options.template:
                raise
            return await self._post(render_template(outbound, self._options.template, self._options.template_language))
        remember(self._recent, receipt, outbound, _MAX_RECENT)
        return receipt

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        del idempotency_key
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        name = file.name.plain() or "file"
        body = await asyncio.to_thread(content.read_bytes)
        kind, media_type = media_of(file, len(body), has_text=bool(outbound.text))
        data = {"messaging_product": "whatsapp", "type": media_type}
        files = {"file": (name, body, media_type)}
        uploaded = await self._api.call("POST", self._path("/media"), data=data, files=files)
        return await self._post(render_file(outbound, kind, str(uploaded["id"]), name))

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS

    async def typing(self, outbound: Outbound) -> None:
        """Show it for the message that is being answered, and mark that as read: WhatsApp cannot do one alone."""
        answered = outbound.reply_to
        now = time.monotonic()
        self._typing_until = {each: until for each, until in self._typing_until.items() if until > now}
        if answered and not is_group(outbound.chat_id) and answered not in self._typing_until:
            self._typing_until[answered] = now + _TYPING_SECONDS
            await self._mark_read(answered, typing_indicator={"type": "text"})

    async def _mark_read(self, message_id: str, **more: object) -> None:
        read = {"messaging_product": "whatsapp", "status": "read", "message_id": message_id, **more}
        await self._api.call("POST", self._path("/messages"), json=read)

    async def _post(self, message: Mapping[str, Any]) -> str:
        sent = await self._api.call("POST", self._path("/messages"), sending=True, json=message)
        return rest.read_receipt("WhatsApp", sent, "messages", 0, "id")

    def _path(self, end: str = "") -> str:
        return f"/{self._us.id}{end}"
