"""Where a dialogue is played: fake platforms, or a terminal."""

import re
from collections.abc import Sequence
from pathlib import Path

from palaver.model.platform import Platform
from palaver.model.source import Source
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.protocols.adapter import Adapter
from palaver.protocols.clock import Clock
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import BOT, FakePlatform
from palaver.testkit.updates import Message
from palaver.testkit.updates import Person as Somebody
from tests.dialogues.script import Happens, Place, Says
from tests.platforms.terminal.people import Paper, Person, PlainDesk

__all__ = ["Platforms", "Terminal"]

_OTHER = Platform(name="other", title="Other platform")
_CHANGES = re.compile(r'(?P<person>\w+) (?:edits "(?P<old>.+)" to "(?P<new>.+)"|deletes "(?P<gone>.+)")')


class Platforms:
    """Two fake platforms: the usual one, and `elsewhere`."""

    def __init__(self, clock: Clock) -> None:
        self.world = FakePlatform(clock=clock)
        self._elsewhere = FakePlatform(clock=clock)
        self._chats: dict[Place, Chat] = {}

    def adapters(self) -> Sequence[Adapter]:
        return [FakeAdapter(self.world), FakeAdapter(self._elsewhere, platform=_OTHER)]

    async def say(self, step: Says, text: str) -> None:
        chat = self._chat(step.place)
        mentions = (BOT,) if f"@{BOT}" in text else ()
        answered = None if step.replies is None else _answered(chat, step.replies)
        spoken = text.removeprefix(f"@{BOT} ")
        await chat.say(_person(step.person), spoken, mentions=mentions, reply_to=answered)

    async def change(self, step: Happens) -> bool:
        """Whether what happens is that somebody changes what they have said."""
        found = _CHANGES.fullmatch(step.what)
        if found is None:
            return False
        chat, person = self._chat(step.place), _person(found["person"])
        said = _said(chat, found["old"] or found["gone"])
        await (chat.edit(person, said, found["new"]) if found["new"] else chat.delete(person, said))
        return True

    def heard(self, place: Place) -> Sequence[str]:
        return [message.text for message in self._chat(place).shown]

    def source_of(self, person: str) -> Source:
        """Their direct chat."""
        chat = self._chat(Place(person=person))
        return Source(platform=FAKE.name, account=BOT, chat_kind=chat.kind, chat_id=chat.id, user_id=person)

    def places(self) -> Sequence[Place]:
        return list(self._chats)

    def is_taken(self) -> bool:
        return not self.world.unacknowledged() and not self._elsewhere.unacknowledged()

    def _chat(self, place: Place) -> Chat:
        if place not in self._chats:
            world = self._elsewhere if place.is_elsewhere else self.world
            self._chats[place] = world.group(place.name or "") if place.is_group else world.dm(_person(place.person))
        return self._chats[place]


def _person(name: str) -> Somebody:
    return Somebody(id=name, name=name)


def _answered(chat: Chat, text: str) -> str:
    return next(message.id for message in reversed(chat.messages) if text == message.text or (not text and message.key))


def _said(chat: Chat, text: str) -> Message:
    return next(message for message in chat.said if message.text == text)


class Terminal:
    """One person at one terminal."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._paper = Paper()
        self._places: set[Place] = set()
        self.person = Person(path, paper=self._paper)

    def adapters(self) -> Sequence[Adapter]:
        return [TerminalAdapter(self._path, PlainDesk(), self._clock)]

    async def say(self, step: Says, text: str) -> None:
        self._places.add(step.place)
        self.person.say(text)

    async def change(self, step: Happens) -> bool:
        return not step.what

    def heard(self, place: Place) -> Sequence[str]:
        assert place in self._places
        return self._paper.texts

    def places(self) -> Sequence[Place]:
        return list(self._places)

    def is_taken(self) -> bool:
        return not self.person.waits
