"""A chat of the fake platform: people write into it and see what our accounts have sent."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count

from palaver.model.text import quoted as shown_text
from palaver.protocols import Choice, Clock, Outbound, Reaction
from palaver.testkit.updates import File, Message, Person

__all__ = ["Chat"]


@dataclass(kw_only=True, eq=False)
class Chat:
    """Write with `say`, `edit`, `delete`, `press`, `react`; wait for answers with `hears`; list them with `shown`."""

    id: str
    kind: str
    title: str
    people: tuple[Person, ...]
    """The people who can write; empty for anybody."""
    accounts: frozenset[str]
    """The accounts of ours that are in it."""
    clock: Clock
    report: Callable[["Chat", Person, Message], None]
    rename: Callable[["Chat", bool], None]
    has_threads: bool
    """Our accounts can start threads here."""
    interval: float
    """Seconds between two messages of ours."""
    free_at: float = 0.0
    gone: bool = False
    """Nobody can write here any more."""
    away: bool = False
    """Nobody is there now."""
    messages: list[Message] = field(default_factory=list[Message])
    """All messages in order, from people and from our accounts."""
    typing: list[tuple[str, str | None]] = field(default_factory=list[tuple[str, str | None]])
    """The accounts that were seen typing and their threads, oldest first."""
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def shown(self) -> list[Message]:
        """The messages of our accounts, in order, as they read now."""
        return [message for message in self.messages if message.key is not None and not message.deleted]

    @property
    def said(self) -> list[Message]:
        """The messages of people, in order, as they read now."""
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
        """Write into the chat as a person. `mentions` names accounts of ours; `under` sets the message id."""
        self._check_member(person)
        answered = self.find(reply_to) if reply_to else None
        mentioned = {*mentions, *((answered.author,) if answered else ())} & self.accounts
        message = Message(
            id=under or self._new_id(),
            author=person.id,
            text=text,
            at=self.clock.now(),
            thread=thread,
            reply_to=reply_to,
            quoted=answered and replace(answered, quoted=None),
            mentions=tuple(sorted(mentioned)),
            files=files,
            album=album,
        )
        self._add(message)
        return await self._reported(person, message)

    async def edit(self, person: Person, message: Message, text: str) -> Message:
        return await self._reported(person, self.change(message.id, text))

    async def delete(self, person: Person, message: Message) -> Message:
        current = self._current(message.id)
        deleted = replace(current, changed=self._change_time(current), deleted=True)
        self._replace(deleted)
        return await self._reported(person, deleted)

    async def press(self, person: Person, message: Message, label: str) -> Message:
        """Press a button under a message of ours. Nobody sees a message for it."""
        self._check_member(person)
        offered = self._current(message.id)
        says = next(choice.says for choice in offered.choices if choice.label == label)
        pressed = Message(
            id=self._new_id(),
            author=person.id,
            text=says,
            at=self.clock.now(),
            thread=offered.thread,
            mentions=(offered.author,),
            pressed=True,
        )
        return await self._reported(person, pressed)

    async def react(self, person: Person, message: Message, emoji: str, *, removed: bool = False) -> None:
        """React to a message, or take the reaction back."""
        self._check_member(person)
        reaction = Message(
            id=self._new_id(),
            author=person.id,
            text="",
            at=self.clock.now(),
            thread=message.thread,
            reply_to=message.id,
            reaction=Reaction(emoji=emoji, removed=removed),
        )
        await self._reported(person, reaction)

    async def move(self, *, silently: bool = False) -> str:
        """Give the chat a new id and return it. Its accounts get an update.

        If `silently`, they do not: a send to the old id raises ChatMoved.
        """
        self.rename(self, silently)
        await asyncio.sleep(0)
        return self.id

    async def hears(self, text: str, *, times: int = 1, within: float = 60.0) -> Message:
        """Wait until messages with this text in them were shown that many times; return the last of them."""
        try:
            async with asyncio.timeout(within):
                while len(found := [message for message in self.shown if text in message.text]) < times:
                    await self._changed.wait()
        except TimeoutError:
            texts = ", ".join(shown_text(message.text) for message in self.shown[-10:]) or "nothing"
            raise AssertionError(f"{shown_text(text)} was not shown within {within:g} s. Shown: {texts}") from None
        return found[times - 1]

    async def _reported(self, person: Person, message: Message) -> Message:
        self.report(self, person, message)
        await asyncio.sleep(0)
        return message

    # For the platform

    def show(self, account: str, outbound: Outbound, *, key: str, file: File | None = None) -> Message:
        message = Message(
            id=self._new_id(),
            author=account,
            text=outbound.text,
            at=self.clock.now(),
            thread=outbound.thread_id,
            reply_to=outbound.quoted(in_group=True),
            key=key,
            files=(file,) if file else (),
            choices=outbound.choices,
        )
        self._add(message)
        return message

    def find(self, message_id: str) -> Message | None:
        return next((message for message in self.messages if message.id == message_id), None)

    def change(self, message_id: str, text: str, choices: tuple[Choice, ...] = ()) -> Message:
        """Change the text and buttons; editing to the same text changes nothing."""
        old = self._current(message_id)
        if (old.text, old.choices) == (text, choices):
            return old
        earlier = (*old.earlier, old.text)
        new = replace(old, text=text, choices=choices, earlier=earlier, changed=self._change_time(old))
        self._replace(new)
        return new

    def _change_time(self, old: Message) -> datetime:
        """Return when it changes now: later than before, also by a clock that counts milliseconds, as uvloop's does."""
        return max(self.clock.now(), (old.changed or old.at) + timedelta.resolution)

    def _current(self, message_id: str) -> Message:
        return next(message for message in self.messages if message.id == message_id)

    def _replace(self, new: Message) -> None:
        self.messages = [new if message.id == new.id else message for message in self.messages]
        self._notify()

    def _new_id(self) -> str:
        return str(next(self._numbers))

    def _add(self, message: Message) -> None:
        self.messages.append(message)
        self._notify()

    def _check_member(self, person: Person) -> None:
        if self.people and person not in self.people:
            names = ", ".join(member.name for member in self.people)
            raise ValueError(f"{person.name} is not in the chat {self.title}. Its members: {names}")

    def _notify(self) -> None:
        self._changed.set()
        self._changed.clear()
