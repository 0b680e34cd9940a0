"""A chat of the fake platform: people speak into it and see what our accounts have sent there."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from palaver.model.source import DM
from palaver.model.text import quoted as shown_text
from palaver.model.turn import Choice, Outbound
from palaver.protocols.clock import Clock
from palaver.testkit.mailbox import File, Message, Person

__all__ = [
    "Chat",
]


class Chat:
    """To be spoken into with `say`, `edit`, `delete` and `press`, listened to with `hears`, looked at with `shown`."""

    def __init__(
        self,
        *,
        id: str,  # noqa: A002 - a chat has an id
        kind: str,
        title: str,
        people: tuple[Person, ...],
        accounts: frozenset[str],
        clock: Clock,
        tell: Callable[["Chat", Person, Message], None],
        rename: Callable[["Chat", bool], None],
    ) -> None:
        self.id = id
        self.kind = kind
        self.title = title
        self.people = people
        """Who may speak; anybody, if nobody is named."""
        self.accounts = accounts
        """Which of our accounts are in it."""
        self.messages: list[Message] = []
        """Everything to be seen, in order: what people said and what our accounts sent."""
        self.typing: list[tuple[str, str | None]] = []
        """The accounts that were seen typing, and in which thread, oldest first."""
        self.gone = False
        """Nobody can write there any more."""
        self.has_threads = kind != DM
        """One of our accounts can begin a thread in it."""
        self.away = False
        """Nobody is there now."""
        self.interval = 0.0
        """Seconds that have to pass between two things we send there."""
        self.free_at = 0.0
        self._clock = clock
        self._tell = tell
        self._rename = rename
        self._numbers = count(1)
        self._changed = asyncio.Event()

    @property
    def shown(self) -> list[Message]:
        """What our accounts have sent, in order, as it reads now."""
        return [message for message in self.messages if message.key is not None and not message.deleted]

    @property
    def said(self) -> list[Message]:
        """What people have said, in order, as it reads now."""
        return [message for message in self.messages if message.key is None and not message.deleted]

    async def say(
        self,
        person: Person,
        text: str,
        *,
        thread: str | None = None,
        reply_to: str | None = None,
        mentions: tuple[str, ...] = (),
        files: tuple[File, ...] = (),
        album: str | None = None,
        under: str | None = None,
    ) -> Message:
        """Somebody writes into the chat; with the names of accounts that are mentioned, under an id if one is given."""
        self._admit(person)
        answered = self.find(reply_to) if reply_to else None
        named = {*mentions, *((answered.author,) if answered else ())} & self.accounts
        message = Message(
            id=under or self._number(),
            author=person.id,
            text=text,
            at=self._clock.now(),
            thread=thread,
            reply_to=reply_to,
            mentions=tuple(sorted(named)),
            files=files,
            album=album,
        )
        self._add(message)
        self._tell(self, person, message)
        await asyncio.sleep(0)
        return message

    async def edit(self, person: Person, message: Message, text: str) -> Message:
        """Somebody changes what they had said."""
        edited = self.change(message.id, text)
        self._tell(self, person, edited)
        await asyncio.sleep(0)
        return edited

    async def delete(self, person: Person, message: Message) -> Message:
        """Somebody takes back what they had said."""
        deleted = replace(self._current(message.id), changed=self._clock.now(), deleted=True)
        self._put(deleted)
        self._tell(self, person, deleted)
        await asyncio.sleep(0)
        return deleted

    async def press(self, person: Person, message: Message, label: str) -> Message:
        """Somebody presses a button under a message of ours. It is no message that anybody sees."""
        self._admit(person)
        offered = self._current(message.id)
        says = next(choice.says for choice in offered.choices if choice.label == label)
        pressed = Message(
            id=self._number(),
            author=person.id,
            text=says,
            at=self._clock.now(),
            thread=offered.thread,
            mentions=(offered.author,),
            pressed=True,
        )
        self._tell(self, person, pressed)
        await asyncio.sleep(0)
        return pressed

    async def move(self, *, silently: bool = False) -> str:
        """The chat has another id from now on, and its accounts are told; gives the new one.

        Silently they are not told, but whoever writes to the old one learns the new one.
        """
        self._rename(self, silently)
        await asyncio.sleep(0)
        return self.id

    async def hears(self, text: str, *, times: int = 1, within: float = 10.0) -> Message:
        """Wait until something with this text in it was shown, so many times; gives the last of them."""
        try:
            async with asyncio.timeout(within):
                while len(found := [message for message in self.shown if text in message.text]) < times:
                    await self._changed.wait()
        except TimeoutError:
            texts = ", ".join(shown_text(message.text) for message in self.shown[-10:]) or "nothing"
            raise AssertionError(f"{shown_text(text)} was not shown within {within:g} s; shown was: {texts}") from None
        return found[times - 1]

    # What the platform does here for our accounts

    def show(self, account: str, outbound: Outbound, *, key: str, file: File | None = None) -> Message:
        message = Message(
            id=self._number(),
            author=account,
            text=outbound.text,
            at=self._clock.now(),
            thread=outbound.thread_id,
            reply_to=outbound.reply_to,
            key=key,
            files=(file,) if file else (),
            choices=outbound.choices,
        )
        self._add(message)
        return message

    def find(self, number: str) -> Message | None:
        return next((message for message in self.messages if message.id == number), None)

    def change(self, number: str, text: str, choices: tuple[Choice, ...] = ()) -> Message:
        """Editing to the same text changes nothing."""
        old = self._current(number)
        if (old.text, old.choices) == (text, choices):
            return old
        earlier = (*old.earlier, old.text)
        new = replace(old, text=text, choices=choices, earlier=earlier, changed=self._clock.now())
        self._put(new)
        return new

    def _current(self, number: str) -> Message:
        return next(message for message in self.messages if message.id == number)

    def _put(self, new: Message) -> None:
        self.messages = [new if message.id == new.id else message for message in self.messages]
        self._look()

    def _number(self) -> str:
        return str(next(self._numbers))

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self._look()

    def _admit(self, person: Person) -> None:
        if self.people and person not in self.people:
            names = ", ".join(each.name for each in self.people)
            raise ValueError(f"{person.name} is not in the chat {self.title}; in it are: {names}")

    def _look(self) -> None:
        """Whoever is waiting looks again."""
        self._changed.set()
        self._changed.clear()
