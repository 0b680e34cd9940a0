"""One store, modelled by its contract, and the directory that says which store a place is in.

A store accepts once, runs one turn at a time in a conversation, and marks a send before it sends. Keys, addresses and
linked people come from the real functions. docs/design/past-one-server.md says how stores stand side by side.
"""

import zlib
from copy import deepcopy
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

from palaver.model.key import DmScope, GroupScope, Scope, SessionKey, Speaker, derive_key
from palaver.model.people import Link, group_identities
from palaver.model.source import MessageAddress, Source, identity_of, message_address

__all__ = [
    "Address",
    "Away",
    "Conversation",
    "Directory",
    "Home",
    "Id",
    "Message",
    "NotHere",
    "Rows",
    "Send",
    "State",
    "Store",
    "place_of",
    "succeed",
]

Address = tuple[Any, ...]
Id = tuple[str, int]
"""The check of the store that gave it, and a number: as in `in:<no>-<check>`."""

LEASE = 10.0
"""No turn takes as long: a conversation that is claimed for longer has lost its worker."""
_SCOPE = Scope(dm=DmScope.PER_PERSON)
_WHOLE_CHAT = Scope(group=GroupScope.SHARED, thread=GroupScope.SHARED)


def place_of(source: Source) -> SessionKey:
    """Return what the directory knows: the whole chat, with its threads and the conversations of all who are in it."""
    return derive_key(source, _WHOLE_CHAT)._replace(thread="")


class Away(Exception):
    """There was no answer: whether it was done is unknown."""


class NotHere(Exception):
    """A home is not here, not any more, or not yet; or somebody else moves it."""


class State(Enum):
    OPEN = "accepts, runs and sends"
    CLOSING = "is about to move: what runs can end, nothing begins"
    SEALED = "takes nothing: it moves"


class Message(NamedTuple):
    id: Id
    token: int
    address: Address


@dataclass(slots=True)
class Send:
    tokens: tuple[int, ...]
    address: Address
    is_sending: bool = False
    is_marked: bool = False


@dataclass(slots=True)
class Conversation:
    waiting: list[Message] = field(default_factory=list[Message])
    said: list[int] = field(default_factory=list[int])
    """The transcript."""
    owed: list[Send] = field(default_factory=list[Send])
    fence: int = 0
    until: float = 0.0
    """Until when somebody has claimed it."""


class Work(NamedTuple):
    """What was claimed: a send, or else a turn for all that waits."""

    fence: int
    send: Send | None
    messages: tuple[Message, ...]


@dataclass(slots=True)
class Rows:
    """What a store has of one home: the places that have to live together."""

    version: int
    state: State = State.OPEN
    inbox: dict[MessageAddress, Message] = field(default_factory=dict[MessageAddress, Message])
    conversations: dict[SessionKey, Conversation] = field(default_factory=dict[SessionKey, Conversation])
    links: list[Link] = field(default_factory=list[Link])

    def speaker(self, source: Source) -> Speaker:
        identity = identity_of(source)
        names = {name for link in self.links for name in link[1:]}
        people = (group for group in group_identities(sorted(names), self.links) if identity in group)
        return Speaker(person=next((min(group) for group in people), None))

    def is_busy(self, now: float) -> bool:
        return any(each.until > now for each in self.conversations.values())


class Store:
    """One PostgreSQL. Each method is one transaction of it."""

    def __init__(self, check: str, first: int = 1) -> None:
        self.check = check
        self.number = first
        self.homes: dict[int, Rows] = {}
        self.gone: dict[int, int] = {}
        """Homes that were here, and their last version: an old reader of the directory does not bring them back."""
        self.ready: dict[tuple[int, SessionKey], None] = {}
        self.is_lost = False
        self.successor = self

    def find(self, home: int, version: int) -> Rows:
        """Return a home if it is here in that very version. Only one that was never moved is made by being used."""
        rows = self.homes.get(home)
        if rows is None and version == 1 and home not in self.gone:
            rows = self.homes[home] = Rows(1)
        if rows is None or rows.version != version:
            raise NotHere
        return rows

    def accept(self, home: int, version: int, source: Source, token: int) -> Id:
        rows = self.find(home, version)
        if rows.state is not State.OPEN:
            raise NotHere
        address = message_address(source)
        if address in rows.inbox:
            return rows.inbox[address].id
        message = rows.inbox[address] = Message((self.check, self.number), token, source.address)
        self.number += 1
        key = derive_key(source, _SCOPE, rows.speaker(source))
        rows.conversations.setdefault(key, Conversation()).waiting.append(message)
        self.ready[home, key] = None
        return message.id

    def claim(self, home: int, key: SessionKey, now: float) -> Work | None:
        rows = self.homes.get(home)
        found = rows.conversations.get(key) if rows and rows.state is State.OPEN else None
        if found is None or found.until > now or not (found.owed or found.waiting):
            return None
        found.fence, found.until = found.fence + 1, now + LEASE
        if not found.owed:
            return Work(found.fence, None, tuple(found.waiting))
        send = found.owed[0]
        send.is_sending, send.is_marked = True, send.is_marked or send.is_sending
        return Work(found.fence, replace(send), ())

    def settle(self, home: int, key: SessionKey, work: Work) -> None:
        found = self._claimed(home, key, work)
        tokens = tuple(message.token for message in work.messages)
        found.said += tokens
        del found.waiting[: len(tokens)]
        found.owed.append(Send(tokens, work.messages[-1].address))

    def delivered(self, home: int, key: SessionKey, work: Work) -> None:
        found = self._claimed(home, key, work)
        del found.owed[0]
        if not (found.owed or found.waiting):
            self.ready.pop((home, key), None)

    def _claimed(self, home: int, key: SessionKey, work: Work) -> Conversation:
        rows = self.homes.get(home)
        if rows is None or rows.state is State.SEALED or rows.conversations[key].fence != work.fence:
            raise NotHere
        rows.conversations[key].until = 0.0
        return rows.conversations[key]

    # Moving: each step can be repeated.

    def seal(self, home: int, version: int, now: float) -> Rows | None:
        """Let nothing begin; return everything once nothing runs, None before."""
        rows = self.find(home, version)
        if rows.state is State.OPEN:
            rows.state = State.CLOSING
        if rows.is_busy(now):
            return None
        rows.state = State.SEALED
        return deepcopy(rows)

    def take(self, home: int, version: int, rows: Rows) -> None:
        """Store a copy. It stays sealed until the directory names this store."""
        if home not in self.homes or self.homes[home].version < version:
            self.homes[home] = replace(rows, version=version, state=State.SEALED)

    def open(self, home: int, version: int) -> None:
        self.find(home, version).state = State.OPEN
        self.look(home)

    def drop(self, home: int, version: int) -> None:
        rows = self.homes.get(home)
        if rows and rows.version == version:
            for key in self.homes.pop(home).conversations:
                self.ready.pop((home, key), None)
        self.gone[home] = max(version, self.gone.get(home, 0))

    def merge(self, home: int, version: int, other: int, link: tuple[str, str]) -> bool:
        """Make two homes one, and two identities one person; False if the other one is not here and still."""
        rows, more = self.find(home, version), self.homes.get(other)
        if any(each[1:] == link for each in rows.links):
            return True
        if more is None or more.state is not State.SEALED:
            return False
        rows.inbox |= more.inbox
        rows.conversations |= more.conversations
        rows.links += [*more.links, Link(len(rows.links) + len(more.links), *link)]
        self.drop(other, more.version)
        self.look(home)
        return True

    def look(self, home: int) -> None:
        """List what there is to do."""
        for key, found in self.homes[home].conversations.items():
            if found.owed or found.waiting:
                self.ready[home, key] = None

    def idle(self, now: float) -> list[tuple[int, SessionKey]]:
        """Return the conversations with something to do that nobody has claimed."""
        return [each for each in self.ready if self.homes[each[0]].conversations[each[1]].until <= now]


def succeed(lost: Store) -> Store:
    """Return the store that takes over what a lost one had. Its ids can be told from all that were given before."""
    return Store(f"{lost.check}'")


@dataclass(slots=True)
class Home:
    """A row of the directory."""

    name: int
    store: Store
    version: int = 1
    is_claimed: bool = False
    """Somebody moves it."""


class Directory:
    """One small highly available PostgreSQL. Each method is one transaction of it."""

    def __init__(self, stores: list[Store]) -> None:
        self._stores = stores
        self.homes: dict[SessionKey, Home] = {}

    def find(self, place: SessionKey) -> Home:
        home = self.homes.get(place)
        if home is None:
            store = self._stores[zlib.crc32(place.text.encode()) % len(self._stores)]
            home = self.homes[place] = Home(len(self.homes), store.successor)
        return home

    def claim(self, *places: SessionKey) -> list[Home]:
        homes = [self.find(place) for place in places]
        if any(home.is_claimed for home in homes):
            raise NotHere
        for home in homes:
            home.is_claimed = True
        return homes

    def commit(self, home: Home, version: int, store: Store) -> None:
        """The one step that decides a move."""
        if home.version != version or store.successor is not store:
            raise NotHere
        home.store, home.version = store, version + 1

    def merge(self, home: Home, place: SessionKey) -> None:
        self.homes[place] = home

    def give_away(self, lost: Store, store: Store) -> None:
        """A copy of everything that a lost store committed becomes another store, with versions of its own."""
        for home in self.homes.values():
            if home.store is not lost:
                continue
            home.store, home.version = store, home.version + 1
            rows = lost.homes.get(home.name)
            if rows or home.name not in lost.gone:  # else it was just merged with another home
                store.homes[home.name] = replace(rows or Rows(0), version=home.version)
                store.open(home.name, home.version)
        store.gone, lost.successor = lost.gone, store
