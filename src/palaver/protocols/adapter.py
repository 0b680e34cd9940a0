"""The adapter: our code for one account on one chat platform. It knows nothing of sessions.

An adapter turns payloads into `Inbound` and `Outbound` into payloads. Optional abilities, such as editing a sent
message, are the Protocols of `palaver.protocols.capabilities`; an adapter has one by having its methods.

    PlatformError
    ├── PlatformDown            no connection; nothing was sent; reconnect later
    │   └── PlatformRefused     wrong token, missing permission: a person must act
    ├── PlatformBusy            nothing was sent; retry after `after` seconds
    │   └── TargetAway          nobody is there now; send when they come back
    ├── SendRefused             nothing was sent, and retrying would not help
    │   ├── TargetGone          the chat is gone, or we cannot write there
    │   └── ChatMoved           the chat has a new id
    └── SendUnclear             the connection was lost while sending
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Protocol

from palaver.model.attachment import StoredBlob
from palaver.model.errors import PalaverError
from palaver.model.platform import Platform
from palaver.model.source import Source, Trust
from palaver.model.split import Unit
from palaver.model.turn import Inbound, Outbound
from palaver.model.value import value


class PlatformError(PalaverError):
    """A platform did not do what we asked. The text is stored with the failure and never shown in a chat."""


class PlatformDown(PlatformError):
    """There is no connection; nothing was sent. The gateway restarts the adapter after a while.

    The text goes into the log: say what is wrong with the connection and quote no message.
    """


class PlatformRefused(PlatformDown):
    """The platform rejects us: wrong token, missing permission. Retrying soon would not help.

    The text tells a person what to do. It contains no secret.
    """


class PlatformBusy(PlatformError):
    """Nothing was sent; try again after `after` seconds."""

    def __init__(self, after: float) -> None:
        super().__init__(f"The platform asks us to wait {after:g} s.")
        self.after = after


class TargetAway(PlatformBusy):
    """Nobody is there now. The message is kept until `Receiver.chat_returned` reports that somebody is."""


class SendRefused(PlatformError):
    """Nothing was sent, and trying again would not help."""


class TargetGone(SendRefused):
    """The chat no longer exists, or we cannot write there."""


class ChatMoved(SendRefused):
    """Nothing was sent: the chat has a new id. The gateway sends it there, as after `Receiver.chat_moved`."""

    def __init__(self, new: str) -> None:
        super().__init__("The chat has a new id.")
        self.new = new


class SendUnclear(PlatformError):
    """The connection was lost while sending: the message may have arrived."""


@value
class Limits:
    """What a platform accepts."""

    text: int = 4000
    """The longest message, counted in `unit`."""
    unit: Unit = Unit.CODE_POINTS
    interval: float = 0.0
    """Seconds between two messages to one chat."""
    draft_interval: float = 1.0
    """Seconds between two updates of an answer that is still growing."""
    group_draft_interval: float | None = None
    """The same in groups and channels; None for no difference."""
    typing_has_words: bool = False
    """`typing` shows the text of its message, which says what the agent is doing. Elsewhere a message says it."""
    one_line: bool = False
    """A message is one line, as on IRC: the gateway sends each line of an answer as a message of its own."""
    one_paragraph: bool = False
    """A message is one thought, as in iMessage: the gateway sends each paragraph as a message of its own."""
    repeats_safely: bool = False
    """Sending twice under one idempotency key shows one message."""
    accepts_messages: bool = True
    """False for an account that only receives, such as a webhook without a URL to post to."""
    announces_requests: bool = False
    """Everything that shows a message awaits `request_leaves` on an open connection, before it writes to it.

    Then the gateway records there that the message may have been sent, and a crash while we connect leaves no doubt.
    Otherwise it records that before it calls the adapter. `RestApi` announces each request with `sending`.
    """


@value
class AnswerStatus:
    """The answer to a message, as far as it is known."""

    id: str
    """The gateway's id of the message: `in:42-3fa94c`."""
    is_settled: bool
    """Nothing more will follow."""
    text: str = ""
    refused: str | None = None
    """Why the message was not admitted."""
    has_failed: bool = False


class Receiver(Protocol):
    """The gateway's side of an adapter: takes messages and stores the position in the platform's stream."""

    async def connected(self) -> None:
        """Report a new connection, each time one is made."""
        ...

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Store a message durably. Acknowledge it to the platform only after this returns; if it raises, do not.

        Calls can overlap: messages of one conversation keep the order of the calls. A message whose ids are too long
        to store (`Inbound.check_ids`) is refused, which is recorded, and need not come again.
        """
        ...

    async def load_position(self) -> str | None:
        """Return what `save_position` stored last, in any process."""
        ...

    async def save_position(self, position: str) -> None: ...

    async def recent_chats(self, limit: int, *, server: str | None = None) -> Sequence[str]:
        """Return the chats that wrote to this account last, the newest first: those on a server, or those on none.

        For a platform that does not list them. They come from stored messages, so what is erased is not among them.
        """
        ...

    async def chat_returned(self, chat_id: str) -> None:
        """Report that somebody is there again: messages held back by TargetAway are sent now."""
        ...

    async def link_alias(self, alias: str, canonical: str) -> None:
        """Report that two user ids are one person: past and future messages of `alias` belong to `canonical`.

        Reporting it again costs nothing.
        """
        ...

    async def person_moved(self, old: str, new: str, at: datetime) -> None:
        """Report somebody's new user id and direct chat, and since when: what is stored of them follows, grants too.

        From then on the old id is a new person's. Grants in the configuration stay with the old id, and the owner gets
        a notice. Reporting it again costs nothing.
        """
        ...

    async def chat_moved(self, old: str, new: str, *, server: str | None = None) -> None:
        """Report a chat's new id: its conversations and pending messages continue there.

        `server` is the `scope_id` of its sources: the same chat id on another server is another chat.
        Reporting it again costs nothing.
        """
        ...

    async def is_owner(self, user_id: str) -> bool:
        """Return whether this id on the platform is an owner's."""
        ...

    async def wait_for_answer(self, source: Source, timeout: float) -> AnswerStatus | None:  # noqa: ASYNC109
        """Return the answer to a message of this account once it is settled, or its state after `timeout` seconds.

        None if no such message was received, or it has been deleted.
        """
        ...


class Adapter(Protocol):
    @property
    def platform(self) -> Platform: ...
    @property
    def account(self) -> str | None: ...
    @property
    def limits(self) -> Limits: ...

    async def run(self, receiver: Receiver) -> None:
        """Connect and hand over messages until cancelled. Raise PlatformError when the connection is lost."""
        ...

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Send one message and return the platform's id of it. Raise one of the errors above."""
        ...


class Blobs(Protocol):
    """Stores content by its hash."""

    async def keep(self, chunks: AsyncIterator[bytes], limit: int) -> StoredBlob:
        """Store the whole content durably, or nothing. Raises TooLarge beyond the limit."""
        ...

    def reading(self, sha256: str) -> AbstractAsyncContextManager[Path | None]:
        """Yield the path of the content for as long as it is read; None if it is not on this machine."""
        ...
