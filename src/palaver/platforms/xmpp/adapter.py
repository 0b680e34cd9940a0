"""The adapter for XMPP. Archives bring what was written while we were away; what is stored is acknowledged."""

import hashlib
import re
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement

from palaver.platforms.xmpp import PLATFORM
from palaver.platforms.xmpp import parse as stanzas
from palaver.platforms.xmpp.archive import Place, Position, read_archive, read_position, upload, write_position
from palaver.platforms.xmpp.parse import CLIENT, HINTS, RECEIPTS, Stored, Us, parse, read_live, wants_receipt
from palaver.platforms.xmpp.stream import Live, Stream, XmppOptions, connected
from palaver.protocols import (
    Attachment,
    Inbound,
    Limits,
    Outbound,
    PlatformDown,
    Receiver,
    Revision,
    SendRefused,
    TargetGone,
    Trust,
    Unit,
    file_to_send,
    parse_or_skip,
    read_ahead,
    run_together,
)
from palaver.protocols.files import send_text_of_file
from palaver.protocols.recent import remember
from palaver.protocols.rest import RestApi

_FIRST_LOOK = timedelta(minutes=1)
"""The first start also takes what was written in the last minute."""
_RECENT = 1_000
_OUR_ID = re.compile("[0-9a-f]{32}")
_TARGET = re.compile(r"[^\s@/]+@[^\s@/]+(?:/.+)?")


class XmppAdapter:
    platform = PLATFORM
    options = XmppOptions
    # Servers take at least 10,000 bytes for all of a message. Each correction is a message of its own, so few of them.
    limits = Limits(
        text=8_000, unit=Unit.UTF8, interval=0.5, draft_interval=4.0, group_draft_interval=8.0, announces_requests=True
    )

    def __init__(self, account: str, options: XmppOptions) -> None:
        self.account = account
        self._options = options
        self._stream: Stream | None = None
        self._position: Position = {}
        self._ids: dict[str, str] = {}
        """The message behind an id that a room gave it, for replies and deletions."""
        self._stored: dict[tuple[str | None, str, Revision | None], None] = {}
        """What was stored a short while ago."""
        self._api = RestApi("the file server", "")

    async def check(self) -> str:
        """Log in, next to the running gateway if there is one."""
        async with connected(self._options):
            return self._options.jid

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        self._position = await self._load(receiver)
        async with connected(self._options) as stream:
            stream.write(Element(f"{{{CLIENT}}}presence"))
            entered = [room for room in self._options.rooms if await self._enter(room, stream)]
            self._stream = stream
            try:
                await receiver.connected()
                await run_together(self._read(stream, ["", *entered], receiver), stream.keep_pinging())
            finally:
                self._stream = None
        raise PlatformDown("The XMPP server closed the connection.")

    async def _enter(self, room: str, stream: Stream) -> bool:
        place = self._position[room]
        return await stream.rooms.enter(room, self._options.room_nick, None if place.id else place.at)

    async def _read(self, stream: Stream, archives: list[str], receiver: Receiver) -> None:
        for archive in archives:
            async with aclosing(read_archive(stream, archive, self._position[archive])) as found:
                async for stored in found:
                    await self._take(stored, stream, receiver)
        async with aclosing(stream.messages()) as messages:
            await read_ahead(messages, lambda live: self._take_live(live, stream, receiver))

    async def _load(self, receiver: Receiver) -> Position:
        saved = await receiver.load_position()
        position = parse_or_skip(self.platform.name, lambda: read_position(saved)) or {}
        start = Place("", datetime.now(UTC) - _FIRST_LOOK)
        known = {archive: position.get(archive, start) for archive in ("", *self._options.rooms)}
        if known != position:
            await receiver.save_position(write_position(known))
        return known

    async def _take_live(self, live: Live, stream: Stream, receiver: Receiver) -> None:
        us = self._us(stream)
        stored = parse_or_skip(self.platform.name, lambda: read_live(live.message, us, live.jid))
        if stored is not None:
            await self._take(stored, stream, receiver)
        stream.stored(live)

    async def _take(self, stored: Stored, stream: Stream, receiver: Receiver) -> None:
        inbound = parse_or_skip(self.platform.name, lambda: self._parse(stored, stream))
        if inbound is not None:
            before = self._position.get(stored.archive)
            # An archive has its messages in order, but often tells their times in whole seconds.
            inbound = replace(inbound, at=max(inbound.at, before.at)) if before else inbound
            # An archive, the server and a room can each bring the same message after a connection.
            known = inbound.source.chat_id, inbound.source.message_id or "", inbound.revision
            if known not in self._stored:
                await receiver.receive(inbound, Trust())
                self._confirm(stored.message, stream)
            if inbound.source.message_id:
                remember(self._stored, known, None, _RECENT)
            await self._note(stored, inbound, receiver)

    def _parse(self, stored: Stored, stream: Stream) -> Inbound | None:
        return parse(stored, self._us(stream), self._id_of, datetime.now(UTC))

    async def _note(self, stored: Stored, inbound: Inbound, receiver: Receiver) -> None:
        """Remember how far we have read, and the id that a room gave the message."""
        if stored.archive and stored.archive_id and inbound.source.message_id:
            remember(self._ids, stored.archive_id, inbound.source.message_id, _RECENT)
        if stored.archive_id and stored.archive in self._position:
            self._position[stored.archive] = Place(stored.archive_id, inbound.at)
            await receiver.save_position(write_position(self._position))

    def _confirm(self, message: Element, stream: Stream) -> None:
        """Tell the sender that we have stored it, if they want to know."""
        wanted = wants_receipt(message)
        if wanted is not None:
            receipt = Element(f"{{{CLIENT}}}message", to=message.attrib["from"], type=message.get("type", "normal"))
            SubElement(receipt, f"{{{RECEIPTS}}}received", id=wanted)
            SubElement(receipt, f"{{{HINTS}}}store")
            stream.write(receipt)

    def _us(self, stream: Stream) -> Us:
        options = self._options
        nicks = {room: stream.rooms.nicks.get(room, options.room_nick) for room in options.rooms}
        return Us(self.account, options.jid, nicks, stream.rooms.ids, options.threads, tuple(options.file_hosts))

    def _id_of(self, given: str) -> str:
        return self._ids.get(given, given)

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(file.handle or "")

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        message_id = _id_for(idempotency_key)
        built = stanzas.message(outbound, message_id, in_room=self._is_room(outbound))
        return await self._say(built)

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Threads have no names: one begins with the first message that names its id."""
        thread = _id_for(idempotency_key)
        await self.send(replace(outbound, thread_id=thread), idempotency_key=idempotency_key)
        return thread

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if not _OUR_ID.fullmatch(receipt):
            raise SendRefused("There is no such message.")
        in_room = self._is_room(outbound)
        correction = _id_for(f"{receipt} {outbound.text}")
        await self._say(stanzas.message(outbound, correction, in_room=in_room, replaces=receipt))

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content)
        url = await upload(self._connected(), self._api, file, content)
        in_room = self._is_room(outbound)
        message_id = _id_for(idempotency_key)
        receipt = await self._say(stanzas.file_message(outbound, message_id, url, file, in_room=in_room))
        await send_text_of_file(outbound, lambda: self.send(outbound, idempotency_key=f"{idempotency_key} text"))
        return receipt

    async def typing(self, outbound: Outbound) -> None:
        message_id = _id_for(f"typing {outbound.chat_id}")
        stream = self._connected()
        stream.write(self._address(stanzas.typing(outbound, message_id, in_room=self._is_room(outbound)), stream))

    async def _say(self, message: Element) -> str:
        stream = self._connected()
        given = await stream.say(self._address(message, stream))
        if given:
            remember(self._ids, given, message.attrib["id"], _RECENT)
        return message.attrib["id"]

    def _address(self, message: Element, stream: Stream) -> Element:
        chat = message.attrib["to"]
        to = stream.rooms.address_of(chat) if _TARGET.fullmatch(chat) else None
        if to is None:
            raise TargetGone("There is no such address, or the person has left the room.")
        message.set("to", to)
        return message

    def _connected(self) -> Stream:
        if self._stream is None:
            raise PlatformDown("There is no connection to the XMPP server.")
        return self._stream

    def _is_room(self, outbound: Outbound) -> bool:
        return outbound.chat_id.lower() in self._options.rooms


def _id_for(key: str) -> str:
    """Return the id of a message; a repetition has the same, so that clients can recognise it."""
    return hashlib.sha256(key.encode()).hexdigest()[:32]
