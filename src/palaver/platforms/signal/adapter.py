"""The Signal adapter, on a signal-cli daemon. The daemon has no acknowledgements: what it has sent, it forgets."""

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import quote

from pydantic import AfterValidator, Field, field_validator

from palaver.platforms.signal import PLATFORM
from palaver.platforms.signal.daemon import Daemon
from palaver.platforms.signal.parse import (
    Known,
    OwnAccount,
    edit_key,
    is_person,
    parse,
    render,
    split_message_id,
    target,
    undecrypted,
)
from palaver.protocols import (
    Attachment,
    BackgroundTasks,
    Inbound,
    Limits,
    Outbound,
    PlatformBusy,
    PlatformDown,
    PlatformError,
    PlatformRefused,
    Receiver,
    SendRefused,
    SendUnclear,
    StoreUnavailable,
    Trust,
    Unit,
    check_url,
    file_to_send,
    finish,
    parse_or_skip,
    read_ahead,
)
from palaver.protocols.options import AccountOptions
from palaver.protocols.recent import remember

_NUMBER = re.compile(r"\+[1-9][0-9]{4,14}")
Url = Annotated[str, AfterValidator(check_url("a URL, like http://127.0.0.1:8080"))]


class SignalOptions(AccountOptions):
    number: str = Field(description="The phone number of the account, with its country code.")
    url: Url = Field(default="http://127.0.0.1:8080", description="URL of the signal-cli daemon.")
    read_receipts: bool = Field(default=True, description="Whether people see that their message was read.")

    @field_validator("number")
    @classmethod
    def _check_number(cls, number: str) -> str:
        if not _NUMBER.fullmatch(number):
            raise ValueError("a phone number with its country code and no spaces, like +15550100200")
        return number


log = logging.getLogger(__name__)

Event: TypeAlias = bytes | Mapping[str, Any]
"""JSON, as text or decoded."""

_MAX_TEXT = 2000
"""Apps show longer messages only in part, until somebody taps them."""
_MAX_SENT_BYTES = 14_000_000
"""As base64 it is less than the longest text that signal-cli reads."""
_MAX_VERSIONS = 10
"""People can see each version of a message, and apps allow no more of them."""
_MAX_KNOWN = 1_000
_CHUNK_BYTES = 1 << 16
_PORTION = 10
_MAX_PORTIONS = 100
_PORTION_SECONDS = 1.0
"""How long signal-cli waits for another message before it answers with those that it has."""
_END_SECONDS = 5.0
_FIRST_RETRY_SECONDS = 0.05
_MAX_RETRY_SECONDS = 10.0


@dataclass
class _Sent:
    """A message of ours."""

    latest: str | None
    """When its last version was sent; None if that is unknown."""
    versions: int = 1


class SignalAdapter:
    platform = PLATFORM
    options = SignalOptions
    # 96 bytes are reserved for what the gateway adds.
    limits = Limits(text=_MAX_TEXT - 96, unit=Unit.UTF8, interval=1.0, draft_interval=6.0, announces_requests=True)

    def __init__(self, account: str, options: SignalOptions) -> None:
        self.account = account
        self._options = options
        self._daemon = Daemon(options.url, options.number)
        self._us = OwnAccount(account, options.number)
        self._uuids: dict[str, str] = {}
        self._edits: dict[str, str] = {}
        self._sent: dict[str, _Sent] = {}
        """Messages of ours, by the receipts of their versions."""

    async def check(self) -> str:
        await self._daemon.check()
        return self._daemon.number

    # Incoming

    async def run(self, receiver: Receiver) -> None:
        background = BackgroundTasks()
        async with self._daemon.opened():
            try:
                await self.check()
                self._us = self._us._replace(uuid=await self._own_uuid())
                self._edits = decode_edits(await receiver.load_position())
                process = partial(self._process, receiver=receiver, background=background)
                await self._catch_up(process)
                async with self._daemon.events() as events:
                    await receiver.connected()
                    await read_ahead(events, process, finish_within=_END_SECONDS)
                raise PlatformDown("signal-cli closed the connection.")
            finally:
                await background.end()

    async def _own_uuid(self) -> str | None:
        """Ask for our account id: some mentions have only that. It is worth no failed connection."""
        if self._us.uuid is not None:
            return self._us.uuid
        try:
            asked = {"recipient": [self._daemon.number], "allRecipients": True}
            found = await self._daemon.call("listContacts", asked)
        except PlatformError:
            return None
        own = [each.get("uuid") for each in found or () if each.get("number") == self._daemon.number]
        return own[0] if own else None

    async def _catch_up(self, process: Callable[[Event], Awaitable[None]]) -> None:
        """Take what came while nobody listened in portions, each stored before the next.

        On the stream signal-cli would write all of it at once, and a gateway that crashes then would lose it.
        """
        for _ in range(_MAX_PORTIONS):
            if await finish(self._take_portion(process), _END_SECONDS) < _PORTION:
                return

    async def _take_portion(self, process: Callable[[Event], Awaitable[None]]) -> int:
        try:
            found = await self._daemon.call("receive", {"maxMessages": _PORTION, "timeout": _PORTION_SECONDS}) or ()
        except PlatformError:  # It can be receiving for somebody else; the stream works even so.
            return 0
        for event in found:
            await process(event)
        return len(found)

    async def _process(self, event: Event, receiver: Receiver, background: BackgroundTasks) -> None:
        inbound = parse_or_skip(self.platform.name, lambda: self._parse(event))
        if inbound is not None:
            await self._store(inbound, receiver)
            if self._options.read_receipts and inbound.revision is None:
                background.run(self._confirm(inbound))

    async def _store(self, inbound: Inbound, receiver: Receiver) -> None:
        """Store a message, however long the store is away: it and those behind it come only once."""
        for attempt in count():
            try:
                await self._learn_person(inbound, receiver)
                await receiver.receive(inbound, Trust())
                return await self._learn_edit(inbound, receiver)
            except StoreUnavailable:
                await asyncio.sleep(min(_FIRST_RETRY_SECONDS * 2 ** min(attempt, 10), _MAX_RETRY_SECONDS))
        return None

    def _parse(self, event: Event) -> Inbound | None:
        found: Mapping[str, Any] = json.loads(event) if isinstance(event, bytes) else event
        if found.get("account") not in {None, self._daemon.number}:
            raise PlatformRefused(f"signal-cli serves another account than {self._daemon.number}. Change the number.")
        if why := undecrypted(found):
            log.warning("signal-cli could not decrypt a message: %.80s", why, extra={"action": "signal.not_decrypted"})
        return parse(found, self._us, Known(self._uuids, self._edits))

    async def _learn_person(self, inbound: Inbound, receiver: Receiver) -> None:
        """Remember a number's account id. Only in memory: it belongs to its person, who can ask us to forget it."""
        number = inbound.source.user_id
        uuid = inbound.source.user_id_alt
        if number and uuid and self._uuids.get(number) != uuid:
            await receiver.chat_moved(number, uuid)
            remember(self._uuids, number, uuid, _MAX_KNOWN)

    async def _learn_edit(self, inbound: Inbound, receiver: Receiver) -> None:
        """Remember what was edited: the next edit of it names only this one."""
        if inbound.revision is None or inbound.revision.deleted:
            return
        sent, author = split_message_id(inbound.source.message_id or "")
        remember(self._edits, edit_key(inbound.revision.version, author), str(sent), _MAX_KNOWN)
        await receiver.save_position(json.dumps({"edits": self._edits}))

    async def _confirm(self, inbound: Inbound) -> None:
        sent, author = split_message_id(inbound.source.message_id or "")
        await self._daemon.call("sendReceipt", {"recipient": author, "targetTimestamp": [sent], "type": "read"})

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        chat, _, name = (file.handle or "").rpartition("/")
        where = {"recipient" if is_person(chat) else "groupId": chat}
        found = await self._daemon.call("getAttachment", {"id": name, **where})
        content = base64.b64decode(found["data"])
        for start in range(0, len(content), _CHUNK_BYTES):
            yield content[start : start + _CHUNK_BYTES]

    # Outgoing

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Signal has no idempotency keys."""
        del idempotency_key
        return await self._send(outbound)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        del idempotency_key
        file = file_to_send(outbound, content, _MAX_SENT_BYTES)
        if not (encoded := base64.b64encode(await asyncio.to_thread(content.read_bytes)).decode()):
            raise SendRefused("Signal takes no empty files.")
        kind = file.media_type.partition(";")[0]
        name = quote(file.name.plain() or "file", safe="")
        return await self._send(outbound, attachments=[f"data:{kind};filename={name};base64,{encoded}"])

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        await self._revise(receipt, outbound)

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        """Return the receipt of the new version."""
        if receipt is None:
            return await self._send(outbound)
        known = self._sent.get(receipt)
        # The last version is for the whole answer.
        return receipt if known and known.versions >= _MAX_VERSIONS - 1 else await self._revise(receipt, outbound)

    async def _revise(self, receipt: str, outbound: Outbound) -> str:
        """Edit a message. Apps ignore an edit that does not name the last version, so refuse if we do not know it."""
        known = self._sent.get(receipt)
        if known is None or known.latest is None or known.versions >= _MAX_VERSIONS:
            raise SendRefused("The message cannot be changed any more.")
        before = known.latest
        known.latest = None
        try:
            known.latest = await self._call_send(outbound, editTimestamp=int(before))
        except (PlatformBusy, PlatformDown, SendRefused):
            known.latest = before
            raise
        known.versions += 1
        remember(self._sent, known.latest, known, _MAX_KNOWN)
        return known.latest

    async def _send(self, outbound: Outbound, **more: object) -> str:
        receipt = await self._call_send(outbound, **more)
        remember(self._sent, receipt, _Sent(receipt), _MAX_KNOWN)
        return receipt

    async def _call_send(self, outbound: Outbound, **more: object) -> str:
        result = await self._daemon.call("send", {**render(outbound), **more}, sending=True)
        try:
            return str(int(result["timestamp"]))
        except (KeyError, TypeError, ValueError) as error:
            raise SendUnclear("signal-cli did not say when it sent the message.") from error

    async def typing(self, outbound: Outbound) -> None:
        await self._daemon.call("sendTyping", target(outbound))


def decode_edits(text: str | None) -> dict[str, str]:
    try:
        return {str(edit): str(first) for edit, first in json.loads(text or "{}").get("edits", {}).items()}
    except (AttributeError, TypeError, ValueError):
        return {}  # not written by us
