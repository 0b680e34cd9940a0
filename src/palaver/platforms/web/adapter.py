"""The web chat's adapter: what was sent is in the outbox, and so it is there for whoever comes.

Browsers that are open are told at once; one that is closed finds everything when it comes back. So nobody is ever away.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from uuid import uuid4

from palaver.model.attachment import Attachment
from palaver.model.errors import BadArgument
from palaver.model.ids import encode_id
from palaver.model.label import Label
from palaver.model.source import Labels, Source, Trust
from palaver.model.turn import Inbound, Outbound
from palaver.model.value import value
from palaver.platforms.catalog import PLATFORMS
from palaver.protocols.adapter import Blobs, Limits, PlatformDown, Receiver, SendRefused
from palaver.protocols.clock import Clock

__all__ = ["LONGEST_TEXT", "MAIN_CHAT", "Shown", "WebAdapter", "chat_of", "user_of"]

LONGEST_TEXT = 200_000
MAIN_CHAT = "main"
_MOST_KNOWN = 10_000
_LONGEST_ID = 100
_PIECE = 1 << 16


@value
class Shown:
    """Something for the browsers that show a chat."""

    chat: str
    id: str
    """The same for every state of one message."""
    text: str = ""
    is_mine: bool = False
    grows: bool = False
    is_typing: bool = False


Receive = Callable[[Inbound, Trust], Awaitable[None]]


def chat_of(user: str, name: str) -> str:
    """Every chat is somebody's, so that two people who call theirs alike do not meet in it: `owner`, `owner/plans`."""
    return encode_id(user) if name == MAIN_CHAT else f"{encode_id(user)}/{encode_id(name)}"


def user_of(chat: str) -> str:
    """Whose chat it is, as text that is safe everywhere."""
    return chat.partition("/")[0]


class WebAdapter:
    platform = PLATFORMS["web"]
    account: str | None = None
    limits = Limits(text=LONGEST_TEXT, draft_interval=0.1, repeats_safely=True)

    def __init__(
        self,
        clock: Clock,
        *,
        tell: Callable[[Shown], None],
        shelf: Blobs | None = None,
        receive: Receive | None = None,
    ) -> None:
        self._clock = clock
        self._tell = tell
        self._shelf = shelf
        self._receive = receive
        """Takes messages also while another gateway serves the account; without it the inlet does."""
        self._receiver: Receiver | None = None
        self._known: OrderedDict[str, None] = OrderedDict()
        """Receipts that browsers have been told of by this process."""

    async def run(self, receiver: Receiver) -> None:
        self._receiver = receiver
        try:
            await receiver.connected()
            await asyncio.Event().wait()
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
        """What somebody wrote; said again under the same id it is the same message. Safe when it returns."""
        if not 1 <= len(message) <= _LONGEST_ID or len(text) > LONGEST_TEXT:
            allowed = f"at most {LONGEST_TEXT} characters, under an id of 1 to {_LONGEST_ID}"
            raise BadArgument(
                "A message cannot have", found=f"{len(text)} characters", allowed=allowed, example="hello"
            )
        source = self.source(user, chat, message)
        labels = Labels(user=Label(name)) if name else Labels()
        inbound = Inbound(
            source=source, text=text, at=self._clock.now(), labels=labels, files=tuple(files), plain=talk_only
        )
        receive = self._receive or (self._receiver.receive if self._receiver else None)
        if receive is not None:
            await receive(inbound, Trust(talk_only=talk_only))
        else:
            raise PlatformDown("nobody listens now")
        self._tell(Shown(chat=source.chat_id or "", id=message, text=text, is_mine=True))
        return source

    def source(self, user: str, chat: str, message: str | None = None) -> Source:
        return Source(platform=self.platform.name, chat_id=chat_of(user, chat), user_id=user, message_id=message)

    async def keep(self, name: str, media_type: str, chunks: AsyncIterator[bytes], limit: int) -> Attachment:
        """A file that will come with a message: it is safe before the message is."""
        if self._shelf is None:
            raise BadArgument("Files are not taken here, not even", found=name, allowed="text", example="hello")
        kept = await self._shelf.keep(chunks, limit)
        return Attachment(Label(name), media_type, kept.size, handle=kept.sha256)

    async def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        place = self._shelf.place(file.handle or "") if self._shelf else None
        if place is None:
            raise SendRefused("it is not here any more")
        with place.open("rb") as content:
            while piece := content.read(_PIECE):
                yield piece

    # Messages out

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """The receipt is the key: whoever has shown it does not show it twice."""
        return self._show(outbound, idempotency_key)

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """The content stays where it is: the page reads it from there."""
        del content
        return self._show(outbound, idempotency_key)

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        return self._show(outbound, receipt or uuid4().hex, grows=True)

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        if receipt not in self._known:
            raise SendRefused("no browser was told of this message")
        self._show(outbound, receipt)

    async def typing(self, outbound: Outbound) -> None:
        self._tell(Shown(chat=outbound.chat_id, id="", is_typing=True))

    def _show(self, outbound: Outbound, receipt: str, *, grows: bool = False) -> str:
        self._known[receipt] = None
        self._known.move_to_end(receipt)
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        self._tell(Shown(chat=outbound.chat_id, id=receipt, text=outbound.text, grows=grows))
        return receipt
