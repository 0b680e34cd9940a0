"""WhatsApp for one number: through a bridge to a personal number, or through the Cloud API (cloud.py)."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from http import HTTPStatus
from itertools import count
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote as escape

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from palaver.platforms.whatsapp import PLATFORM
from palaver.platforms.whatsapp.cloud import CloudAdapter, WhatsAppOptions
from palaver.platforms.whatsapp.parse import NewMessage
from palaver.platforms.whatsapp.render import MAX_FILE_BYTES, MAX_TEXT, render_text
from palaver.protocols import (
    DM,
    GROUP,
    Attachment,
    Inbound,
    Label,
    Labels,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Quote,
    Reaction,
    Receiver,
    Revision,
    SendRefused,
    SendUnclear,
    Source,
    TargetGone,
    Trust,
    Unit,
    VoiceFormat,
    after_name,
    file_to_send,
    identity_of,
    parse_or_skip,
    proxy_of,
    read_ahead,
    read_object,
    rest,
)
from palaver.protocols.files import described_file
from palaver.protocols.pending import PendingAnswers

Frame = Mapping[str, Any]
_NUMBER = re.compile(r"\+?([0-9]{4,20})(?::[0-9]+)?(?:@(?:s\.whatsapp\.net|c\.us))?")
_LID = re.compile(r"([0-9]{1,32})(?::[0-9]+)?@lid")
_MAX_WAIT_SECONDS = 3600.0


def canonical_form(identity: str) -> str:
    """Return the number in digits, or the hidden id without its device: `49170:3@s.whatsapp.net` is `49170`."""
    if number := _NUMBER.fullmatch(identity):
        return number[1]
    lid = _LID.fullmatch(identity)
    return f"{lid[1]}@lid" if lid else identity


def aliases_of(*forms: str | None) -> list[tuple[str, str]]:
    """Return each other form of a person with the canonical one: the number, if one of them is a number."""
    known = [form for given in forms if given for form in (given, canonical_form(given))]
    if not known:
        return []
    person = next((form for form in known if form.isascii() and form.isdecimal()), canonical_form(known[0]))
    return [(form, person) for form in dict.fromkeys(known) if form != person]


def parse_frame(frame: Frame, account: str, ours: AbstractSet[str]) -> NewMessage | None:
    """Parse a message, change or reaction; None if we wrote it. `ours` has the canonical ids of our own number."""
    source = _source(frame, account)
    if canonical_form(source.user_id or "") in ours:
        return None
    if frame["type"] == "reaction":
        return NewMessage(inbound=_reaction(frame, source), aliases=aliases_of(source.user_id, frame.get("from_alt")))
    text, is_named = _addressed(str(frame.get("text") or ""), ours)
    mentions = {canonical_form(str(each)) for each in frame.get("mentions") or ()}
    quote = _quote(frame, source, ours)
    inbound = Inbound(
        source=source,
        text=f"[forwarded]\n{text}" if frame.get("forwarded") else text,
        at=datetime.fromtimestamp(float(frame["at"]), UTC),
        labels=Labels(user=Label.of(frame.get("name")), chat=Label.of(frame.get("group_name"))),
        mentions_us=is_named or bool(mentions & ours) or bool(quote and quote.is_ours),
        reply_to=str(frame["reply_to"]) if frame.get("reply_to") else None,
        quote=quote if quote and quote.text else None,
        files=tuple(_files(frame.get("files") or ())),
        revision=Revision(version=str(frame["version"]), deleted=bool(frame.get("deleted")))
        if frame["type"] == "change"
        else None,
    )
    return NewMessage(inbound=inbound, aliases=aliases_of(source.user_id, frame.get("from_alt")))


def _reaction(frame: Frame, source: Source) -> Inbound:
    """`id` names the message; without an emoji the reaction is taken back."""
    emoji = str(frame.get("emoji") or "")
    return Inbound(
        source=replace(source, message_id=None),
        text="",
        at=datetime.fromtimestamp(float(frame["at"]), UTC),
        labels=Labels(user=Label.of(frame.get("name")), chat=Label.of(frame.get("group_name"))),
        reply_to=source.message_id,
        reaction=Reaction(emoji=emoji, removed=not emoji),
    )


def _source(frame: Frame, account: str) -> Source:
    """The id of a direct chat is the person's."""
    sender = _required(frame, "from")
    group = frame.get("group")
    return Source(
        platform=PLATFORM.name,
        account=account,
        chat_kind=GROUP if group else DM,
        chat_id=str(group or sender),
        user_id=sender,
        message_id=_required(frame, "id"),
    )


def _required(frame: Frame, name: str) -> str:
    found = frame[name]
    if not isinstance(found, str) or not found:
        raise ValueError(name)
    return found


def _addressed(text: str, ours: AbstractSet[str]) -> tuple[str, bool]:
    """Return the text without a mention of us in front: `@` and the part of our id before its own `@`."""
    rest = after_name(text, [f"@{each.partition('@')[0]}" for each in ours])
    return (text, False) if rest is None else (rest, True)


def _quote(frame: Frame, source: Source, ours: AbstractSet[str]) -> Quote | None:
    quoted: Frame | None = frame.get("quote")
    if not quoted:
        return None
    author = canonical_form(str(quoted.get("from") or ""))
    return Quote(
        text=str(quoted.get("text") or ""),
        author=identity_of(Source(platform=PLATFORM.name, account=source.account, user_id=author)) if author else None,
        name=Label.of(quoted.get("name")),
        is_ours=author in ours,
    )


def _files(files: Sequence[Frame]) -> Iterator[Attachment]:
    for file in files:
        yield described_file(file.get("name"), file.get("type"), file.get("size"), handle=str(file["handle"]))


def error_of(result: Frame) -> PlatformError | None:
    """Return what a failed send means; None if it was sent."""
    words = str(result.get("words") or "the bridge does not say why")[:200]
    match result.get("error"):
        case None:
            return None
        case "down":
            return PlatformDown(f"The bridge has no connection to WhatsApp: {words}")
        case "busy":
            after = result.get("after")
            return PlatformBusy(
                min(float(after), _MAX_WAIT_SECONDS) if isinstance(after, int | float) and after > 0 else 5.0
            )
        case "gone":
            return TargetGone(f"WhatsApp has no such chat, or we are not in it: {words}")
        case "refused":
            return SendRefused(f"WhatsApp rejects it: {words}")
        case _:
            return SendUnclear(f"The bridge does not know whether it was sent: {words}")


_WRONG_SECRET = "The bridge does not accept the secret. Set bridge_secret to the one that the bridge was started with."  # noqa: S105
_UNLINKED = (
    "The bridge is not linked to a number. Start it, open WhatsApp on your phone, Linked devices, and scan its code."
)
_NOT_OPEN = "The bridge has no connection to WhatsApp."
_GROUP = "@g.us"
_RESULT_SECONDS = 30.0
_MAX_FRAME_BYTES = 1 << 20


class BridgeAdapter:
    platform = PLATFORM
    # 96 characters are reserved for what the gateway adds.
    limits = Limits(text=MAX_TEXT - 96, unit=Unit.UTF16, interval=1.0, repeats_safely=True)

    def __init__(self, account: str, options: WhatsAppOptions) -> None:
        self.account = account
        self._options = options
        self._url = options.bridge_url or ""
        self._headers = {"authorization": f"Bearer {options.bridge_secret.get_secret_value()}"}
        self._api = rest.RestApi("the bridge", self._url, headers=self._headers, fix=_WRONG_SECRET)
        self._line: ClientConnection | None = None
        """While the bridge is connected to WhatsApp."""
        self._ours: frozenset[str] = frozenset()
        self._refs = count(1)
        self._results = PendingAnswers[str, Frame]()

    async def check(self) -> str:
        found = await self._api.call("GET", "/status")
        _check_state(found)
        return f"{found.get('name') or ''} {' '.join(sorted(_ids(found)))}".strip()

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        url = f"ws{self._url.removeprefix('http')}/v1"
        try:
            async with (
                self._api.opened(),
                connect(url, additional_headers=self._headers, max_size=_MAX_FRAME_BYTES, proxy=proxy_of(url)) as line,
            ):
                await read_ahead(self._read(line), partial(self._take, line=line, receiver=receiver))
        except InvalidStatus as error:
            if error.response.status_code == HTTPStatus.UNAUTHORIZED:
                raise PlatformRefused(_WRONG_SECRET) from error
            raise PlatformDown(f"The bridge answered {error.response.status_code}.") from error
        except (WebSocketException, OSError) as error:
            raise PlatformDown(f"There is no connection to the bridge: {type(error).__name__}.") from error
        finally:
            self._line = None
            self._results.fail("The connection to the bridge was lost while sending.")
        raise PlatformDown("The bridge closed the connection.")

    async def _read(self, line: ClientConnection) -> AsyncIterator[Frame]:
        """Yield frames, but settle results at once: a send does not wait until the messages before it are stored."""
        async for text in line:
            frame = parse_or_skip(self.platform.name, lambda text=text: read_object(text)) or {}
            if frame.get("type") == "result":
                self._results.settle(str(frame.get("ref")), frame)
            else:
                yield frame

    async def _take(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        match frame.get("type"):
            case "state":
                await self._change_state(frame, line, receiver)
            case "message" | "change" | "reaction":
                await self._receive(frame, line, receiver)
            case "alias":
                await self._link(frame, receiver)
            case _:
                pass  # A newer bridge can say more than we know.

    async def _change_state(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        _check_state(frame)
        self._ours = frozenset(map(canonical_form, _ids(frame)))
        self._line = line
        await receiver.connected()

    async def _receive(self, frame: Frame, line: ClientConnection, receiver: Receiver) -> None:
        """Store it, then acknowledge it: the bridge sends again what was not acknowledged."""
        message = parse_or_skip(self.platform.name, lambda: parse_frame(frame, self.account, self._ours))
        if message is not None:
            for alias, canonical in message.aliases:
                await receiver.link_alias(alias, canonical)
            await receiver.receive(message.inbound, Trust())
        await _write(line, {"type": "ack", "seq": frame.get("seq")})
        if message is not None and self._options.read_receipts and frame["type"] == "message":
            source = message.inbound.source
            read = {"type": "read", "chat": source.chat_id, "from": source.user_id, "id": source.message_id}
            await _write(line, read)

    async def _link(self, frame: Frame, receiver: Receiver) -> None:
        forms = parse_or_skip(self.platform.name, lambda: [str(each) for each in frame["ids"]])
        for alias, canonical in aliases_of(*(forms or ())):
            await receiver.link_alias(alias, canonical)

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        return self._api.download(f"/files/{escape(file.handle or '', safe='')}")

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return await self._send(outbound, {"text": render_text(outbound.text)}, idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        file = file_to_send(outbound, content, MAX_FILE_BYTES)
        body = await asyncio.to_thread(content.read_bytes)
        uploaded = await self._api.call("POST", "/files", content=body, headers={"content-type": file.media_type})
        sent = {"handle": str(uploaded["handle"]), "name": file.name.plain() or "file", "type": file.media_type}
        caption = render_text(outbound.text) if outbound.text else ""
        return await self._send(outbound, {"text": caption, "file": sent}, idempotency_key)

    def voice_format(self) -> VoiceFormat:
        return VoiceFormat.OPUS

    async def typing(self, outbound: Outbound) -> None:
        if self._line is not None:
            await _write(self._line, {"type": "typing", "to": outbound.chat_id})

    async def _send(self, outbound: Outbound, content: Mapping[str, Any], key: str) -> str:
        line = self._line
        if line is None:
            raise PlatformDown(_NOT_OPEN)
        quoted = outbound.quoted(in_group=outbound.chat_id.endswith(_GROUP))
        reply = {"reply_to": quoted} if quoted else {}
        result = await self._ask(line, {"type": "send", "key": key, "to": outbound.chat_id, **content, **reply})
        if error := error_of(result):
            raise error
        return str(result["id"])

    async def _ask(self, line: ClientConnection, frame: Frame) -> Frame:
        """Send a frame and return its result. If the connection is lost before, nobody knows whether it was sent."""
        ref = str(next(self._refs))
        try:
            with self._results.expect(ref) as result:
                async with asyncio.timeout(_RESULT_SECONDS):
                    await line.send(json.dumps({**frame, "ref": ref}))
                    return await result
        except (ConnectionClosed, TimeoutError) as error:
            raise SendUnclear(f"The bridge did not answer: {type(error).__name__}.") from error


async def _write(line: ClientConnection, frame: Frame) -> None:
    await line.send(json.dumps(frame))


def _ids(state: Frame) -> list[str]:
    found: object = state.get("ids")
    return [str(each) for each in cast("list[object]", found)] if isinstance(found, list) else []


def _check_state(state: Frame) -> None:
    match state.get("state"):
        case "open":
            return
        case "unlinked":
            raise PlatformRefused(_UNLINKED)
        case _:
            raise PlatformDown(_NOT_OPEN)


class WhatsAppAdapter:
    platform = PLATFORM
    options = WhatsAppOptions

    @staticmethod
    def make(account: str, options: WhatsAppOptions) -> BridgeAdapter | CloudAdapter:
        return BridgeAdapter(account, options) if options.bridge_url else CloudAdapter(account, options)
