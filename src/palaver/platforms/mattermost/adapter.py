"""The adapter for Mattermost. Events come over a WebSocket that can be resumed; everything else is REST."""

import asyncio
import hashlib
import json
import re
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import httpx2
from pydantic import AfterValidator, Field, SecretStr
from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException

from palaver.platforms.mattermost import PLATFORM
from palaver.platforms.mattermost.parse import (
    OVERLAP_MS,
    REACTIONS,
    Change,
    Frame,
    Json,
    Post,
    Us,
    changed_at,
    changes_since,
    find_page_start,
    is_by_bot,
    parse,
    parse_reaction,
    read_frame,
    read_post,
    read_posts,
    read_reaction,
    sort_posts,
)
from palaver.protocols import (
    DM,
    Attachment,
    ClientErrors,
    Inbound,
    Limits,
    Outbound,
    PlatformDown,
    PlatformError,
    Receiver,
    SendRefused,
    TargetGone,
    Trust,
    check_url,
    file_to_send,
    one_line,
    parse_or_skip,
    proxy_of,
    read_ahead,
)
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import Names
from palaver.protocols.rest import RestApi, read_receipt

Url = Annotated[str, AfterValidator(check_url("a URL, like https://chat.example.org"))]


class MattermostOptions(AccountOptions):
    url: Url = Field(description="The address of the server.")
    token: SecretStr = Field(min_length=1, description="The access token of the bot account.")


MAX_TEXT = 16_383
_EVERYBODY = re.compile(r"@(?=(?:all|channel|here)\b)", re.IGNORECASE)
_INVISIBLE = "\u200b"


def render(outbound: Outbound) -> dict[str, Any]:
    """Return the text of a post. An invisible character keeps `@all` from notifying a whole channel."""
    quiet = _EVERYBODY.sub(f"@{_INVISIBLE}", outbound.text)
    return {"message": quiet if len(quiet) <= MAX_TEXT else outbound.text.replace("@", "＠")}  # noqa: RUF001


_WRONG_TOKEN = "Mattermost rejects the access token. Make another one for the bot under Integrations, Bot Accounts."  # noqa: S105
_FIRST_LOOK_MS = 60_000
"""The first start also takes what was written in the last minute."""
_MAX_FRAME_BYTES = 4 << 20
_PAGE = 200
_MANY = 500
"""The server lists at most 1,000 changed posts, in no order, and leaves out some that we cannot see."""
_LINE = ClientErrors(title="Mattermost", raised=(OSError, WebSocketException))
_ARCHIVED = "can_not_post_to_deleted"


class MattermostAdapter:
    platform = PLATFORM
    options = MattermostOptions
    # The rest is reserved for what the gateway and the renderer add.
    limits = Limits(text=MAX_TEXT - 383, interval=0.2, announces_requests=True)

    def __init__(self, account: str, options: MattermostOptions) -> None:
        self.account = account
        self._token = options.token.get_secret_value()
        self._socket_url = f"ws{options.url.removeprefix('http')}/api/v4/websocket"
        headers = {"authorization": f"Bearer {self._token}"}
        url = f"{options.url}/api/v4"
        gone = (HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)
        self._api = RestApi("Mattermost", url, headers=headers, fix=_WRONG_TOKEN, gone=gone, explain=_explain)
        self._us = Us(account, "", "")
        self._channels: dict[str, Json] = {}
        self._people = Names(self._fetch_name)
        self._authors = Names(self._fetch_author)
        self._humans = Names(self._fetch_human)
        self._position = 0
        """Everything that changed until this time, in milliseconds, is stored."""
        self._connection = ""
        self._next = 0
        """To resume: the id of the last connection, and the number of the event that follows."""

    async def check(self) -> str:
        found = await self._api.call("GET", "/users/me")
        self._us = Us(self.account, str(found["id"]), str(found["username"]))
        return one_line(f"@{self._us.name}", 200)

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        async with self._api.opened():
            await self.check()
            self._channels.clear()
            await self._load_position(receiver)
            with _LINE.requests():
                await self._listen(receiver)
        raise PlatformDown("Mattermost closed the connection.")

    async def _load_position(self, receiver: Receiver) -> None:
        position = await receiver.load_position()
        if position is None:
            position = str(int(time.time() * 1000) - _FIRST_LOOK_MS)
            await receiver.save_position(position)
        self._position = int(position)

    async def _listen(self, receiver: Receiver) -> None:
        resume = urlencode({"connection_id": self._connection, "sequence_number": self._next})
        url = f"{self._socket_url}?{resume}" if self._connection else self._socket_url
        async with connect(url, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line:
            login = {"seq": 1, "action": "authentication_challenge", "data": {"token": self._token}}
            await line.send(json.dumps(login))
            await read_ahead(line, lambda raw: self._take(raw, receiver))

    async def _take(self, raw: str | bytes, receiver: Receiver) -> None:
        frame = parse_or_skip(self.platform.name, lambda: read_frame(raw))
        if frame is None:
            self._next += 1
        elif frame.is_login:
            await receiver.connected()
        elif frame.event == "hello":
            await self._begin(frame, receiver)
        elif frame.number > self._next:
            self._connection = ""
            raise PlatformDown("Mattermost left out events; they are read again.")
        else:
            await self._take_event(frame, receiver)
            self._next = frame.number + 1

    async def _begin(self, hello: Frame, receiver: Receiver) -> None:
        """A new connection. A resumed one has no hello: it continues with the next event."""
        await self._catch_up(receiver)
        self._connection = str(hello.data.get("connection_id") or "")
        self._next = hello.number + 1

    async def _catch_up(self, receiver: Receiver) -> None:
        """Read what was written while we were away."""
        newest = self._position
        since = newest - OVERLAP_MS
        for channel in await self._api.call("GET", "/users/me/channels"):
            where = parse_or_skip(self.platform.name, lambda channel=channel: _id_if_changed(channel, since))
            if not where:
                continue
            self._channels[where] = channel
            for post in await self._changed_posts(where, since):
                seen = parse_or_skip(self.platform.name, lambda post=post: changes_since(post, self._position))
                for change in seen or ():
                    await self._take_post(post, change, receiver)
                newest = max(newest, parse_or_skip(self.platform.name, lambda post=post: changed_at(post)) or 0)
        await self._save(newest, receiver)

    async def _changed_posts(self, channel: str, since: int) -> list[Json]:
        """Return the posts that were written, changed or deleted after a time, the oldest first.

        If they are too many for the server's list, some changes of older posts can be missing, but no new post.
        """
        found = await self._posts(channel, since=since)
        if len(found) >= _MANY:
            found += await self._new_posts(channel, since)
        return sort_posts(found)

    async def _new_posts(self, channel: str, since: int) -> list[Json]:
        found: list[Json] = []
        before = None
        start = ""
        while start != before:
            before = start
            page = await self._posts(channel, before=before, per_page=_PAGE)
            found += page
            start = find_page_start(page, since) or before
        return found

    async def _posts(self, channel: str, **asked: str | int) -> list[Json]:
        found = await self._api.call("GET", f"/channels/{quote(channel, safe='')}/posts", params=asked)
        return parse_or_skip(self.platform.name, lambda: read_posts(found)) or []

    async def _take_event(self, frame: Frame, receiver: Receiver) -> None:
        if frame.event in REACTIONS:
            await self._take_reaction(frame, receiver)
        if frame.event not in set(Change):
            return
        post = parse_or_skip(self.platform.name, lambda: read_post(frame.data))
        if post is not None:
            await self._take_post(post, Change(frame.event), receiver, frame.data.get("sender_name"))
            await self._save(parse_or_skip(self.platform.name, lambda: changed_at(post)) or 0, receiver)

    async def _take_reaction(self, frame: Frame, receiver: Receiver) -> None:
        found = parse_or_skip(self.platform.name, lambda: read_reaction(frame.data))
        if found is None:
            return
        try:
            channel = await self._channel(found["channel_id"])
        except SendRefused:
            return  # We are no longer in it.
        removed = REACTIONS[frame.event]
        now = datetime.now(UTC)
        parsed = parse_or_skip(
            self.platform.name, lambda: parse_reaction(found, channel, self._us, now, removed=removed)
        )
        if parsed is not None:
            # Posts of bots are marked, reactions are not. Without an answer it is none of a person.
            is_bot = await self._humans.get(parsed.source.user_id or "") is None
            await receiver.receive(await self._complete(parsed), Trust(is_bot=is_bot))

    async def _save(self, position: int, receiver: Receiver) -> None:
        if position > self._position:
            await receiver.save_position(str(position))
            self._position = position

    async def _take_post(self, post: Json, change: Change, receiver: Receiver, name: object = None) -> None:
        try:
            channel = await self._channel(post.get("channel_id"))
        except SendRefused:
            return  # We are no longer in it.
        now = datetime.now(UTC)
        inbound = parse_or_skip(self.platform.name, lambda: parse(Post(post, change, channel, name), self._us, now))
        if inbound is not None:
            await receiver.receive(await self._complete(inbound), Trust(is_bot=is_by_bot(post)))

    async def _channel(self, channel: object) -> Json:
        key = str(channel)
        if key not in self._channels:
            self._channels[key] = await self._api.call("GET", f"/channels/{quote(key, safe='')}")
        return self._channels[key]

    async def _complete(self, inbound: Inbound) -> Inbound:
        """Add the sender's name, and whether it is written in a thread that we began."""
        source = inbound.source
        labels = inbound.labels
        if labels.user is None and source.user_id:
            labels = replace(labels, user=await self._people.get(source.user_id))
        is_ours = inbound.mentions_us
        if source.thread_id and source.chat_kind != DM and not is_ours:
            author = await self._authors.get(source.thread_id)
            is_ours = author is not None and author.plain() == self._us.id
        return replace(inbound, labels=labels, mentions_us=is_ours)

    async def _fetch_name(self, user: str) -> object:
        found = await self._api.call("GET", f"/users/{quote(user, safe='')}")
        full = f"{found.get('first_name') or ''} {found.get('last_name') or ''}".strip()
        return found.get("nickname") or full or found["username"]

    async def _fetch_human(self, user: str) -> object:
        found = await self._api.call("GET", f"/users/{quote(user, safe='')}")
        return None if found.get("is_bot") else found["username"]

    async def _fetch_author(self, post: str) -> object:
        return (await self._api.call("GET", f"/posts/{quote(post, safe='')}"))["user_id"]

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(f"/files/{quote(file.handle or '', safe='')}")

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._post(outbound, {}, idempotency_key)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Threads have no names; the message begins one."""
        return await self.send(outbound, idempotency_key=idempotency_key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        path = f"/posts/{quote(receipt, safe='')}/patch"
        await self._api.call("PUT", path, sending=True, json=render(outbound))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content)
        body = await asyncio.to_thread(content.read_bytes)
        files = {"files": (file.name.plain() or "file", body, file.media_type)}
        uploaded = await self._api.call("POST", "/files", data={"channel_id": outbound.chat_id}, files=files)
        return await self._post(outbound, {"file_ids": [uploaded["file_infos"][0]["id"]]}, idempotency_key)

    async def typing(self, outbound: Outbound) -> None:
        where = {"channel_id": outbound.chat_id, "parent_id": outbound.thread_id or ""}
        await self._api.call("POST", "/users/me/typing", json=where)

    async def _post(self, outbound: Outbound, more: Json, key: str) -> str:
        """Post. The server knows a pending id for some seconds only, so it does not make a repetition safe."""
        pending = f"{self._us.id}:{hashlib.sha256(key.encode()).hexdigest()[:24]}"
        place = {"channel_id": outbound.chat_id, "root_id": outbound.thread_id or "", "pending_post_id": pending}
        body: dict[str, Any] = {**place, **render(outbound), **more}
        sent = await self._api.call("POST", "/posts", sending=True, json=body)
        return read_receipt("Mattermost", sent, "id")


def _id_if_changed(channel: Json, since: int) -> str:
    return str(channel["id"]) if int(channel["last_post_at"]) > since else ""


def _explain(response: httpx2.Response) -> PlatformError | None:
    """Explain an error answer; None if its status says enough."""
    try:
        answer: Any = response.json()
        what = str(answer["id"])
        words = str(answer["message"])
    except (ValueError, LookupError, TypeError):
        return None
    if _ARCHIVED in what:
        return TargetGone("The channel is archived.")
    return (
        SendRefused(f"Mattermost rejects it: {words[:200]}") if response.status_code == HTTPStatus.BAD_REQUEST else None
    )
