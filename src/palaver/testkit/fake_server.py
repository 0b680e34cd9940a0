"""What the conformance suite needs of a fake server of your platform. Adapter authors write one."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from palaver.protocols import Adapter, MenuCommand, NewFile, PlatformError, Source, value

__all__ = [
    "FakeServer",
    "NotPossible",
    "Refusal",
    "Shown",
    "WithButtons",
    "WithEdits",
    "WithFiles",
    "WithForeignFiles",
    "WithMentions",
    "WithMenu",
    "WithMessageIds",
    "WithMoves",
    "WithNonsense",
    "WithReactions",
    "WithRefusals",
]


class NotPossible(Exception):
    """Raise it if the platform has no such thing. The check is skipped and shows the reason."""


@value
class Shown:
    """A message of ours as a person sees it."""

    chat_id: str
    text: str
    thread_id: str | None = None


@value
class Refusal:
    """An answer of the platform to a send, and what it means."""

    answer: Any
    means: type[PlatformError]
    after: float | None = None
    """The seconds of a PlatformBusy, if the check compares them."""


class FakeServer(Protocol):
    """One chat with one person in it, on a server that can be told to fail."""

    @property
    def chat_id(self) -> str:
        """The chat in which everything happens."""
        ...

    @property
    def thread_id(self) -> str | None:
        """A thread in the chat; None if the platform has no threads."""
        ...

    def adapter(self) -> Adapter:
        """Return a new adapter for the account under test, not running yet. Called several times."""
        ...

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        """Say something as the person, under that display name. Return the source an adapter must make of it."""
        ...

    async def shown(self) -> Sequence[Shown]:
        """Return what our account has sent so far, in order."""
        ...

    async def cut(self) -> None:
        """Break every connection now; new ones can be made."""
        ...

    async def limit_rate(self) -> None:
        """Reject the next send with a demand to wait."""
        ...

    async def lose_send(self, *, shown: bool) -> None:
        """Break the connection during the next send, after or before the message is shown."""
        ...

    async def close_chat(self) -> None:
        """Close the chat: nobody can write into it any more."""
        ...


# Optional abilities: the suite uses each if the fake server has its methods.


@runtime_checkable
class WithEdits(Protocol):
    """The person can edit and delete their messages."""

    async def edit(self, said: Source, text: str) -> None: ...
    async def delete(self, said: Source) -> None: ...


@runtime_checkable
class WithFiles(Protocol):
    """The person can send files and sees ours."""

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        """Send files, with the text beside the first; return the source of that message.

        It is one message, or several if each file is a message of its own.
        """
        ...

    async def shown_files(self) -> Sequence[NewFile]:
        """Return the files that our account has sent so far, in order."""
        ...


@runtime_checkable
class WithMentions(Protocol):
    """The person can mention our account and reply to its messages."""

    async def mention(self, text: str) -> Source:
        """Say the text with a mention of our account in front of it."""
        ...

    async def answer(self, receipt: str, text: str) -> Source:
        """Say the text in reply to a message of ours."""
        ...


@runtime_checkable
class WithButtons(Protocol):
    """The person sees buttons and can press them."""

    async def choices(self) -> Sequence[str]:
        """Return the labels of the buttons under our account's last message."""
        ...

    async def press(self, label: str) -> Source:
        """Press a button. Return the source an adapter must make of it; its message id does not matter."""
        ...


@runtime_checkable
class WithReactions(Protocol):
    """The person can react to our messages."""

    async def react(self, receipt: str, sign: str, *, removed: bool = False) -> Source:
        """React to a message of ours with 👍 or 👎, or take it back. Return who did it and where."""
        ...


@runtime_checkable
class WithMoves(Protocol):
    """The chat can get a new id."""

    async def move_chat(self) -> str:
        """Give the chat a new id and return it; `chat_id` and `say` use it from now on."""
        ...


@runtime_checkable
class WithMenu(Protocol):
    """The person sees the commands that our account offers."""

    async def menu(self) -> Sequence[MenuCommand]: ...


@runtime_checkable
class WithMessageIds(Protocol):
    """Strangers choose the ids of their messages."""

    async def say_under(self, message_id: str, text: str) -> None:
        """Say something under that id."""
        ...


@runtime_checkable
class WithRefusals(Protocol):
    """The server can reject a send with every answer that the platform documents."""

    def refusals(self) -> Sequence[Refusal]: ...

    async def refuse(self, refusal: Refusal) -> None:
        """Give this answer to the next send, and do not show its message."""
        ...


@runtime_checkable
class WithForeignFiles(Protocol):
    """A message could name a file that is not on the platform's servers."""

    def foreign_files(self) -> Sequence[str | None]:
        """Return handles of which none is fetched."""
        ...


@runtime_checkable
class WithNonsense(Protocol):
    """What comes from the server can be unreadable."""

    async def say_nonsense(self) -> None:
        """Send what the platform never would: broken frames, events without what they need, values of other types."""
        ...
