"""The adapter for Microsoft Teams. The Bot Framework calls for each activity; answers go to the service it names."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from palaver.platforms.teams import PLATFORM
from palaver.platforms.teams.options import TeamsOptions
from palaver.platforms.teams.parse import THREAD_MARK, parse
from palaver.platforms.teams.render import MAX_TEXT_BYTES, render
from palaver.protocols import (
    Attachment,
    HttpRequest,
    HttpResponse,
    Limits,
    Outbound,
    Receiver,
    TargetGone,
    Unit,
    parse_or_skip,
    read_object,
    take_json,
)
from palaver.protocols.bearer import BearerToken, BearerTokens
from palaver.protocols.files import check_file_url
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Json = Mapping[str, Any]
_WRONG_SECRET = "Microsoft rejects the app ID, the tenant or the client secret. Check them at portal.azure.com."  # noqa: S105
_ISSUER = "https://api.botframework.com"
_SCOPE = "https://api.botframework.com/.default"
_GONE = "The bot is not in this chat any more, or was blocked."
_CODES = ApiCodes(
    code="code",
    words="message",
    within="error",
    expires_with_401=True,
    busy=frozenset({412}),
    errors=dict.fromkeys(
        ("BotNotInConversationRoster", "ConversationNotFound", "ConversationBlockedByUser", "BotDisabledByAdmin"),
        partial(TargetGone, _GONE),
    ),
    fix=_WRONG_SECRET,
)
_FILE_HOSTS = (".sharepoint.com", ".svc.ms")
"""Files of people are in their OneDrive; a message could name any address."""


class TeamsAdapter:
    platform = PLATFORM
    options = TeamsOptions
    # Teams takes 60 messages in 30 seconds in one conversation.
    limits = Limits(
        text=MAX_TEXT_BYTES,
        unit=Unit.UTF8,
        interval=0.5,
        draft_interval=1.5,
        group_draft_interval=2.0,
        announces_requests=True,
    )
    takes_callbacks = True

    def __init__(self, account: str, options: TeamsOptions) -> None:
        self.account = account
        self._options = options
        self._api = TokenApi(
            "Teams",
            options.service_url,
            fetch=self._fetch_token,
            place=in_header("authorization", "Bearer "),
            codes=_CODES,
            gone=(403, 404),
        )
        self._open = RestApi("Teams", options.keys_url)
        """Without a token: public keys, and files whose address is their key."""
        self._bearer = BearerTokens(self._fetch_keys, issuer=_ISSUER, audience=options.app_id)
        self._services: dict[str, str] = {}
        """Where the messages to a chat go."""
        self._sent: dict[str, None] = {}
        """Our last messages: Teams does not tell the author of what somebody replies to."""

    async def _fetch_token(self) -> tuple[Any, Any]:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._options.app_id,
            "client_secret": self._options.app_secret.get_secret_value(),
            "scope": _SCOPE,
        }
        url = f"{self._options.login_url}/{self._options.tenant}/oauth2/v2.0/token"
        found = await self._api.ask("POST", url, data=form)
        return found["access_token"], found["expires_in"]

    async def _fetch_keys(self) -> Iterable[Json]:
        found = await self._open.call("GET", self._options.keys_url)
        return (await self._open.call("GET", str(found["jwks_uri"])))["keys"]

    async def check(self) -> str:
        await self._api.fetch_token()
        return self._options.app_id

    async def run(self, receiver: Receiver) -> None:
        await self._api.keep_checking(self.check, receiver)

    # Incoming

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        async def take(activity: Json) -> None:
            found = parse_or_skip(self.platform.name, lambda: parse(activity, self.account))
            if found is None:
                return
            remember(self._services, found.inbound.source.chat_id or "", str(activity["serviceUrl"]).rstrip("/"))
            is_ours = found.inbound.mentions_us or found.inbound.reply_to in self._sent
            await receiver.receive(replace(found.inbound, mentions_us=is_ours), found.trust)

        token = await self._bearer.read(request.headers.get("authorization", ""))
        return await take_json(request, take, is_authentic=token is not None and _covers(token, request.body))

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        service = self._options.service_url
        url = check_file_url(file.handle or "", api_url=service, hosts=_FILE_HOSTS)
        api = self._api if urlsplit(url).netloc == urlsplit(service).netloc else self._open
        async for chunk in api.download(url):
            yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:  # noqa: ARG002 - Teams takes none
        sent = await self._api.call("POST", self._path(outbound), sending=True, json=render(outbound))
        receipt = read_receipt("Teams", sent, "id")
        remember(self._sent, receipt, None)
        return receipt

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        path = f"{self._path(outbound)}/{quote(receipt, safe='')}"
        await self._api.call("PUT", path, sending=True, json={**render(outbound), "id": receipt})

    async def typing(self, outbound: Outbound) -> None:
        await self._api.call("POST", self._path(outbound), json={"type": "typing"})

    def _path(self, outbound: Outbound) -> str:
        service = self._services.get(outbound.chat_id, self._options.service_url)
        thread = f"{THREAD_MARK}{outbound.thread_id}" if outbound.thread_id else ""
        return f"{service}/v3/conversations/{quote(outbound.chat_id + thread, safe='')}/activities"


def _covers(token: BearerToken, body: bytes) -> bool:
    """Return whether the token was made for this service, with a key for its channel. Our token goes there."""
    try:
        activity = read_object(body)
        service, channel = activity["serviceUrl"], activity["channelId"]
        return token.claims["serviceurl"] == service and channel in token.key.get("endorsements", ())
    except (ValueError, LookupError, TypeError):
        return False
