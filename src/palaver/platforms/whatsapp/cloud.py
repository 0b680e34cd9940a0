"""The adapter for the Cloud API. WhatsApp calls the webhook again until it answers 200."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.errors import OUTSIDE_WINDOW, WRONG_TOKEN, OutsideWindow, explain, explain_code
from palaver.platforms.whatsapp.options import WhatsAppOptions
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
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    Trust,
    Unit,
    VoiceFormat,
    file_to_send,
    is_secret,
    is_signed,
    one_line,
    parse_or_skip,
    rest,
    take_json,
)
from palaver.protocols.recent import remember
from palaver.protocols.tokens import keep_checking

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
        secret, signature = self._options.app_secret.get_secret_value(), request.headers.get("x-hub-signature-256", "")

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
        name, body = file.name.plain() or "file", await asyncio.to_thread(content.read_bytes)
        kind, media_type = media_of(file, len(body), has_text=bool(outbound.text))
        data = {"messaging_product": "whatsapp", "type": media_type}
        files = {"file": (name, body, media_type)}
        uploaded = await self._api.call("POST", self._path("/media"), data=data, files=files)
        return await self._post(render_file(outbound, kind, str(uploaded["id"]), name))

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS

    async def typing(self, outbound: Outbound) -> None:
        """Show it for the message that is being answered, and mark that as read: WhatsApp cannot do one alone."""
        answered, now = outbound.reply_to, time.monotonic()
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
