"""The adapter for Google Chat. Google calls for each event; answers go out over its API, as the service account."""

import hashlib
import re
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import jwt

from palaver.platforms.googlechat import PLATFORM
from palaver.platforms.googlechat.options import GoogleChatOptions, read_key
from palaver.platforms.googlechat.parse import parse
from palaver.platforms.googlechat.render import MAX_TEXT, render
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
    parse_or_skip,
    take_json,
)
from palaver.protocols.bearer import BearerTokens
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Json = Mapping[str, Any]
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
        now, url = int(time.time()), self._options.token_url
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
        message, how = render(outbound), {"requestId": hashlib.sha256(idempotency_key.encode()).hexdigest()[:40]}
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
