"""The adapter: one account of ours on one chat platform. It knows nothing of sessions.

An adapter turns payloads into `Inbound` and `Outbound` into payloads. What it can do beyond that, it shows by having
the methods of a capability: `Typing`, `Editing`.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar, runtime_checkable

from typing_extensions import TypeIs

from palaver.model.attachment import Attachment, StoredBlob
from palaver.model.errors import PalaverError
from palaver.model.platform import Platform
from palaver.model.source import Source, Trust
from palaver.model.split import Unit
from palaver.model.target import Place
from palaver.model.turn import Inbound, Outbound
from palaver.model.value import value
from palaver.protocols.hooks import Happening

__all__ = [
    "Adapter",
    "Answer",
    "Blobs",
    "Call",
    "ChatMoved",
    "Check",
    "Checking",
    "Drafting",
    "Editing",
    "Fetching",
    "Files",
    "Forwarding",
    "Guide",
    "Inlet",
    "Limits",
    "Listening",
    "Menu",
    "MenuLine",
    "Pacing",
    "PlatformBusy",
    "PlatformDown",
    "PlatformError",
    "PlatformRefused",
    "Question",
    "Receiving",
    "Reply",
    "SendRefused",
    "SendUnclear",
    "TargetAway",
    "TargetGone",
    "Threading",
    "Typing",
    "Watching",
    "able",
]


@dataclass(frozen=True, kw_only=True)
class Check:
    name: str
    ok: bool
    found: str
    mend: str = ""


T = TypeVar("T")


def able(thing: object, ability: type[T]) -> TypeIs[T]:
    """Whether it has the methods of a capability. A class that has them once has them always, so it is asked once."""
    return _has(type(thing), ability)


@lru_cache(512)
def _has(kind: type, ability: type) -> bool:
    return issubclass(kind, ability)


@value
class Question:
    option: str
    """Which option of the account the answer is."""
    asks: str
    help: str = ""
    """Said before: how one comes to an answer."""
    usual: str = ""
    """The answer where nothing is said. `{folder}` stands for that of the configuration, `{account}` for its name."""
    needed: bool = True
    """Whether there has to be an answer."""
    unless: str = ""
    """It is not asked where this other option was given."""
    where: str = ""
    """It is asked only where this other option was given; empty for always."""
    make: Callable[[], str] | None = None
    """Where nothing is said, the answer is made: a new secret."""


@value
class Guide:
    questions: Sequence[Question]
    before: str = ""
    """What to do on the platform first."""
    after: str = ""
    """What is good to know once it works; `{account}` stands for its name."""
    owner: str = ""
    """Where people talk: how they find out under which id they are known there."""
    owner_form: str = ""
    """A regular expression that such an id matches, all of it; empty where any may be one."""
    owner_example: str = ""


class PlatformError(PalaverError):
    """A platform did not do what it was asked. The words are kept with what failed, never shown in a chat."""


class PlatformDown(PlatformError):
    """There is no connection; nothing was sent. The adapter is started again after a while.

    Its words go into the log: they say what is wrong with the connection, and quote no message.
    """


class PlatformRefused(PlatformDown):
    """The platform does not take us: a wrong token, a right that is missing. Trying again soon would not help.

    Its words say what a person has to do. They name no secret.
    """


class PlatformBusy(PlatformError):
    """Nothing was sent; it may be tried again after that many seconds."""

    def __init__(self, after: float) -> None:
        super().__init__(f"the platform asks to wait {after:g} s")
        self.after = after


class TargetAway(PlatformBusy):
    """Nobody is there now; whoever comes back gets it, however late. `Inlet.is_back` says that somebody has."""


class SendRefused(PlatformError):
    """Nothing was sent, and trying again would not help."""


class TargetGone(SendRefused):
    """The chat does not exist any more, or we may not write there."""


class ChatMoved(SendRefused):
    """Nothing was sent: the chat has another id by now. It is sent there at once, as if `Inlet.chat_moved` was said."""

    def __init__(self, new: str) -> None:
        super().__init__("the chat has another id by now")
        self.new = new


class SendUnclear(PlatformError):
    """The connection was lost while sending: nobody knows whether it arrived."""


@value
class Limits:
    """What a platform puts up with."""

    text: int = 4000
    """The longest message."""
    unit: Unit = Unit.CODE_POINTS
    """What the length is counted in."""
    interval: float = 0.0
    """Seconds between two messages to one chat."""
    draft_interval: float = 1.0
    """Seconds between two states of answers that grow in a chat."""
    repeats_safely: bool = False
    """It knows an idempotency key again, so sending twice under one key shows one message."""


@value
class Answer:
    """What has come of a message so far."""

    id: str
    """What the message is called here: `in:42`."""
    is_settled: bool
    """Nothing more comes by itself."""
    text: str = ""
    refused: str | None = None
    """Why it was not let in."""
    has_failed: bool = False


class Inlet(Protocol):
    """What an adapter is handed while it runs: where messages go, and a place to remember how far it has read."""

    async def connected(self) -> None:
        """The connection stands; to be said each time that it was made."""
        ...

    async def receive(self, inbound: Inbound, trust: Trust) -> None:
        """Returns when the message is safe; only then may the platform be told so. It raises if it is not.

        Several may be handed over at once: those of one conversation are taken in the order of the calls. A message
        whose ids are too long to be kept, see `Inbound.check_ids`, is left out, and need not come again.
        """
        ...

    async def position(self) -> str | None:
        """How far the stream of the platform was read, as `keep_position` was told last, in any process."""
        ...

    async def keep_position(self, position: str) -> None: ...

    async def is_back(self, chat_id: str) -> None:
        """Somebody is there again: what a TargetAway has put off is sent now."""
        ...

    async def knows_as(self, alias: str, canonical: str) -> None:
        """Two ids of this platform are one person: whatever comes under the alias is of the canonical id from now on.

        What was said under the alias goes on under the canonical id. Saying it again costs nothing.
        """
        ...

    async def chat_moved(self, old: str, new: str) -> None:
        """A chat has another id from now on: its conversations, and what is still owed to it, go on there.

        Saying it again costs nothing.
        """
        ...

    async def answer(self, source: Source, within: float) -> Answer | None:
        """What came of a message of this account, as soon as it is settled, at the latest after that many seconds.

        None where no such message has come, or nothing is left of it.
        """
        ...


class Adapter(Protocol):
    @property
    def platform(self) -> Platform: ...
    @property
    def account(self) -> str | None: ...
    @property
    def limits(self) -> Limits: ...

    async def run(self, inlet: Inlet) -> None:
        """Connect and hand over messages until cancelled. Raises PlatformError when the connection is lost."""
        ...

    async def send(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Send one message and give the platform's id of it. Raises one of the errors above."""
        ...


@runtime_checkable
class Typing(Protocol):
    """Platforms that can show that somebody is writing."""

    async def typing(self, outbound: Outbound) -> None: ...


@runtime_checkable
class Editing(Protocol):
    """Platforms on which a sent message can change. Editing twice to the same text does no harm."""

    async def edit(self, receipt: str, outbound: Outbound) -> None:
        """Raises SendRefused where the message cannot be changed any more."""
        ...


@runtime_checkable
class Threading(Protocol):
    """Platforms on which we can begin a thread."""

    async def open_thread(self, outbound: Outbound, *, idempotency_key: str) -> str:
        """Begin a thread called `outbound.opens` in the chat, with this message in it, and give its id.

        Raises SendRefused where the chat has no threads, and else what `send` raises. Where the platform repeats
        safely, it gives the same thread under the same key.
        """
        ...


@runtime_checkable
class Fetching(Protocol):
    """Platforms on which files come with messages. The message names them; they are fetched afterwards, once."""

    def fetch(self, file: Attachment) -> AsyncIterator[bytes]:
        """The content, piece by piece, by the handle that the adapter itself has given.

        Raises PlatformDown or PlatformBusy where it may be tried again, and SendRefused where it is not to be had.
        """
        ...


@runtime_checkable
class Files(Protocol):
    """Platforms that take files from us."""

    async def send_file(self, outbound: Outbound, content: Path, *, idempotency_key: str) -> str:
        """Send `outbound.file`, with the text if there is one, like `send`. Its name is a stranger's: no path."""
        ...


@runtime_checkable
class Drafting(Protocol):
    """Platforms that tell an answer which is still being written from one that is whole; they have `Editing`, too."""

    async def draft(self, receipt: str | None, outbound: Outbound) -> str:
        """Show more of the message with that receipt, or begin one; gives its receipt. `edit` makes it whole."""
        ...


@runtime_checkable
class Pacing(Protocol):
    """Platforms that put up with more in some chats than in others."""

    def draft_interval(self, outbound: Outbound) -> float:
        """As in `Limits`, for the chat to which this goes."""
        ...


@runtime_checkable
class Checking(Protocol):
    """Adapters that can say whether what was configured for them works, without serving the account."""

    async def check(self) -> str:
        """Who we are there, in a few words: `@helper_bot`. Raises PlatformError, saying what to do.

        The platform is asked each time: before a send that may have arrived is repeated, too.
        """
        ...


@value
class MenuLine:
    """A command as people are shown it."""

    name: str
    help: str


@runtime_checkable
class Menu(Protocol):
    """Platforms that show people which commands there are."""

    async def show_menu(self, lines: Sequence[MenuLine]) -> None:
        """Told after each connection; what cannot be shown there is left out."""
        ...


@value
class Call:
    """A request over HTTP to the address of an account, `/in/<platform>/<account>/<path>`."""

    method: str
    path: str = ""
    query: Mapping[str, str] = field(default_factory=dict[str, str])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """By their names in small letters."""
    body: bytes = b""


@value
class Reply:
    """What a call is answered with."""

    status: int = 200
    body: bytes = b""
    media_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@runtime_checkable
class Listening(Protocol):
    """Platforms that call us. Whoever calls is a stranger until the adapter has looked at a signature or a secret."""

    @property
    def listens(self) -> bool:
        """Whether this account is to be called; another of the same platform may not be."""
        ...

    async def hear(self, call: Call, inlet: Inlet) -> Reply:
        """Answered when what it brought is safe. Any worker may be called, whoever serves the account."""
        ...


@runtime_checkable
class Forwarding(Protocol):
    """Adapters whose answers may go elsewhere."""

    def forwards_to(self) -> Sequence[Place]:
        """Where answers to what comes in here go; nothing for back to where they were asked for."""
        ...


@runtime_checkable
class Receiving(Protocol):
    """Adapters whose account is a chat itself, and may be one that nothing can be sent to."""

    def takes_messages(self) -> bool: ...


@runtime_checkable
class Watching(Protocol):
    """Adapters that tell others what happens."""

    def notice(self, happening: Happening, text: str) -> Outbound | None:
        """What is owed because of it, in the step in which it happens; None for nothing.

        The text is what was delivered, where that was an answer; whoever does not ask for content leaves it out.
        """
        ...


class Blobs(Protocol):
    """Stores content by its hash."""

    async def keep(self, chunks: AsyncIterator[bytes], limit: int) -> StoredBlob:
        """Store the whole content durably, or nothing. Raises TooLarge beyond the limit."""
        ...

    def place(self, sha256: str) -> Path | None:
        """Return the path of the content, or None if it is not on this machine."""
        ...
