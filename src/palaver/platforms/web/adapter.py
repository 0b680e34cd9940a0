"""The adapters of the web server, for the HTTP API and the web chat.

Answers stay in the outbox, where programs and browsers read them, now or later: a send never fails because nobody is
there. Open browsers are shown them at once.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from uuid import uuid4

from palaver.model.attachment import Attachment
from palaver.model.errors import BadArgument
from palaver.model.label import Label
from palaver.model.redact import mask_keys
from palaver.model.source import Labels, Source, Trust, encode_id
from palaver.model.turn import Inbound, Outbound
from palaver.model.value import value
from palaver.platforms.web import API, PLATFORM
from palaver.protocols.adapter import Blobs, Limits, PlatformDown, Receiver, SendRefused
from palaver.protocols.clock import Clock
from palaver.protocols.recent import remember

MAX_TEXT_LENGTH = 200_000
MAIN_CHAT = "main"
_MAX_ID_LENGTH = 100
_CHUNK_BYTES = 1 << 16


@value
class ChatUpdate:
    """An update for the browsers that show a chat."""

    chat: str
    id: str
    """The same for every state of one message, while it grows."""
    text: str = ""
    is_mine: bool = False
    grows: bool = False
    is_typing: bool = False


Receive = Callable[[Inbound, Trust], Awaitable[None]]


def chat_of(user: str, name: str) -> str:
    """Return a chat id that contains its user, so that equal names of two people never meet: `owner/plans`."""
    return encode_id(user) if name == MAIN_CHAT else f"{encode_id(user)}/{encode_id(name)}"


def user_of(chat: str) -> str:
    """Return the encoded user id in a chat id."""
    return chat.partition("/")[0]


class ApiAdapter:
    """Sends nothing itself: messages come in through the engine, at any gateway."""

    platform = API
    account: str | None = None
    limits = Limits(text=MAX_TEXT_LENGTH, repeats_safely=True)

    def __init__(self, shelf: Blobs | None = None) -> None:
        self._shelf = shelf

    async def run(self, receiver: Receiver) -> None:
        await receiver.connected()
        await asyncio.Event().wait()

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Use the idempotency key as the receipt, so that a repeated send shows nothing twice."""
        del outbound
        return idempotency_key

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """Programs and browsers read the content from the blob store."""
        del content
        return await self.send(outbound, idempotency_key=idempotency_key)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        if self._shelf is None:
            raise SendRefused("files are not stored here")
        async with self._shelf.reading(file.handle or "") as path:
            if path is None:
                raise SendRefused("the file is no longer stored")
            with path.open("rb") as content:
                while chunk := content.read(_CHUNK_BYTES):
                    yield chunk


class WebAdapter(ApiAdapter):
    platform = PLATFORM
    limits = Limits(text=MAX_TEXT_LENGTH, draft_interval=0.1, typing_has_words=True, repeats_safely=True)

    def __init__(
        self,
        clock: Clock,
        *,
        push: Callable[[ChatUpdate], None],
        shelf: Blobs | None = None,
        receive: Receive | None = None,
    ) -> None:
        super().__init__(shelf)
        self._clock = clock
        self._push = push
        self._receive = receive
        """Takes messages while another gateway serves the account; without it the receiver does."""
        self._receiver: Receiver | None = None
        self._receipts: dict[str, None] = {}
        """Receipts that this process has shown."""

    async def run(self, receiver: Receiver) -> None:
        self._receiver = receiver
        try:
            await super().run(receiver)
        finally:
            self._receiver = None

    # Messages in

    async def say(
        self,
        user: str,
        chat: str,
        message: str,
        text: str,
        *,
        name: str = "",
        files: Sequence[Attachment] = (),
        talk_only: bool = False,
    ) -> Source:
        """Accept a message; it is stored when this returns. The same message id is the same message."""
        if not 1 <= len(message) <= _MAX_ID_LENGTH or len(text) > MAX_TEXT_LENGTH:
            allowed = f"at most {MAX_TEXT_LENGTH} characters, with an id of 1 to {_MAX_ID_LENGTH}"
            found = f"{len(text)} characters, with an id of {len(message)}"
            raise BadArgument("A message cannot have", found=found, allowed=allowed, example="hello")
        source = self.source(user, chat, message)
        labels = Labels(user=Label.of(name))
        inbound = Inbound(
            source=source, text=text, at=self._clock.now(), labels=labels, files=tuple(files), plain=talk_only
        )
        receive = self._receive or (self._receiver.receive if self._receiver else None)
        if receive is None:
            raise PlatformDown("the web chat is not being served")
        await receive(inbound, Trust(talk_only=talk_only))
        self._push(ChatUpdate(chat=source.chat_id or "", id=message, text=mask_keys(text), is_mine=True))
        return source

    def source(self, user: str, chat: str, message: str | None = None) -> Source:
        return Source(platform=self.platform.name, chat_id=chat_of(user, chat), user_id=user, message_id=message)

    async def keep(self, name: str, media_type: str, chunks: AsyncIterator[bytes], limit: int) -> Attachment:
        """Store a file for the next message."""
        if self._shelf is None:
            raise BadArgument("This gateway does not accept files:", found=name, allowed="text", example="hello")
        kept = await self._shelf.keep(chunks, limit)
        return Attachment(Label(name), media_type, kept.size, handle=kept.sha256)

    # Messages out

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        return self._show(outbound, idempotency_key)

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        return self._show(outbound, receipt or uuid4().hex, grows=True)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if receipt not in self._receipts:
            raise SendRefused("this message was never shown")
        self._show(outbound, receipt)

    async def typing(self, outbound: Outbound) -> None:
        self._push(ChatUpdate(chat=outbound.chat_id, id="", is_typing=True))

    def _show(self, outbound: Outbound, receipt: str, *, grows: bool = False) -> str:
        remember(self._receipts, receipt, None)
        self._push(ChatUpdate(chat=outbound.chat_id, id=receipt, text=outbound.text, grows=grows))
        return receipt
