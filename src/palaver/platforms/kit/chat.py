"""A chat of the fake platform: people speak into it and see what our accounts have sent there."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from itertools import count

from palaver.domain.source import DM
from palaver.domain.text import shown as shown_text
from palaver.platforms.kit.messages import File, Message, Person
from palaver.ports.clock import Clock

__all__ = ["Chat"]


class Chat:
    """To be spoken into with `say`, `edit` and `delete`, listened to with `hears`, looked at with `shown`."""

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
    ) -> Message:
        """Somebody writes into the chat; with the names of accounts that are mentioned."""
        if self.people and person not in self.people:
            raise ValueError(f"{person.name} is not in the chat {self.title}; in it are: {self._names()}")
        answered = self.find(reply_to) if reply_to else None
        named = {*mentions, *((answered.author,) if answered else ())} & self.accounts
        message = self._message(
            author=person.id, text=text, thread=thread, reply_to=reply_to, mentions=tuple(sorted(named))
        )
        if files or album:
            message = replace(message, files=files, album=album)
            self._put(message)
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

    def show(
        self,
        account: str,
        text: str,
        *,
        thread: str | None,
        reply_to: str | None,
        key: str,
        file: File | None = None,
    ) -> Message:
        message = self._message(author=account, text=text, thread=thread, reply_to=reply_to, key=key)
        if file is not None:
            message = replace(message, files=(file,))
            self._put(message)
        return message

    def find(self, number: str) -> Message | None:
        return next((message for message in self.messages if message.id == number), None)

    def change(self, number: str, text: str) -> Message:
        """Editing to the same text changes nothing."""
        old = self._current(number)
        if old.text == text:
            return old
        new = replace(old, text=text, earlier=(*old.earlier, old.text), changed=self._clock.now())
        self._put(new)
        return new

    def _current(self, number: str) -> Message:
        return next(message for message in self.messages if message.id == number)

    def _put(self, new: Message) -> None:
        self.messages = [new if message.id == new.id else message for message in self.messages]
        self._look()

    def _message(
        self,
        *,
        author: str,
        text: str,
        thread: str | None,
        reply_to: str | None,
        mentions: tuple[str, ...] = (),
        key: str | None = None,
    ) -> Message:
        message = Message(
            id=str(next(self._numbers)),
            author=author,
            text=text,
            at=self._clock.now(),
            thread=thread,
            reply_to=reply_to,
            mentions=mentions,
            key=key,
        )
        self.messages.append(message)
        self._look()
        return message

    def _names(self) -> str:
        return ", ".join(person.name for person in self.people)

    def _look(self) -> None:
        """Whoever is waiting looks again."""
        self._changed.set()
        self._changed = asyncio.Event()
