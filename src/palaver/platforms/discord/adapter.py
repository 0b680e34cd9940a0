"""The Discord adapter. Messages come through the gateway (`listen`) and go out through the HTTP API."""

import hashlib
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import discord

from palaver.platforms.discord import PLATFORM
from palaver.platforms.discord.client import (
    API,
    CANNOT_SEND_IN_FORUM,
    NO_CONTENT,
    THREAD_CLOSED,
    THREAD_EXISTS,
    UNKNOWN_CHANNEL,
    UPLOADS,
    ApiError,
    Client,
    Connection,
    DiscordOptions,
)
from palaver.platforms.discord.listen import Listener
from palaver.platforms.discord.parse import attachments_in
from palaver.protocols import (
    Attachment,
    Limits,
    MenuCommand,
    Outbound,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    SystemClock,
    answer_error,
    file_to_send,
    fit_menu,
    one_line,
)
from palaver.protocols.markdown import Layout, Marks, is_web_link, to_marks

MAX_TEXT = 2000
"""Code points."""
_MAX_BUTTONS = 25
_BUTTONS_IN_ROW = 5
_MAX_LABEL = 80
_MAX_BUTTON_ID = 100
_NO_PREVIEW = 1 << 2
"""Discord would fetch the URL for a preview, and a crafted one could leak what the agent writes into it."""
# URLs, mentions, custom emoji and times stay as they are.
_SPECIAL = re.compile(
    r"(?P<kept>https?://[^\s<]+|<(?:@[!&]?|#|a?:\w+:|t:)[\w:-]+>)"
    r"|(?P<mark>[\\*_~`|]|\[(?=[^\]]*\]\()|(?:(?<=\n)|\A)(?:-#|[>#+-]))"
)


def _escape(text: str) -> str:
    return _SPECIAL.sub(lambda found: found["kept"] or f"\\{found['mark']}", text)


_MARKS = Marks(
    bold="**",
    italic="*",
    struck="~~",
    code="`",
    code_block="```",
    has_languages=True,
    link=lambda url: ("[", f"]({url.replace(')', '%29')})"),
    escape=_escape,
    layout=Layout(is_linked=is_web_link, bullet="- "),
)


def render(text: str) -> str:
    """Return it with Discord's marks; as written if it gets too long."""
    shown = to_marks(text, _MARKS)
    return shown if shown.strip() and len(shown) <= MAX_TEXT else text


def message(outbound: Outbound, *, key: str | None = None) -> dict[str, Any]:
    """Return a new message, or without a key the edit of one. Under the same key Discord shows it once, for minutes."""
    payload: dict[str, Any] = {
        "content": render(outbound.text) if outbound.text else "",
        "flags": _NO_PREVIEW,
        "allowed_mentions": {"parse": ["users"], "replied_user": True},
        "components": _buttons(outbound),
    }
    if key is not None:
        payload |= {"nonce": hashlib.sha256(key.encode()).hexdigest()[:25], "enforce_nonce": True}
        payload |= _reference(outbound)
    return payload


def _reference(outbound: Outbound) -> dict[str, Any]:
    """Leave out a reply to a pressed button, and to the message at which the thread was opened."""
    answered = outbound.quoted(in_group=bool(outbound.scope_id))
    if not (answered and is_id(answered) and answered != outbound.thread_id):
        return {}
    return {"message_reference": {"message_id": answered, "fail_if_not_exists": False}}


def _buttons(outbound: Outbound) -> list[dict[str, Any]]:
    """Return rows of buttons; leave out those that are too long: people can type them."""
    buttons = [
        {"type": 2, "style": 2, "label": choice.label[:_MAX_LABEL], "custom_id": choice.says}
        for choice in outbound.choices[:_MAX_BUTTONS]
        if 0 < len(choice.says) <= _MAX_BUTTON_ID
    ]
    rows = range(0, len(buttons), _BUTTONS_IN_ROW)
    return [{"type": 1, "components": buttons[start : start + _BUTTONS_IN_ROW]} for start in rows]


def is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal()


_READS_CONTENT = 1 << 18 | 1 << 19
"""Flags of an application that can read messages, verified or not."""
_MAX_SENT_BYTES = 100 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
_COMMAND_NAME = r"[a-z0-9_-]{1,32}"
_MAX_COMMANDS = 100
_MAX_HELP = 100
_MAX_THREAD_NAME = 100
_PUBLIC_THREAD = 11
_FORUMS = frozenset({15, 16})
_MENTION = re.compile(r"<@[!&]?\d+>")
_MESSAGES = "/channels/{channel_id}/messages"
_MESSAGE = "/channels/{channel_id}/messages/{message_id}"
_THREADS = "/channels/{channel_id}/threads"

T = TypeVar("T")


class DiscordAdapter:
    platform = PLATFORM
    options = DiscordOptions
    # The rest is for marks and what the gateway adds. Discord takes five messages in five seconds, edits apart.
    limits = Limits(text=MAX_TEXT - 100, interval=1.0, draft_interval=1.5, announces_requests=True)

    def __init__(self, account: str, options: DiscordOptions) -> None:
        self.account = account
        self._options = options
        self._clock = SystemClock()
        self._open: Connection | None = None

    async def run(self, receiver: Receiver) -> None:
        connection = Connection(self._options)
        with API.requests():
            async with connection.used() as client:
                self._open = connection
                try:
                    await Listener(client, receiver, self.account, self._options, self._clock).run()
                finally:
                    self._open = None

    async def check(self) -> str:
        async with self._client() as client:
            us = await client.call("GET", "/users/@me")
            application = await client.call("GET", "/applications/@me")
        if not int(application.get("flags") or 0) & _READS_CONTENT:
            raise PlatformRefused(NO_CONTENT)
        return f"@{us['username']}"

    async def show_menu(self, commands: Sequence[MenuCommand]) -> None:
        shown = fit_menu(commands, name=_COMMAND_NAME, max_help=_MAX_HELP, max_commands=_MAX_COMMANDS)
        rest = {"type": 3, "name": "text", "description": "what follows the command", "required": False}
        menu = [{"name": each.name, "description": each.help, "type": 1, "options": [rest]} for each in shown]
        async with self._client() as client:
            application = await client.call("GET", "/applications/@me")
            path = "/applications/{application_id}/commands"
            ours = str(application["id"])
            await client.call("PUT", path, {"json": menu}, application_id=ours)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """Ask for the message again: addresses of files expire after a day."""
        channel, number, wanted = _ids(*(file.handle or "//").split("/"))
        async with self._client() as client:
            found = await client.call("GET", _MESSAGE, channel_id=channel, message_id=number)
            url = next((str(each["url"]) for each in attachments_in(found) if each["id"] == wanted), None)
            if url is None:
                raise SendRefused("Discord no longer has the file.")
            async with aiohttp.ClientSession() as session, session.get(url) as answer:
                if not answer.ok:
                    raise answer_error("Discord", answer.status, sending=False)
                async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        payload = message(outbound, key=idempotency_key)
        async with self._client(API.sends) as client:
            try:
                return await self._in_place(client, outbound, _post(client, payload), opens=True)
            except ApiError as refusal:
                if refusal.code != CANNOT_SEND_IN_FORUM:
                    raise
        return await self.open_thread(replace(outbound, opens=outbound.text), idempotency_key=idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, _MAX_SENT_BYTES)
        name = file.name.plain() or "file"
        payload = message(outbound, key=idempotency_key) | {"attachments": [{"id": 0, "filename": name}]}

        async def post(channel: str) -> str:
            with content.open("rb") as opened:
                form = [
                    {"name": "payload_json", "value": json.dumps(payload), "content_type": "application/json"},
                    {"name": "files[0]", "value": opened, "filename": name, "content_type": file.media_type},
                ]
                return str((await client.call("POST", _MESSAGES, {"form": form}, channel_id=channel))["id"])

        async with self._client(UPLOADS.sends) as client:
            return await self._in_place(client, outbound, post, opens=True)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        (number,) = _ids(receipt)
        payload = message(outbound)

        async def patch(channel: str) -> None:
            await client.call("PATCH", _MESSAGE, {"json": payload}, channel_id=channel, message_id=number)

        async with self._client(API.sends) as client:
            await self._in_place(client, outbound, patch)

    async def typing(self, outbound: Outbound) -> None:
        async def post(channel: str) -> None:
            await client.call("POST", "/channels/{channel_id}/typing", channel_id=channel)

        async with self._client() as client:
            await self._in_place(client, outbound, post)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Open a thread, or a post in a forum."""
        (channel,) = _ids(outbound.chat_id)
        inside = replace(outbound, reply_to=None)
        opened: dict[str, Any] = {"name": _title(outbound.opens or "")}
        async with self._client(API.sends) as client:
            if (await client.call("GET", "/channels/{channel_id}", channel_id=channel))["type"] in _FORUMS:
                opened["message"] = message(inside)
                return str((await client.call("POST", _THREADS, {"json": opened}, channel_id=channel))["id"])
            opened["type"] = _PUBLIC_THREAD
            thread = str((await client.call("POST", _THREADS, {"json": opened}, channel_id=channel))["id"])
        try:
            await self.send(replace(inside, thread_id=thread), idempotency_key=idempotency_key)
        except PlatformError as error:
            # The thread exists: a second one would be worse than an empty one.
            raise SendUnclear(f"The thread was created, but the message failed: {error}") from error
        return thread

    async def _in_place(
        self, client: Client, outbound: Outbound, act: Callable[[str], Awaitable[T]], *, opens: bool = False
    ) -> T:
        """Act in the thread. If it is closed, act in its channel; if it was never opened, open it first."""
        channel, thread = *_ids(outbound.chat_id), outbound.thread_id
        if thread is None:
            return await act(channel)
        _ids(thread)
        try:
            return await act(thread)
        except ApiError as refusal:
            if refusal.code not in THREAD_CLOSED:
                raise
            is_new = opens and self._options.auto_thread and refusal.code == UNKNOWN_CHANNEL
        return await act(thread if is_new and await _open_at(client, channel, thread) else channel)

    @asynccontextmanager
    async def _client(
        self, errors: Callable[[], AbstractContextManager[None]] = API.requests
    ) -> AsyncGenerator[Client]:
        """Use the open connection, or a temporary one."""
        with errors():
            async with (self._open or Connection(self._options)).used() as client:
                yield client


def _post(client: Client, payload: dict[str, Any]) -> Callable[[str], Awaitable[str]]:
    async def post(channel: str) -> str:
        return str((await client.call("POST", _MESSAGES, {"json": payload}, channel_id=channel))["id"])

    return post


async def _open_at(client: Client, channel: str, number: str) -> bool:
    """Open a thread at a message, named after it; return whether there is one now."""
    try:
        said = await client.call("GET", _MESSAGE, channel_id=channel, message_id=number)
        opened = {"json": {"name": _title(said["content"])}}
        await client.call("POST", f"{_MESSAGE}/threads", opened, channel_id=channel, message_id=number)
    except ApiError as refusal:
        return refusal.code == THREAD_EXISTS
    return True


def _title(text: str) -> str:
    """Return a name for a thread: the text without mentions and marks."""
    words = discord.utils.remove_markdown(_MENTION.sub("", text))
    return one_line(words, _MAX_THREAD_NAME) or "…"


def _ids(*texts: str) -> tuple[str, ...]:
    """Check ids that become part of a path."""
    if not all(is_id(text) for text in texts):
        raise SendRefused("An id on Discord is a number like 80351110224678912.")
    return texts
