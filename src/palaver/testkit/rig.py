"""The rig: the other end of an adapter, as the conformance suite works it. Adapter authors write one."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from palaver.model.attachment import NewFile
from palaver.model.source import Source
from palaver.model.value import value
from palaver.protocols.adapter import Adapter
from palaver.protocols.capabilities import MenuCommand

__all__ = [
    "CannotHappen",
    "FilingRig",
    "MentioningRig",
    "MenuRig",
    "MovingRig",
    "NamingRig",
    "PressingRig",
    "RevisingRig",
    "Rig",
    "Shown",
]


class CannotHappen(Exception):
    """Raised by a rig where a platform has no such thing. The check is skipped and shows the reason."""


@value
class Shown:
    """A message of ours as a person sees it."""

    chat_id: str
    text: str
    thread_id: str | None = None


class Rig(Protocol):
    """One chat with one person in it, on a counterpart that does what it is told."""

    @property
    def chat_id(self) -> str:
        """The chat in which everything happens."""
        ...

    @property
    def thread_id(self) -> str | None:
        """A thread in the chat; None where the platform has no threads."""
        ...

    def adapter(self) -> Adapter:
        """A new adapter of the account under test, not running yet. The suite asks for several, one after another."""
        ...

    async def say(self, text: str, *, name: str = "alice", thread_id: str | None = None) -> Source:
        """The person, under that display name, says something. Gives the source an adapter must make of it."""
        ...

    async def shown(self) -> Sequence[Shown]:
        """What our account has sent so far, in order."""
        ...

    async def cut(self) -> None:
        """Every connection breaks now; new ones can be made."""
        ...

    async def limit_rate(self) -> None:
        """The next send is turned away with the demand to wait."""
        ...

    async def lose_send(self, *, shown: bool) -> None:
        """During the next send the connection breaks, after or before the message is shown."""
        ...

    async def close_chat(self) -> None:
        """From now on nobody can write into the chat."""
        ...


@runtime_checkable
class RevisingRig(Protocol):
    """A rig whose person can change and delete what they have said. Only such a rig is asked to."""

    async def edit(self, said: Source, text: str) -> None:
        """The person changes a message, known by its source."""
        ...

    async def delete(self, said: Source) -> None: ...


@runtime_checkable
class FilingRig(Protocol):
    """A rig whose person can send files and sees ours. Only such a rig is asked to."""

    async def say_with(self, text: str, files: Sequence[NewFile]) -> Source:
        """The person sends files and words with the first; gives the source of that.

        It is one message, or several where each file is a message of its own.
        """
        ...

    async def shown_files(self) -> Sequence[NewFile]:
        """The files that our account has sent so far, in order."""
        ...


@runtime_checkable
class MentioningRig(Protocol):
    """A rig whose person can mention our account and answer its messages. Only such a rig is asked to."""

    async def mention(self, text: str) -> Source:
        """The person says the text with a mention of our account in front of it."""
        ...

    async def answer(self, receipt: str, text: str) -> Source:
        """The person says the text in answer to a message of ours."""
        ...


@runtime_checkable
class PressingRig(Protocol):
    """A rig whose person sees buttons and can press them. Only such a rig is asked to."""

    async def choices(self) -> Sequence[str]:
        """What is written on the buttons of the last message that our account has sent."""
        ...

    async def press(self, label: str) -> Source:
        """The person presses one of them. Gives the source an adapter must make of it, whatever its message id is."""
        ...


@runtime_checkable
class MovingRig(Protocol):
    """A rig whose chat can get another id. Only such a rig is asked to."""

    async def move_chat(self) -> str:
        """From now on everything happens under another id, which it gives; `chat_id` and `say` go by it."""
        ...


@runtime_checkable
class MenuRig(Protocol):
    """A rig that sees which commands our account shows. Only such a rig is asked to."""

    async def menu(self) -> Sequence[MenuCommand]: ...


@runtime_checkable
class NamingRig(Protocol):
    """A rig whose platform lets strangers choose the ids of what they say. Only such a rig is asked to."""

    async def say_under(self, message_id: str, text: str) -> None:
        """The person says something under that id."""
        ...
