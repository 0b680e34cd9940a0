"""Render and send messages and files; in an encrypted room, share the key with every member first."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import msgspec
from Crypto.Cipher import AES
from Crypto.Util import Counter
from nio.events import Event as NioEvent
from nio.responses import ErrorResponse, Response, RoomSendError, RoomSendResponse, UploadResponse
from nio.rooms import MatrixRoom

from palaver.platforms.matrix.client import API, Client, encryption_errors, request_error, send_error
from palaver.platforms.matrix.parse import AUTOMATED, EncryptedFile, Event, parse_event
from palaver.platforms.matrix.sync import DirectChats
from palaver.protocols import (
    Attachment,
    Outbound,
    PlatformBusy,
    PlatformDown,
    SendRefused,
    TargetGone,
    answer_error,
    markdown,
)

if TYPE_CHECKING:
    from nio.crypto import Olm


Content = dict[str, Any]

MAX_TEXT_BYTES = 12_000
"""An event has at most 65,536 bytes; encrypted text takes up to four times its size."""
_MAX_CONTENT_BYTES = 46_000
"""The largest content before encryption, as ASCII."""
_OURS: Content = {AUTOMATED: True, "m.mentions": {}}
"""Not m.notice, which clients show without a notification: other bots recognise us by this mark."""
_KINDS = {"image": "m.image", "audio": "m.audio", "video": "m.video"}


def message_content(outbound: Outbound) -> Content:
    """Render the text as Markdown, and as HTML if that says more. It mentions nobody."""
    return {**_text(outbound.text), **_OURS, **_relation(outbound)}


def edit_content(receipt: str, outbound: Outbound) -> Content:
    """Render an edit. The fallback for old clients is short, or the text would be in there twice."""
    return {
        "msgtype": "m.text",
        "body": "* …",
        **_OURS,
        "m.new_content": _text(outbound.text) | _OURS,
        "m.relates_to": {"rel_type": "m.replace", "event_id": receipt},
    }


def file_content(outbound: Outbound, file: Attachment, where: Content) -> Content:
    """Render a file message. `where` has its URL, and its key if it is encrypted."""
    name = file.name.stored()
    content: Content = {
        "msgtype": _KINDS.get(file.media_type.partition("/")[0], "m.file"),
        "body": outbound.text or name,
        "filename": name,
        "info": {"mimetype": file.media_type} | ({} if file.size is None else {"size": file.size}),
        **_OURS,
    }
    return content | _formatted(outbound.text) | where | _relation(outbound)


def _text(text: str) -> Content:
    return {"msgtype": "m.text", "body": text} | _formatted(text)


def _formatted(text: str) -> Content:
    """Return the HTML fields; empty if they would make the event too large."""
    html = markdown.to_html(text)
    if html is None or len(json.dumps([text, html])) > _MAX_CONTENT_BYTES:
        return {}
    return {"format": "org.matrix.custom.html", "formatted_body": html}


def _relation(outbound: Outbound) -> Content:
    """Return the thread and reply relation. In a thread the reply is only a fallback for old clients."""
    answered = {"m.in_reply_to": {"event_id": outbound.reply_to or outbound.thread_id}}
    if outbound.thread_id:
        thread = {"rel_type": "m.thread", "event_id": outbound.thread_id, "is_falling_back": True}
        return {"m.relates_to": {**thread, **answered}}
    return {"m.relates_to": answered} if outbound.reply_to else {}


_CHUNK_BYTES = 65_536
_PATHS = ("/_matrix/client/v1/media/download", "/_matrix/media/v3/download")
"""The current path, and that of older homeservers."""


async def download(client: Client, handle: str) -> AsyncIterator[bytes]:
    """Yield the content by its handle: an mxc URL, or JSON with a URL and a key."""
    if handle.startswith("mxc://"):
        async for piece in _download(client, handle):
            yield piece
        return
    try:
        keyed = msgspec.json.decode(handle, type=EncryptedFile)
        decryptor = _Decryptor(keyed)
    except (msgspec.DecodeError, KeyError, ValueError) as error:
        raise SendRefused("The message describes the file incorrectly.") from error
    async for piece in _download(client, keyed.url):
        yield decryptor.decrypt(piece)
    decryptor.check()


class _Decryptor:
    """Decrypts a file in chunks and checks its hash at the end."""

    def __init__(self, keyed: EncryptedFile) -> None:
        start = _decode_base64(keyed.iv)
        counter = Counter.new(64, prefix=start[:8], initial_value=int.from_bytes(start[8:], "big"))
        self._cipher = AES.new(_decode_base64(str(keyed.key["k"])), AES.MODE_CTR, counter=counter)
        self._expected = _decode_base64(keyed.hashes["sha256"])
        self._seen = hashlib.sha256()

    def decrypt(self, piece: bytes) -> bytes:
        self._seen.update(piece)
        return self._cipher.decrypt(piece)

    def check(self) -> None:
        if self._seen.digest() != self._expected:
            raise SendRefused("The file is not the one that was sent: its hash differs.")


def _decode_base64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text.replace("+", "-").replace("/", "_") + "=" * (-len(text) % 4))


async def _download(client: Client, address: str) -> AsyncGenerator[bytes]:
    server, _, name = address.removeprefix("mxc://").partition("/")
    if not server or not name:
        raise SendRefused("The message has no address for the file.")
    headers = {"Authorization": f"Bearer {client.access_token}"}
    with API.requests():
        for path in _PATHS:
            where = f"{path}/{quote(server, safe='')}/{quote(name, safe='')}"
            # No timeout: a large file takes long, and the caller has a limit of its own.
            response = await client.send("GET", where, None, headers, timeout=0)
            if response.ok:
                async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                    yield piece
                return
            response.release()
            problem = answer_error("The homeserver", response.status, sending=False)
            if not isinstance(problem, SendRefused):
                raise problem
    raise SendRefused("The homeserver does not have the file.")


async def upload(client: Client, file: Attachment, content: Path, *, encrypt: bool) -> dict[str, Any]:
    """Upload a file and return the event fields that locate it."""
    size = content.stat().st_size  # noqa: ASYNC240 - quick
    with API.requests(), content.open("rb") as opened:
        answer, keyed = await client.upload(opened, file.media_type, encrypt=encrypt, filesize=size)
    if not isinstance(answer, UploadResponse):
        status = getattr(answer.transport_response, "status", 0)
        refused = SendRefused(f"The homeserver rejects the file ({answer.status_code or status}).")
        raise request_error(answer, status) or refused
    return {"file": {**keyed, "url": answer.content_uri}} if keyed else {"url": answer.content_uri}


class RoomSender:
    """Prepares encryption itself: nio would ignore errors of the homeserver there."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._lock = asyncio.Lock()

    async def send(self, room_id: str, content: Content, key: str | None) -> RoomSendResponse | RoomSendError:
        room = self._client.rooms.get(room_id)
        olm = self._client.olm
        if room is None or not room.encrypted or olm is None:
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)
        async with self._lock:
            with API.requests():
                await self._prepare(room, olm)
            return await self._client.room_send(room_id, "m.room.message", content, tx_id=key)

    async def _prepare(self, room: MatrixRoom, olm: "Olm") -> None:
        if not room.members_synced:
            _raise_if_error(await self._client.joined_members(room.room_id))
        if self._client.users_for_key_query & room.users.keys():
            _raise_if_error(await self._client.keys_query())
        if olm.should_share_group_session(room.room_id):
            await self._share(room, olm)

    async def _share(self, room: MatrixRoom, olm: "Olm") -> None:
        if missing := self._client.get_missing_sessions(room.room_id):
            _raise_if_error(await self._client.keys_claim({**missing}))
        sessions = olm.outbound_group_sessions
        try:
            for devices, messages in olm.share_group_session_parallel(
                room.room_id, [*room.users], ignore_unverified_devices=True
            ):
                await self._send_keys(messages)
                sessions[room.room_id].users_shared_with.update(devices)
            sessions[room.room_id].shared = True
        except BaseException:
            # A member who got the key can have left by the next attempt: make a new one.
            sessions.pop(room.room_id, None)
            raise

    async def _send_keys(self, messages: Content) -> None:
        path = ("sendToDevice", "m.room.encrypted", str(uuid4()))
        if await self._client.ask("PUT", *path, body=messages) is None:
            raise PlatformDown("The homeserver does not forward the keys of an encrypted room.")


def _raise_if_error(answer: Response | ErrorResponse) -> None:
    if isinstance(answer, ErrorResponse):
        status = getattr(answer.transport_response, "status", 0)
        raise request_error(answer, status) or PlatformDown(f"Preparing the encryption failed: {status}")


_TYPING_MS = 30_000
_SYNC_WAIT_SECONDS = 1.0


class MessageSender:
    def __init__(self, client: Client, direct: DirectChats, sender: RoomSender) -> None:
        self._client = client
        self._direct_chats = direct
        self._room_sender = sender

    async def send(self, outbound: Outbound, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        return await self._send(room_id, message_content(self._with_reply(room_id, outbound)), key)

    async def send_file(self, outbound: Outbound, file: Attachment, content: Path, key: str) -> str:
        room_id = await self._room(outbound.chat_id)
        where = await upload(self._client, file, content, encrypt=await self._is_encrypted(room_id))
        return await self._send(room_id, file_content(self._with_reply(room_id, outbound), file, where), key)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not receipt.startswith("$"):
            raise SendRefused("There is no such message.")
        await self._send(await self._room(outbound.chat_id), edit_content(receipt, outbound), None)

    async def typing(self, outbound: Outbound) -> None:
        with API.requests():
            await self._client.room_typing(await self._room(outbound.chat_id), timeout=_TYPING_MS)

    async def mark_read(self, room_id: str, event_id: str) -> None:
        await self._client.room_read_markers(room_id, event_id, event_id)

    async def find_event(self, room_id: str, event_id: str) -> Event | None:
        """Return an event of a room, decrypted if we can; None if there is none that we may see."""
        found = await self._client.ask("GET", "rooms", room_id, "event", event_id)
        if found is None:
            return None
        if found.get("type") == "m.room.encrypted":
            encrypted = NioEvent.parse_encrypted_event({**found, "room_id": room_id})  # pyright: ignore[reportUnknownMemberType]
            decrypted = self._client.read(encrypted)
            found = found if decrypted is None else decrypted.source
        return parse_event(found)

    def _with_reply(self, room_id: str, outbound: Outbound) -> Outbound:
        """Leave out a reply that is not wanted: in a direct chat it is clear what an answer is to."""
        room = self._client.rooms.get(room_id)
        in_group = not (room and self._direct_chats.is_direct(room))
        return replace(outbound, reply_to=outbound.quoted(in_group=in_group))

    async def _send(self, room_id: str, content: Content, key: str | None) -> str:
        await self._is_encrypted(room_id)
        with encryption_errors(), API.sends():
            answer = await self._room_sender.send(room_id, content, key)
        if isinstance(answer, RoomSendResponse):
            return answer.event_id
        raise send_error(answer)

    async def _is_encrypted(self, room_id: str) -> bool:
        """Return whether the room is encrypted; raise if we cannot encrypt, so that nothing goes out as plain text."""
        room = self._client.rooms.get(room_id)
        if room is None:
            # A room that we have only just joined is known after the next sync.
            joined = await self._client.ask("GET", "joined_rooms") or {}
            is_in = room_id in joined.get("joined_rooms", ())
            raise PlatformBusy(_SYNC_WAIT_SECONDS) if is_in else TargetGone("We are not in this room.")
        if room.encrypted and not self._client.olm:
            raise SendRefused("The room is encrypted. Configure keys for the account.")
        return room.encrypted

    async def _room(self, chat_id: str) -> str:
        """Resolve a target: a room id, a room alias, or a person."""
        if chat_id.startswith("@"):
            return await self._direct_chats.room_with(chat_id)
        if not chat_id.startswith("#"):
            return chat_id
        found = await self._client.ask("GET", "directory", "room", chat_id)
        if found is None:
            raise TargetGone(f"There is no room {chat_id}.")
        return str(found.get("room_id"))
