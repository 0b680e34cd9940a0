"""The adapter for Google Chat. Google calls for each event; answers go out over its API, as the service account."""

import hashlib
import json
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Annotated, Any, cast
from urllib.parse import quote

import jwt
from pydantic import AfterValidator, ConfigDict, Field, SecretStr

from palaver.platforms.googlechat import PLATFORM
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
    NewMessage,
    Outbound,
    PlatformBusy,
    PlatformRefused,
    Quote,
    Receiver,
    SendRefused,
    Source,
    TargetGone,
    Trust,
    check_url,
    identity_of,
    one_line,
    parse_or_skip,
    parse_time,
    take_json,
)
from palaver.protocols.bearer import BearerTokens
from palaver.protocols.files import described_file
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Url = Annotated[str, AfterValidator(check_url("a URL, like https://chat.googleapis.com"))]


def _check_key(key: SecretStr) -> SecretStr:
    read_key(key)
    return key


def read_key(key: SecretStr) -> dict[str, str]:
    """Return the fields of a service account's key. Raise ValueError if it is none."""
    words = "the content of the JSON file that Google made for the service account"
    try:
        found: Any = json.loads(key.get_secret_value())
        return {name: str(found[name]) for name in ("client_email", "private_key", "private_key_id")}
    except (ValueError, LookupError, TypeError):
        raise ValueError(words) from None


class GoogleChatOptions(AccountOptions):
    model_config = ConfigDict(coerce_numbers_to_str=True)

    project_number: str = Field(pattern=r"^[0-9]+$", description="The number of the project, the audience of calls.")
    service_account: Annotated[SecretStr, AfterValidator(_check_key)] = Field(description="The key, as JSON.")
    api_url: Url = Field(default="https://chat.googleapis.com", description="The API.")
    token_url: Url = Field(default="https://oauth2.googleapis.com/token", description="Where tokens come from.")
    keys_url: Url = Field(
        default="https://www.googleapis.com/service_accounts/v1/jwk/chat@system.gserviceaccount.com",
        description="Where the keys come from that sign Google's calls.",
    )


Json = Mapping[str, Any]
PRESSED = "palaver"
"""The function of our buttons."""
_PERSON = "users/"


def parse(event: Json, account: str) -> NewMessage | None:
    """Parse an event; None if nobody says anything. In a space, only what mentions us comes."""
    match event["type"]:
        case "MESSAGE":
            return _message(event, account)
        case "ADDED_TO_SPACE" if event.get("message"):  # somebody added us by mentioning us
            return _message(event, account)
        case "CARD_CLICKED":
            return _pressed(event, account)
        case _:
            return None


def _message(event: Json, account: str) -> NewMessage:
    said = event["message"]
    sender = event["message"]["sender"]
    text = said.get("argumentText")
    words = str(said.get("text") or "") if text is None else str(text).lstrip()
    source = _source(event, account, user=str(sender["name"]), message=str(said["name"]))
    quoted: Json = said.get("quotedMessageMetadata") or {}
    quote = _quote(quoted, source)
    is_forwarded = quoted.get("quoteType") == "FORWARD"
    inbound = Inbound(
        source=source,
        # The line in front also keeps a forwarded command from being run.
        text="\n".join(filter(None, (words, "[forwarded]", quote.text))) if is_forwarded and quote else words,
        at=parse_time(said["createTime"]),
        labels=_labels(event, sender),
        mentions_us=True,
        reply_to=None if is_forwarded else quoted.get("name"),
        quote=None if is_forwarded else quote,
        files=tuple(_files(said)),
    )
    return NewMessage(inbound, Trust(is_bot=sender.get("type") == "BOT"))


def _quote(quoted: Json, source: Source) -> Quote | None:
    """Return what a message quotes; older answers of Google name only the message. The sender is an id or a name."""
    snapshot: Json = quoted.get("quotedMessageSnapshot") or {}
    text = str(snapshot.get("text") or "")
    sender = str(snapshot.get("sender") or "")
    if not text:
        return None
    if sender.startswith(_PERSON):
        return Quote(text=text, author=identity_of(replace(source, user_id=sender)))
    return Quote(text=text, name=Label.of(sender))


def _pressed(event: Json, account: str) -> NewMessage:
    """A press has no id: it is known by the card, the time and the person."""
    user = event["user"]
    when = str(event["eventTime"])
    given = {str(each["key"]): str(each["value"]) for each in event["action"]["parameters"]}
    message = f"{event['message']['name']}/{when}/{user['name']}"
    inbound = Inbound(
        source=_source(event, account, user=str(user["name"]), message=message),
        text=given["says"],
        at=parse_time(when),
        labels=_labels(event, user),
        mentions_us=True,
    )
    return NewMessage(inbound)


def _source(event: Json, account: str, *, user: str, message: str) -> Source:
    """Every message is in a thread. In a direct chat, and where nobody sees threads, it is not one of people."""
    space: Json = event["space"]
    is_direct = space.get("spaceType") == "DIRECT_MESSAGE" or space.get("type") == "DM"
    has_threads = not is_direct and space.get("spaceThreadingState") != "UNTHREADED_MESSAGES"
    thread = cast("Json", event["message"].get("thread") or {}).get("name")
    return Source(
        platform="googlechat",
        account=account,
        chat_kind=DM if is_direct else GROUP,
        chat_id=str(space["name"]),
        thread_id=thread if has_threads else None,
        user_id=user,
        message_id=message,
    )


def _labels(event: Json, user: Json) -> Labels:
    return Labels(user=Label.of(user.get("displayName")), chat=Label.of(event["space"].get("displayName")))


def _files(said: Json) -> Iterator[Attachment]:
    """Files in Google Drive are not given to apps."""
    for each in cast("Sequence[Json]", said.get("attachment") or ()):
        where = cast("Json", each.get("attachmentDataRef") or {}).get("resourceName")
        if where:
            yield described_file(each.get("contentName"), each.get("contentType"), handle=str(where))


MAX_TEXT = 4096
_MAX_LABEL = 40
_SPECIAL = re.compile(r"<(?=users/|https?:|mailto:)", re.IGNORECASE)


def _escape(text: str) -> str:
    """Google Chat has no escapes. Only what would mention people or hide an address is changed."""
    return _SPECIAL.sub("‹", text)  # noqa: RUF001


_MARKS = Marks(
    bold="*",
    italic="_",
    struck="~",
    code="`",
    code_block="```",
    link=lambda url: (f"<{url.replace('|', '%7C').replace('>', '%3E')}|", ">"),
    escape=_escape,
    escape_code=_escape,
    layout=Layout(bullet="• ", is_linked=is_web_link),
)


def render_text(text: str) -> str:
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown) <= MAX_TEXT else _escape(text)


def render(outbound: Outbound) -> dict[str, Any]:
    """Return text and cards. Cards are always there: an edit without them would keep the old buttons."""
    buttons = [
        {
            "text": one_line(choice.label, _MAX_LABEL),
            "onClick": {"action": {"function": PRESSED, "parameters": [{"key": "says", "value": choice.says}]}},
        }
        for choice in outbound.choices
    ]
    card = {"sections": [{"widgets": [{"buttonList": {"buttons": buttons}}]}]}
    cards = [{"cardId": PRESSED, "card": card}] if buttons else []
    return {"text": render_text(outbound.text), "cardsV2": cards}


_ISSUER = "chat@system.gserviceaccount.com"
_SCOPE = "https://www.googleapis.com/auth/chat.bot"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_WRONG_KEY = "Google rejects the key of the service account. Make another one, and enable the Google Chat API."
_CODES = ApiCodes(
    code="status",
    words="message",
    within="error",
    expires_with_401=True,
    errors={"RESOURCE_EXHAUSTED": lambda: PlatformBusy(5.0)},
    fix=_WRONG_KEY,
)
_TOKEN_SECONDS = 3600
_read_key = cache(jwt.get_algorithm_by_name("RS256").prepare_key)
"""To check a key takes a tenth of a second."""
_CHAT = re.compile(r"spaces/[^/]+")
_MESSAGE = re.compile(r"spaces/[^/]+/messages/[^/]+")


class GoogleChatAdapter:
    platform = PLATFORM
    options = GoogleChatOptions
    # 96 characters are reserved for what the gateway adds. Each space takes one message or edit a second.
    limits = Limits(text=MAX_TEXT - 96, interval=1.0, draft_interval=2.0, repeats_safely=True)
    takes_callbacks = True

    def __init__(self, account: str, options: GoogleChatOptions) -> None:
        self.account = account
        self._options = options
        self._key = read_key(options.service_account)
        self._api = TokenApi(
            "Google Chat",
            options.api_url,
            fetch=self._fetch_token,
            place=in_header("authorization", "Bearer "),
            codes=_CODES,
            gone=(403, 404),
        )
        self._open = RestApi("Google", options.keys_url)
        self._bearer = BearerTokens(self._fetch_keys, issuer=_ISSUER, audience=options.project_number)
        self._sent: dict[str, None] = {}
        """Our last messages: Google does not say that a quoted message is ours."""

    async def _fetch_token(self) -> tuple[Any, Any]:
        now = int(time.time())
        url = self._options.token_url
        claims = {
            "iss": self._key["client_email"],
            "scope": _SCOPE,
            "aud": url,
            "iat": now,
            "exp": now + _TOKEN_SECONDS,
        }
        headers = {"kid": self._key["private_key_id"]}
        try:
            assertion = jwt.encode(claims, _read_key(self._key["private_key"]), "RS256", headers)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise PlatformRefused(_WRONG_KEY) from error
        found = await self._api.ask("POST", url, data={"grant_type": _GRANT, "assertion": assertion})
        return found["access_token"], found["expires_in"]

    async def _fetch_keys(self) -> Iterable[Json]:
        return (await self._open.call("GET", self._options.keys_url))["keys"]

    async def check(self) -> str:
        await self._api.token.get()
        await self._api.call("GET", "/v1/spaces", params={"pageSize": 1})
        return self._key["client_email"]

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        async def take(event: Json) -> None:
            found = parse_or_skip(self.platform.name, lambda: parse(event, self.account))
            if found is not None:
                inbound = found.inbound
                if inbound.quote and inbound.reply_to in self._sent:
                    inbound = replace(inbound, quote=replace(inbound.quote, is_ours=True))
                await receiver.receive(inbound, found.trust)

        token = await self._bearer.read(request.headers.get("authorization", ""))
        response = await take_json(request, take, is_authentic=token is not None)
        # An empty answer: what the agent says is sent when it is there.
        return HttpResponse.of_json({}) if response.status == HTTPStatus.OK else response

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(f"/v1/media/{quote(file.handle or '', safe='')}", params={"alt": "media"})

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        if not _CHAT.fullmatch(outbound.chat_id):
            raise TargetGone("A chat of Google Chat is called spaces/ and its id.")
        message = render(outbound)
        how = {"requestId": hashlib.sha256(idempotency_key.encode()).hexdigest()[:40]}
        if outbound.thread_id:
            message["thread"] = {"name": outbound.thread_id}
            how["messageReplyOption"] = "REPLY_MESSAGE_FALLBACK_TO_NEW_THREAD"
        path = f"/v1/{quote(outbound.chat_id)}/messages"
        sent = await self._api.call("POST", path, sending=True, params=how, json=message)
        receipt = read_receipt("Google Chat", sent, "name")
        remember(self._sent, receipt, None)
        return receipt

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not _MESSAGE.fullmatch(receipt):
            raise SendRefused("There is no such message.")
        what = {"updateMask": "text,cardsV2"}
        await self._api.call("PATCH", f"/v1/{quote(receipt)}", sending=True, params=what, json=render(outbound))
