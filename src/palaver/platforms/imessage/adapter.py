"""The iMessage adapter, through a BlueBubbles server on a Mac."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

from palaver.platforms.imessage import PLATFORM
from palaver.platforms.imessage.parse import Context, Related, is_complete, parse, related
from palaver.platforms.imessage.reader import (
    PARTS,
    IMessageOptions,
    Reader,
    ServerInfo,
    api_of,
    data_of,
    fetch_info,
    items_of,
)
from palaver.protocols import (
    Attachment,
    BackgroundTasks,
    HttpRequest,
    HttpResponse,
    Label,
    Limits,
    Outbound,
    PlatformDown,
    PlatformError,
    Receiver,
    SendUnclear,
    SystemClock,
    Trust,
    file_to_send,
    is_secret,
    parse_or_skip,
    take_json,
)
from palaver.protocols.files import send_text_of_file
from palaver.protocols.markdown import to_plain
from palaver.protocols.recent import Names
from palaver.protocols.rest import read_receipt

Json = Mapping[str, Any]

_EVENTS = ("new-message", "updated-message")
_CALLED_POLL_SECONDS = 60.0
"""How often to ask although BlueBubbles calls: it calls only once."""
_CHANGES_EVERY = 5
"""Look for edits each time that it asks so often: that reads the messages of the last minutes again."""
_HOLD_POLL_SECONDS = 0.5
_ANSWER_SECONDS = 20.0
"""How long to wait until BlueBubbles says that a message is sent. With AppleScript it sometimes never notices."""
_UPLOAD_SECONDS = 600.0
_MAX_FILE_BYTES = 100_000_000
_KNOWN_RECEIPTS = 200


class IMessageAdapter:
    platform = PLATFORM
    options = IMessageOptions
    limits = Limits(text=4000, one_paragraph=True, announces_requests=True)

    def __init__(self, account: str, options: IMessageOptions) -> None:
        self.account = account
        self._options = options
        self._clock = SystemClock()
        self._api = api_of(options)
        self._reader: Reader | None = None
        """While this worker serves the account."""
        self._info: ServerInfo | None = None
        self._names = Names(self._fetch_name)
        """Names in the Mac's contacts, by address."""
        self._unread: set[str] = set()
        self._receipts: deque[str] = deque(maxlen=_KNOWN_RECEIPTS)
        self._background = BackgroundTasks()

    async def check(self) -> str:
        return str(await fetch_info(self._api))

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        async with self._api.opened():
            self._info = await fetch_info(self._api)
            reader = Reader(self._api, receiver, self._take, self._clock)
            await reader.begin()
            await self._register_webhook()
            await receiver.connected()
            self._reader = reader
            try:
                await self._read(reader)
            finally:
                self._reader = None
                await self._background.end()

    async def _read(self, reader: Reader) -> None:
        pause = _CALLED_POLL_SECONDS if self.takes_callbacks else self._options.poll_seconds
        for number in count():
            reader.news.clear()
            is_waiting = await reader.read(changes=self.takes_callbacks or not number % _CHANGES_EVERY)
            self._mark_read()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(pause, _HOLD_POLL_SECONDS) if is_waiting else pause):
                    await reader.news.wait()

    async def _take(self, message: Json, receiver: Receiver) -> None:
        """Store a message and its changes."""
        about = parse_or_skip(self.platform.name, lambda: related(message))
        if about is None:
            return
        context = await self._context(about)
        found = parse_or_skip(self.platform.name, lambda: parse(message, context)) or []
        for inbound in found:
            await receiver.receive(inbound, Trust(is_bot=bool(message.get("isAutoReply"))))
            self._unread.add(inbound.source.chat_id or "")

    def _mark_read(self) -> None:
        if self._options.read_receipts and self._info and self._info.has_private_api:
            for chat in self._unread:
                self._background.run(self._api.call("POST", _chat_path(chat, "read")))
        self._unread.clear()

    async def _context(self, about: Related) -> Context:
        return Context(
            account=self.account,
            us=self._info.address if self._info else "",
            name=await self._names.get(about.sender) if about.sender else None,
            replied=await self._fetch_message(about.replied_to) if about.replied_to else None,
        )

    async def _fetch_name(self, address: str) -> object:
        found = items_of(await self._api.call("POST", "/contact/query", json={"addresses": [address]}))
        return next((name for each in found if (name := each.get("displayName"))), None)

    async def _fetch_message(self, guid: str) -> Json | None:
        with suppress(PlatformError):
            path = f"/message/{quote(guid, safe='')}"
            return data_of(await self._api.call("GET", path, params={"with": ",".join(PARTS)})) or None
        return None

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """BlueBubbles converts pictures and recordings of Apple's own formats to JPEG and MP3."""
        return self._api.download(f"/attachment/{quote(file.handle or '', safe='')}/download")

    # Being called

    @property
    def takes_callbacks(self) -> bool:
        return self._options.public_url is not None

    async def _register_webhook(self) -> None:
        if not self.takes_callbacks:
            return
        address = f"{self._options.public_url}/in/{self.platform.name}/{quote(self.account, safe='')}"
        url = f"{address}?secret={quote(self._options.shared_secret, safe='')}"
        known = items_of(await self._api.call("GET", "/webhook"))
        for hook in known:
            if hook["url"] != url and hook["url"].partition("?")[0] == address:
                await self._api.call("DELETE", f"/webhook/{hook['id']}")
        if url not in [hook["url"] for hook in known]:
            await self._api.call("POST", "/webhook", json={"url": url, "events": _EVENTS})

    async def handle_callback(self, request: HttpRequest, receiver: Receiver) -> HttpResponse:
        """Wake the reader. A worker that does not serve the account asks for just this message.

        Nothing in the call itself is used but the message's id.
        """
        given = request.query.get("secret", "")

        async def take(event: Json) -> None:
            if event.get("type") not in _EVENTS:
                return
            if self._reader is not None:
                self._reader.news.set()
                return
            guid = parse_or_skip(self.platform.name, lambda: str(event["data"]["guid"]))
            message = await self._fetch_message(guid) if guid else None
            if message and parse_or_skip(self.platform.name, lambda: is_complete(message)):
                await self._take(message, receiver)

        return await take_json(
            request, take, is_authentic=self.takes_callbacks and is_secret(given, self._options.shared_secret)
        )

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Send a text. The key only keeps BlueBubbles from sending it twice at the same time."""
        text = to_plain(outbound.text)
        body = {**await self._where(outbound), "tempGuid": idempotency_key, "message": text}
        began = int(self._clock.now().timestamp() * 1000)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                sent = await self._post("/message/text", json=body)
        except TimeoutError as error:
            sent = await self._find_sent(body["chatGuid"], text, began)
            if sent is None:
                raise SendUnclear("BlueBubbles did not say whether it was sent.") from error
        self._receipts.append(sent)
        return sent

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, _MAX_FILE_BYTES)
        name = file_name(file.name)
        data = {**await self._where(outbound), "tempGuid": idempotency_key, "name": name}
        files = {"attachment": (name, await asyncio.to_thread(content.read_bytes), file.media_type)}
        receipt = await self._post("/message/attachment", data=data, files=files, timeout=_UPLOAD_SECONDS)
        await send_text_of_file(outbound, partial(self.send, outbound, idempotency_key=f"{idempotency_key}:text"))
        return receipt

    async def typing(self, outbound: Outbound) -> None:
        if await self._has_private_api():
            await self._api.call("POST", _chat_path(_guid(outbound), "typing"))

    async def _where(self, outbound: Outbound) -> dict[str, str]:
        """Return the chat and how to send there, as a reply if that is wanted."""
        guid = _guid(outbound)
        is_private = await self._has_private_api()
        where = {"chatGuid": guid, "method": "private-api" if is_private else "apple-script"}
        if is_private and (quoted := outbound.quoted(in_group=";+;" in guid)):
            where["selectedMessageGuid"] = quoted
        return where

    async def _has_private_api(self) -> bool:
        if self._info is None:
            self._info = await fetch_info(self._api)
        return self._info.has_private_api

    async def _post(self, path: str, **options: Any) -> str:  # noqa: ANN401 - of httpx2
        try:
            sent = data_of(await self._api.call("POST", path, sending=True, **options))
        except PlatformDown:
            self._info = None  # The private API can have gone: ask again.
            raise
        return read_receipt("BlueBubbles", sent, "guid")

    async def _find_sent(self, chat: str, text: str, began: int) -> str | None:
        """Return our message with this text, if Messages has sent it meanwhile."""
        query = {"chatGuid": chat, "after": began - 2000, "sort": "ASC", "limit": 50}
        found: list[Json] = []
        with suppress(PlatformError):
            found = items_of(await self._api.call("POST", "/message/query", json=query))
        ours = (str(each["guid"]) for each in found if each.get("isFromMe") and each.get("text") == text)
        return next((guid for guid in ours if guid not in self._receipts), None)


def _guid(outbound: Outbound) -> str:
    """Return the chat's id. A person's address alone is a chat with them."""
    return outbound.chat_id if ";" in outbound.chat_id else f"iMessage;-;{outbound.chat_id}"


def _chat_path(guid: str, action: str) -> str:
    return f"/chat/{quote(guid, safe='')}/{action}"


def file_name(name: Label) -> str:
    """Return a name without folders. BlueBubbles uses it in a path; the Finder shows a colon as a slash."""
    safe = name.plain().replace("/", ":")
    return safe if safe.strip(". ") else "file"
