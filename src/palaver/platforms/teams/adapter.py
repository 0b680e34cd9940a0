"""The adapter for Microsoft Teams. The Bot Framework calls for each activity; answers go to the service it names."""

import re
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from html import escape, unescape
from typing import Annotated, Any, cast
from urllib.parse import quote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from palaver.model.feedback import rating_of
from palaver.platforms.teams import PLATFORM
from palaver.protocols import (
    CHANNEL,
    DM,
    GROUP,
    UNKNOWN_TYPE,
    Attachment,
    HttpRequest,
    HttpResponse,
    Inbound,
    Label,
    Labels,
    Limits,
    NewMessage,
    Outbound,
    Quote,
    Reaction,
    Receiver,
    Revision,
    Source,
    TargetGone,
    Trust,
    Unit,
    check_url,
    edit_version,
    one_line,
    parse_or_skip,
    parse_time,
    read_object,
    take_json,
)
from palaver.protocols.bearer import BearerToken, BearerTokens
from palaver.protocols.files import check_file_url
from palaver.protocols.markdown import to_html
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi, read_receipt
from palaver.protocols.tokens import ApiCodes, TokenApi, in_header

Url = Annotated[str, AfterValidator(check_url("a URL, like https://smba.trafficmanager.net/teams"))]


class TeamsOptions(AccountOptions):
    app_id: str = Field(pattern=r"^[0-9a-fA-F-]{36}$", description="The Microsoft App ID.")
    app_secret: SecretStr = Field(min_length=1, description="The client secret.")
    tenant: str = Field(
        default="botframework.com",
        pattern=r"^[0-9a-zA-Z.-]+$",
        description="The tenant of a single-tenant app.",
    )
    service_url: Url = Field(
        default="https://smba.trafficmanager.net/teams",
        description="Where messages go to chats that have not written since the gateway started.",
    )
    login_url: Url = Field(default="https://login.microsoftonline.com", description="Where tokens come from.")
    keys_url: Url = Field(
        default="https://login.botframework.com/v1/.well-known/openidconfiguration",
        description="Where the keys come from that sign Microsoft's calls.",
    )


Json = Mapping[str, Any]
THREAD_MARK = ";messageid="
"""Between the id of a channel and that of the message that began a thread."""
_KINDS = {"personal": DM, "groupChat": GROUP, "channel": CHANNEL}
_CHANGES = {
    ("message", ""): "",
    ("messageUpdate", "editMessage"): "edit",
    ("messageUpdate", "undeleteMessage"): "edit",
    ("messageDelete", "softDeleteMessage"): "delete",
}
_BOT = "28:"
_EMOJI_NUMBER = re.compile(r"(1f[0-9a-f]{3})(?:_|$)")
_SKIN_TONE = re.compile(r"-tone[1-5]$")
_EMOJI_NAMES = {"like": "👍", "yes": "👍", "no": "👎"}
"""In the reactions reference of Teams, 👍 and 👎 of its list of emoji are called `yes` and `no`."""
_DOWNLOAD = "application/vnd.microsoft.teams.file.download.info"
_NO_FILE = "Teams gives bots files in a direct chat only"
_QUOTED = re.compile(
    r'<blockquote\b[^>]*\bitemtype="https?://schema\.skype\.com/Reply"[^>]*>(.*?)</blockquote>', re.DOTALL
)
_ITEM_ID = re.compile(r'\bitemid="([^"]*)"')
_AUTHOR = re.compile(r'<strong\b([^>]*\bitemprop="mri"[^>]*)>(.*?)</strong>', re.DOTALL)
_WORDS = re.compile(r'<p\b[^>]*\bitemprop="(?:copy|preview)"[^>]*>(.*?)</p>', re.DOTALL)
_TAG = re.compile(r"<[^<>]*>")
_QUOTE_PLACE = re.compile(r'<quoted messageId="[^"]*"\s*/?>(?:</quoted>)?')


def parse(activity: Json, account: str) -> NewMessage | None:
    """Parse an activity; None if nobody says anything."""
    if activity["type"] == "messageReaction":
        return _reaction(activity, account)
    kind = str(activity["type"])
    event = _object(activity, "channelData").get("eventType") or ""
    change = _CHANGES.get((kind, event if kind != "message" else ""))
    if change is None:
        return None
    text, mentions_us = _text(activity)
    pressed = _object(activity, "value").get("says")
    said = str(pressed) if pressed and not text else text
    at = parse_time(activity["timestamp"])
    sender: Json = activity["from"]
    quoted, quote = _quote(activity)
    inbound = Inbound(
        source=_source(activity, account),
        text="" if change == "delete" else said,
        at=at,
        labels=Labels(user=Label.of(sender.get("name")), chat=Label.of(activity["conversation"].get("name"))),
        mentions_us=mentions_us or bool(pressed and not text) or bool(quote and quote.is_ours),
        reply_to=quoted or activity.get("replyToId"),
        quote=quote,
        files=() if change == "delete" else tuple(_files(activity, has_text=bool(text or pressed))),
        revision=_revision(change, at, text),
    )
    return NewMessage(inbound, Trust(is_bot=str(sender["id"]).startswith(_BOT)))


def _reaction(activity: Json, account: str) -> NewMessage | None:
    """Return the first reaction that counts: somebody can change one for another, which adds and removes at once."""
    given = [(each, False) for each in activity.get("reactionsAdded") or ()]
    given += [(each, True) for each in activity.get("reactionsRemoved") or ()]
    signs = [(_emoji(str(each["type"])), removed) for each, removed in given]
    counts = next((sign for sign in signs if rating_of(sign[0])), None)
    if counts is None or not activity.get("replyToId"):
        return None
    inbound = Inbound(
        source=replace(_source(activity, account), message_id=None),
        text="",
        at=parse_time(activity["timestamp"]),
        labels=Labels(user=Label.of(activity["from"].get("name"))),
        reply_to=str(activity["replyToId"]),
        reaction=Reaction(emoji=counts[0], removed=counts[1]),
    )
    return NewMessage(inbound, Trust(is_bot=str(activity["from"]["id"]).startswith(_BOT)))


def _emoji(kind: str) -> str:
    """Return the character: some names begin with its number, as `1f44b_wavinghand-tone2`."""
    number = _EMOJI_NUMBER.match(kind)
    return chr(int(number[1], 16)) if number else _EMOJI_NAMES.get(_SKIN_TONE.sub("", kind), kind)


def _source(activity: Json, account: str) -> Source:
    """A person's id belongs to this bot; the one in the directory is the same everywhere."""
    conversation = activity["conversation"]
    sender = activity["from"]
    chat, _, thread = str(conversation["id"]).partition(THREAD_MARK)
    return Source(
        platform="teams",
        account=account,
        chat_kind=_KINDS.get(conversation.get("conversationType") or "personal", GROUP),
        chat_id=chat,
        thread_id=thread or None,
        user_id=str(sender["id"]),
        user_id_alt=sender.get("aadObjectId"),
        message_id=str(activity["id"]),
    )


def _text(activity: Json) -> tuple[str, bool]:
    """Return the text with names in place of mentions, without our own in front, and whether we are mentioned."""
    text = _QUOTE_PLACE.sub("", str(activity.get("text") or ""))
    mentions_us = False
    us = activity["recipient"]["id"]
    for entity in _entities(activity, "mention"):
        who: Json = entity["mentioned"]
        # Not every client says which part of the text it is.
        mark = str(entity.get("text") or f"<at>{who.get('name') or ''}</at>")
        is_us = who["id"] == us
        mentions_us |= is_us
        if is_us and text.lstrip().startswith(mark):
            text = text.lstrip()[len(mark) :].lstrip()
        text = text.replace(mark, f"@{who.get('name') or ''}")
    return _decoded(text), mentions_us


def _decoded(text: str) -> str:
    return unescape(text).replace("\xa0", " ").strip()


def _entities(activity: Json, kind: str) -> Iterator[Json]:
    return (each for each in cast("Sequence[Json]", activity.get("entities") or ()) if each.get("type") == kind)


def _quote(activity: Json) -> tuple[str | None, Quote | None]:
    """Return the id of the message that this one quotes, and what Teams shows of it."""
    us = str(activity["recipient"]["id"])
    for entity in _entities(activity, "quotedReply"):
        quoted: Json = entity["quotedReply"]
        author = str(quoted.get("senderId") or "")
        name = quoted.get("senderName")
        quote = Quote(text=_decoded(str(quoted.get("preview") or "")), name=Label.of(name), is_ours=author == us)
        return str(quoted["messageId"]), quote if quote.text else None
    for html in _html(activity):
        if block := _QUOTED.search(html):
            message = _ITEM_ID.search(block[0])
            who = _AUTHOR.search(block[1])
            words = _WORDS.search(block[1])
            author = _ITEM_ID.search(who[1]) if who else None
            name = Label.of(_decoded(_TAG.sub("", who[2]))) if who else None
            is_ours = bool(author and author[1] == us)
            quote = Quote(text=_decoded(_TAG.sub("", words[1] if words else "")), name=name, is_ours=is_ours)
            return message[1] if message else None, quote if quote.text else None
    return None, None


def _html(activity: Json) -> Iterator[str]:
    """Yield the message as HTML, which also has what the text leaves out."""
    for each in cast("Sequence[Json]", activity.get("attachments") or ()):
        if each.get("contentType") == "text/html":
            yield str(each.get("content") or "")


def _revision(change: str, at: datetime, text: str) -> Revision | None:
    if change == "delete":
        return Revision(version="deleted", deleted=True)
    return Revision(version=edit_version(at.isoformat(), text)) if change else None


def _files(activity: Json, *, has_text: bool) -> Iterator[Attachment]:
    """Yield files: in a direct chat one has an address of its own; a picture is at the service.

    In a group or channel only the HTML shows that there was a file, or nothing but an empty message does.
    """
    found = list(_given_files(activity))
    yield from found
    if not found and any("<attachment " in html or not (has_text or html.strip()) for html in _html(activity)):
        yield Attachment(Label("file"), UNKNOWN_TYPE, problem=_NO_FILE)


def _given_files(activity: Json) -> Iterator[Attachment]:
    for each in cast("Sequence[Json]", activity.get("attachments") or ()):
        kind = str(each.get("contentType") or "")
        name = Label(str(each.get("name") or "file"))
        if kind == _DOWNLOAD:
            yield Attachment(name, UNKNOWN_TYPE, handle=str(each["content"]["downloadUrl"]))
        elif kind.startswith("image/") and each.get("contentUrl"):
            media_type = UNKNOWN_TYPE if kind == "image/*" else kind
            yield Attachment(name, media_type, handle=str(each["contentUrl"]))


def _object(found: Json, name: str) -> Json:
    value = found.get(name)
    return cast("Json", value) if isinstance(value, Mapping) else {}


MAX_TEXT_BYTES = 16_000
_MAX_BYTES = 25_000
"""Teams takes about 80 KB as UTF-16, and took 40 KB for long."""
_MAX_CHOICES = 6
_MAX_LABEL = 40
_LOOKALIKES = str.maketrans({"&": "+", "<": "‹", ">": "›", "\n": " "})  # noqa: RUF001
_CARD = "application/vnd.microsoft.card.adaptive"


def render_text(text: str) -> str:
    plain = escape(text, quote=False).replace("\n", "<br>")
    candidates = (to_html(text, has_tables=False) or plain, plain, text.translate(_LOOKALIKES))
    return next((shown for shown in candidates if len(shown.encode()) <= _MAX_BYTES), "…")


def render(outbound: Outbound) -> dict[str, Any]:
    message: dict[str, Any] = {"type": "message", "text": render_text(outbound.text), "textFormat": "xml"}
    if not outbound.choices:
        return message
    actions = [
        {"type": "Action.Submit", "title": one_line(choice.label, _MAX_LABEL), "data": {"says": choice.says}}
        for choice in outbound.choices[:_MAX_CHOICES]
    ]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [], "actions": actions}
    return {**message, "attachments": [{"contentType": _CARD, "content": card}]}


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
        service = activity["serviceUrl"]
        channel = activity["channelId"]
        return token.claims["serviceurl"] == service and channel in token.key.get("endorsements", ())
    except (ValueError, LookupError, TypeError):
        return False
