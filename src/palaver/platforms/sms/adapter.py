"""The adapter for SMS. Twilio calls for each message; answers go out over its API."""

import base64
import hashlib
import hmac
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from math import ceil
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
from pydantic import AfterValidator, Field, SecretStr

from palaver.platforms.sms import PLATFORM
from palaver.protocols import (
    DM,
    UNKNOWN_TYPE,
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Receiver,
    SendRefused,
    Source,
    TargetGone,
    Unit,
    check_url,
    is_secret,
    one_line,
    receive_or_skip,
)
from palaver.protocols.markdown import to_plain
from palaver.protocols.options import AccountOptions
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, keep_checking

Url = Annotated[str, AfterValidator(check_url("a URL, like https://api.twilio.com"))]


class SmsOptions(AccountOptions):
    account_sid: str = Field(pattern=r"^AC[0-9a-f]{32}$", description="The Account SID.")
    auth_token: SecretStr = Field(min_length=1, description="The Auth Token, which also signs Twilio's calls.")
    sender: str = Field(
        pattern=r"^(\+[1-9][0-9]{6,14}|MG[0-9a-f]{32}|[0-9]{3,8})$",
        description="Your number, short code or messaging service.",
    )
    webhook_url: Url = Field(description="The address that Twilio calls, exactly as you entered it: it is signed.")
    api_url: Url = Field(default="https://api.twilio.com", description="The API.")


_MAX_FIELDS = 1000
_MAX_FILES = 10


def read_form(body: bytes) -> Mapping[str, str]:
    """Return the fields of a form. Raise ValueError if it is none."""
    text = body.decode("ascii")
    pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=_MAX_FIELDS, errors="replace")
    return dict(pairs)


def sign(url: str, form: Mapping[str, str], token: str) -> str:
    """Return the signature of a call: of its URL, and all fields in the order of their names."""
    plain = url + "".join(f"{name}{form[name]}" for name in sorted(form))
    digest = hmac.new(token.encode(), plain.encode("utf-8", "replace"), hashlib.sha1).digest()
    return base64.b64encode(digest).decode()


def parse(form: Mapping[str, str], account: str, now: datetime) -> Inbound:
    """Parse a message. Twilio does not say when it was sent."""
    sender = form["From"]
    if not sender or not form["MessageSid"]:
        raise ValueError
    return Inbound(
        source=Source(
            platform="sms",
            account=account,
            chat_kind=DM,
            chat_id=sender,
            user_id=sender,
            message_id=form["MessageSid"],
        ),
        text=form.get("Body", ""),
        at=now,
        files=tuple(_files(form)),
    )


def _files(form: Mapping[str, str]) -> Iterator[Attachment]:
    """Only the path of a file is kept: it is fetched from the API and from nowhere else."""
    for number in range(min(int(form.get("NumMedia") or 0), _MAX_FILES)):
        media_type = form.get(f"MediaContentType{number}") or UNKNOWN_TYPE
        kind = media_type.partition("/")[0]
        name = kind if kind in {"image", "audio", "video"} else "file"
        yield Attachment(Label(name), media_type, handle=urlsplit(form[f"MediaUrl{number}"]).path)


MAX_TEXT = 1600
_BASIC = frozenset(
    "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿"
    "abcdefghijklmnopqrstuvwxyzäöñüà"
)
_EXTENDED = frozenset("\f^{}\\[~]|€")
_PLAIN = str.maketrans(
    {"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "–": "-", "—": "-", "…": "...", "•": "-", "\u00a0": " "}  # noqa: RUF001
)


def plain_text(text: str) -> str:
    """Return what people see. Typographic characters are replaced if the message is cheaper without them."""
    shown = to_plain(text, MAX_TEXT, Unit.UTF16)
    simple = shown.translate(_PLAIN)
    return simple if len(simple) <= MAX_TEXT and segments(simple) < segments(shown) else shown


def segments(text: str) -> int:
    """Return how many SMS a message is sent and paid as."""
    if all(character in _BASIC or character in _EXTENDED for character in text):
        size = sum(2 if character in _EXTENDED else 1 for character in text)
        alone = 160
        joined = 153
    else:
        size = Unit.UTF16.measure(text)
        alone = 70
        joined = 67
    return 1 if size <= alone else ceil(size / joined)


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
