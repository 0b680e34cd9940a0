"""The Slack adapter. An envelope is acknowledged once its message is stored; Slack repeats the others."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.socket_mode.aiohttp import SocketModeClient

from palaver.platforms.slack import PLATFORM
from palaver.platforms.slack.client import API, CONNECTING, SILENT, SlackOptions, WebClient, new_session, web_client
from palaver.platforms.slack.history import History, Names, Take
from palaver.platforms.slack.parse import (
    ButtonPress,
    ChatRenumbered,
    Event,
    Json,
    NewMessage,
    OwnApp,
    Renamed,
    message,
    parse,
    render,
)
from palaver.protocols import (
    DM,
    Attachment,
    BackgroundTasks,
    Limits,
    Outbound,
    PlatformDown,
    PlatformRefused,
    Receiver,
    SendRefused,
    SystemClock,
    Trust,
    answer_error,
    file_to_send,
    parse_or_skip,
    read_object,
)

PING_SECONDS = 5.0
"""How often the library tests the connection, and so how long it takes to notice that it is gone."""
_CONNECT_SECONDS = 30.0
_SWITCHED_OFF = "Socket Mode is switched off for this Slack app. Switch it on under Socket Mode at api.slack.com/apps."


class _Connection(SocketModeClient):
    """The library's connection without its reconnecting, which would ignore errors and never give up."""

    def __init__(self, app_token: str, web: WebClient) -> None:
        super().__init__(app_token, logger=SILENT, web_client=web, ping_interval=PING_SECONDS)
        self.frames: asyncio.Queue[str | None] = asyncio.Queue()
        """In order, and None for a lost connection. The library itself would handle them all at once."""

    async def enqueue_message(self, message: str) -> None:
        self.frames.put_nowait(message)

    async def connect_to_new_endpoint(self, force: bool = False) -> None:
        del force
        self.frames.put_nowait(None)


async def serve(web: WebClient, app_token: str, history: History, connected: Callable[[], Awaitable[None]]) -> None:
    """Hand over payloads until Slack wants a new connection. An error, also one in handling them, ends it."""
    with CONNECTING.requests():
        url = (await web.apps_connections_open(app_token=app_token))["url"]
        connection = _Connection(app_token, web)
        try:
            connection.wss_uri = str(url)
            async with asyncio.timeout(_CONNECT_SECONDS):
                await connection.connect()
            while await _handle(await _next(connection, history), connection, history.take, connected):
                pass
        finally:
            await connection.close()


async def _next(connection: _Connection, history: History) -> str | None:
    """Wait for the next frame, and read the history meanwhile."""
    while history.is_behind and connection.frames.empty():
        with suppress(TimeoutError):
            async with asyncio.timeout(history.pause):
                return await connection.frames.get()
        await history.read_next()
    return await connection.frames.get()


async def _handle(
    text: str | None, connection: _Connection, take: Take, connected: Callable[[], Awaitable[None]]
) -> bool:
    """Handle a frame; return whether there are more on this connection."""
    if text is None:
        raise PlatformDown("The connection to Slack was lost.")
    frame = parse_or_skip("slack", lambda: read_object(text)) or {}
    match frame.get("type"):
        case "hello":
            await connected()
        case "disconnect" if frame.get("reason") == "link_disabled":
            raise PlatformRefused(_SWITCHED_OFF)
        case "disconnect" if frame.get("reason") in {"warning", "refresh_requested"}:
            return False
        case "disconnect":
            raise PlatformDown("Slack ended the connection.")
        case _ if "envelope_id" in frame:
            await _take_envelope(connection, take, frame)
        case _:
            pass
    return True


async def _take_envelope(connection: _Connection, take: Take, frame: Json) -> None:
    payload = frame.get("payload")
    if isinstance(payload, dict):
        await take(cast("Json", payload))
    await connection.send_socket_mode_response({"envelope_id": frame["envelope_id"]})


_MAX_TEXT = 3500
"""The rest of Slack's 4000 characters is for escapes, marks and what the gateway adds."""
_DRAFT_INTERVAL = 3.0
"""Slack takes 50 edits a minute in the whole workspace."""
_MAX_FILE_BYTES = 1_000_000_000
_CHUNK_BYTES = 1 << 16
_MESSAGE_ID = re.compile(r"[0-9]{1,20}\.[0-9]{1,10}")
_STATUS = "is typing…"


class SlackAdapter:
    platform = PLATFORM
    options = SlackOptions
    limits = Limits(text=_MAX_TEXT, interval=1.0, draft_interval=_DRAFT_INTERVAL, announces_requests=True)

    def __init__(self, account: str, options: SlackOptions) -> None:
        self.account = account
        self._options = options
        self._clock = SystemClock()
        self._session: aiohttp.ClientSession | None = None
        """While it runs."""
        self._background = BackgroundTasks(*API.raised)

    async def check(self) -> str:
        async with self._web() as web:
            with API.requests():
                found = await web.auth_test()
            if self._session is None:  # Slack rarely lets us ask this, and a running adapter has just done so.
                with CONNECTING.requests():
                    await web.apps_connections_open(app_token=self._options.app_token.get_secret_value())
            return f"@{found['user']} in {found['team']}"

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        async with new_session() as session:
            web = web_client(self._options, session)
            with API.requests():
                found = await web.auth_test()
            us = OwnApp(
                account=self.account,
                team=str(found["team_id"]),
                user=str(found["user_id"]),
                bot=str(found["bot_id"]),
                reply_in_thread=self._options.reply_in_thread,
            )
            names = Names(web, us)

            async def take(payload: Json) -> None:
                event = parse_or_skip(self.platform.name, lambda: parse(payload, us, self._clock.now()))
                await self._process(event, us, names, receiver)

            history = History(web, receiver, take, self._clock)
            await history.begin()
            self._session = session
            try:
                while True:
                    await serve(web, self._options.app_token.get_secret_value(), history, receiver.connected)
            finally:
                self._session = None
                await self._background.end()

    async def _process(self, event: Event | None, us: OwnApp, names: Names, receiver: Receiver) -> None:
        """Store the event, or ignore it."""
        match event:
            case NewMessage(inbound, trust):
                if inbound.reaction and await names.is_bot(inbound.source.user_id):
                    trust = Trust(is_bot=True)
                await receiver.receive(await names.add_to(inbound), trust)
            case ButtonPress(inbound) as press:
                await receiver.receive(await names.add_to(inbound), Trust())
                # In a channel the buttons stay: somebody else may have to press.
                if inbound.source.chat_kind == DM:
                    self._background.run(self._remove_buttons(press))
            case ChatRenumbered(old, new):
                await receiver.chat_moved(old, new, server=us.team)
            case Renamed(id_, name):
                names.rename(id_, name)
            case None:
                pass

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        async with self._web() as web:
            with API.requests():
                found = (await web.files_info(file=file.handle or ""))["file"]
                url = str(found.get("url_private_download") or found.get("url_private") or "")
                async with self._download(url) as response:
                    async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                        yield chunk

    @asynccontextmanager
    async def _download(self, url: str) -> AsyncGenerator[aiohttp.ClientResponse]:
        """Only Slack gets our token, and a login page instead of the file means that it does not suffice."""
        api = urlsplit(self._options.api_url)
        place = urlsplit(url)
        if place.scheme != api.scheme or not f".{place.hostname}".endswith(f".{api.hostname}"):
            raise SendRefused("The file is not at Slack.")
        headers = {"Authorization": f"Bearer {self._options.bot_token.get_secret_value()}"}
        async with (
            new_session() as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status != HTTPStatus.OK:
                is_login = response.status in range(300, 400)
                words = "The Slack app needs the scope files:read." if is_login else ""
                status = HTTPStatus.FORBIDDEN if is_login else response.status
                raise answer_error("Slack", status, sending=False, words=words)
            yield response

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Slack has no idempotency keys."""
        del idempotency_key
        async with self._web() as web:
            with API.sends():
                # No previews: Slack would fetch the URL, and a crafted one could leak what the agent writes into it.
                sent = await web.chat_postMessage(
                    channel=outbound.chat_id,
                    thread_ts=outbound.thread_id,
                    unfurl_links=False,
                    unfurl_media=False,
                    **message(outbound),
                )
                return str(sent["ts"])

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not _MESSAGE_ID.fullmatch(receipt):
            raise SendRefused("The receipt is not a message id.")
        async with self._web() as web:
            with API.sends():
                await web.chat_update(channel=outbound.chat_id, ts=receipt, **message(outbound))

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Threads have no names; the message begins one."""
        return await self.send(outbound, idempotency_key=idempotency_key)

    async def typing(self, outbound: Outbound) -> None:
        """Show a status, which Slack does only in a thread."""
        if outbound.thread_id is None:
            return
        async with self._web() as web:
            with API.requests():
                await web.assistant_threads_setStatus(
                    channel_id=outbound.chat_id, thread_ts=outbound.thread_id, status=_STATUS
                )

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """Upload the file, then show it. The receipt is the file's id: Slack does not tell the message's."""
        del idempotency_key
        file = file_to_send(outbound, content, _MAX_FILE_BYTES)
        name = file.name.plain() or "file"
        body = await asyncio.to_thread(content.read_bytes)
        async with self._web() as web:
            with API.requests():  # Nothing is shown yet.
                place = await web.files_getUploadURLExternal(filename=name, length=len(body))
                async with new_session() as session, session.post(place["upload_url"], data=body) as uploaded:
                    if uploaded.status != HTTPStatus.OK:
                        raise answer_error("Slack", uploaded.status, sending=False)
            with API.sends():
                await web.files_completeUploadExternal(
                    files=[{"id": place["file_id"], "title": name}],
                    channel_id=outbound.chat_id,
                    thread_ts=outbound.thread_id,
                    initial_comment=render(outbound.text) if outbound.text else None,
                )
        return str(place["file_id"])

    async def _remove_buttons(self, press: ButtonPress) -> None:
        blocks: Sequence[Json] = press.message.get("blocks") or ()
        kept = [block for block in blocks if block.get("type") != "actions"]
        channel = press.inbound.source.chat_id
        text = press.message.get("text") or ""
        async with self._web() as web:
            await web.chat_update(channel=channel, ts=press.message["ts"], text=text, blocks=kept)

    @asynccontextmanager
    async def _web(self) -> AsyncGenerator[WebClient]:
        """Use the open connection, or a temporary one."""
        if self._session is not None:
            yield web_client(self._options, self._session)
            return
        async with new_session() as session:
            yield web_client(self._options, session)
