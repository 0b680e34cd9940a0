"""Messages of the fake platform: who said what, and how an account of ours is told of it."""

from datetime import datetime

from palaver.domain.turn import Choice
from palaver.domain.value import value

__all__ = ["File", "Message", "Person", "Update"]


@value
class Person:
    id: str
    name: str
    is_bot: bool = False
    """Somebody else's bot."""


@value
class File:
    name: str
    media_type: str
    content: bytes
    """Told to nobody; whoever wants it fetches it."""
    size: int | None = None
    """As it is told; by default as it is."""


@value
class Message:
    """Something to be seen in a chat."""

    id: str
    """Unique in its chat only."""
    author: str
    """The id of a person, or one of our accounts."""
    text: str
    at: datetime
    thread: str | None = None
    reply_to: str | None = None
    mentions: tuple[str, ...] = ()
    """The accounts it calls by name, and the one whose message it answers."""
    key: str | None = None
    """The idempotency key it was sent under, where one of our accounts sent it."""
    earlier: tuple[str, ...] = ()
    """What it said before it was edited, oldest first."""
    changed: datetime | None = None
    """When it was edited or deleted last."""
    deleted: bool = False
    files: tuple[File, ...] = ()
    album: str | None = None
    """What several messages have in common that were sent as one."""
    choices: tuple[Choice, ...] = ()
    """Buttons under it; whoever presses one is taken to have said what it says."""
    pressed: bool = False
    """It was said by pressing a button, and told to nobody but the account whose button it is."""


@value
class Update:
    """What the platform tells an account: somebody said something, or changed or deleted what they had said.

    Or a chat that had the id `moved_from` has another one now; then nobody said anything.
    """

    number: int
    chat: str
    kind: str
    title: str
    person: Person
    message: Message
    moved_from: str | None = None
