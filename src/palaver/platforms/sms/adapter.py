"""The adapter for SMS. Twilio calls for each message; answers go out over its API."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx2

from palaver.platforms.sms import PLATFORM
from palaver.platforms.sms.options import SmsOptions
from palaver.platforms.sms.parse import parse, read_form, sign
from palaver.platforms.sms.render import MAX_TEXT, plain_text
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
    TargetGone,
    Unit,
    is_secret,
    one_line,
    receive_or_skip,
)
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, keep_checking

_WRONG_TOKEN = "Twilio rejects the Account SID or Auth Token. Copy both from console.twilio.com."  # noqa: S105
_WRONG_SENDER = (
    "Twilio does not let this account send from the sender. Check the option sender, and the number at Twilio."
)
_CODES = ApiCodes(
    code="code",
    words="message",
    errors={
        20003: partial(PlatformRefused, _WRONG_TOKEN),
        **dict.fromkeys((20429, 14107, 63017), partial(PlatformBusy, 30.0)),
        # The queue of ten hours is full, or the account has sent all that it can in an hour or a day.
        **dict.fromkeys((21611, 60728, 63038), partial(PlatformBusy, 3600.0)),
        **dict.fromkeys((21212, 21606, 21659, 21660), partial(PlatformRefused, _WRONG_SENDER)),
        21610: partial(TargetGone, "This person has replied STOP. They can write START to get messages again."),
        **dict.fromkeys((21211, 21614), partial(TargetGone, "This is not a number that can get SMS.")),
    },
)
_ANSWER = HttpResponse(body=b"<Response/>", media_type="text/xml")


class SmsAdapter:
    platform = PLATFORM
    options = SmsOptions
    # 100 characters are reserved for what the gateway adds. A number sends one SMS a second.
    limits = Limits(text=MAX_TEXT - 100, unit=Unit.UTF16, interval=1.0, announces_requests=True)
    takes_callbacks = True

    def __init__(self, account: str, options: SmsOptions) -> None:
        self.account = account
        self._options = options
        self._token = options.auth_token.get_secret_value()
        basic = httpx2.BasicAuth(options.account_sid, self._token)
        self._api = RestApi("Twilio", options.api_url, fix=_WRONG_TOKEN, explain=partial(_CODES.explain, "Twilio"))
        self._access: dict[str, Any] = {"auth": basic}
        self._path = f"/2010-04-01/Accounts/{options.account_sid}"

    async def check(self) -> str:
        found = await self._api.call("GET", f"{self._path}.json", **self._access)
        return one_line(f"{self._options.sender} of {found.get('friendly_name', '')}", 200)

    async def run(self, receiver: Receiver) -> None:
        await keep_checking(self._api.opened(), self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        try:
            form = read_form(request.body)
        except ValueError:
            return HttpResponse(status=HTTPStatus.BAD_REQUEST)
        expected = sign(self._options.webhook_url, form, self._token)
        if not is_secret(request.headers.get("x-twilio-signature", ""), expected):
            return HttpResponse(status=HTTPStatus.UNAUTHORIZED)
        await receive_or_skip(self.platform.name, lambda: parse(form, self.account, datetime.now(UTC)), receiver)
        return _ANSWER

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        path = file.handle or ""
        if not path.startswith(f"{self._path}/") or ".." in path:
            raise SendRefused("The file is not one of this account.")
        return self._api.download(path, follow_redirects=True, **self._access)

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:  # noqa: ARG002 - Twilio takes none
        sender = self._options.sender
        from_whom = {"MessagingServiceSid" if sender.startswith("MG") else "From": sender}
        form = {"To": outbound.chat_id, "Body": plain_text(outbound.text), **from_whom}
        sent = await self._api.call("POST", f"{self._path}/Messages.json", sending=True, data=form, **self._access)
        return read_receipt("Twilio", sent, "sid")
