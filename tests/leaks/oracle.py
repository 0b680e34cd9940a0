"""The oracle: who may see which secret. It knows who said what where, and what people have opened to each other.

It reads from the database only where words ended up and what was asked for, never who may read it.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from palaver.model.access import AccessRole
from palaver.model.key import SessionKey
from tests.leaks.town import Place, Somebody, Spot, Town

__all__ = ["Facts", "Opening", "Oracle", "Spoke"]


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Somebody made a place, or a whole chat, another door to a session."""

    number: int
    session: int
    by: str
    to: str
    """The text of a key, or the name of a chat."""
    is_handoff: bool


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Where everything is after a step."""

    keys: Mapping[int, str]
    """The conversation that each session belongs to."""
    visible: Mapping[int, frozenset[str]]
    """The secrets in each session that are not taken back."""
    everything: Mapping[int, frozenset[str]]
    openings: Mapping[int, Opening]
    """Those that stand."""


class Spoke(NamedTuple):
    """Somebody said something in a place, which is in this session of that conversation now."""

    identity: str
    place: Place
    session: int
    key: str


@dataclass
class _Door:
    opening: Opening
    sides: set[str]
    """The key of a place, and names of chats."""
    sessions: set[int]


@dataclass
class Oracle:
    town: Town
    speaker: dict[str, str] = field(default_factory=dict[str, str])
    homes: dict[str, set[Place]] = field(default_factory=dict[str, set[Place]])
    profile: dict[str, str] = field(default_factory=dict[str, str])
    links: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    took: dict[str, set[int]] = field(default_factory=lambda: defaultdict[str, set[int]](set))
    """The sessions of several people in which somebody spoke."""
    answered: dict[tuple[str, str], set[str]] = field(
        default_factory=lambda: defaultdict[tuple[str, str], set[str]](set)
    )
    """What the agent knew when it answered somebody alone: its answers stay theirs."""
    opened: dict[str, set[str]] = field(default_factory=lambda: defaultdict[str, set[str]](set))
    """Secrets that were opened to a place, or to a whole chat."""
    doors: dict[int, "_Door"] = field(default_factory=dict[int, "_Door"])
    """The openings that stand."""
    facts: Facts = field(default_factory=lambda: Facts(keys={}, visible={}, everything={}, openings={}))
    fresh: set[str] = field(default_factory=set[str])
    """What was said in this step."""

    # What people do

    def said(self, word: str, who: Somebody, spot: Spot, place: Place) -> None:
        self.fresh.add(word)
        self.speaker[word] = who.identity
        self.profile[word] = spot.profile
        self.homes.setdefault(word, set()).add(place)

    def linked(self, one: str, other: str) -> None:
        self.links.append((one, other))

    def unlinked_last(self, identity: str) -> None:
        mine = [link for link in self.links if link[0] in self.circle(identity)]
        self.links.remove(mine[-1])

    def unlinked(self, identity: str) -> None:
        """The others stay together."""
        touching = [link for link in self.links if identity in link]
        others = [one if other == identity else other for one, other in touching]
        self.links = [link for link in self.links if link not in touching] + list(pairwise(others))

    def forgotten(self, identity: str) -> None:
        circle = self.circle(identity)
        self.links = [link for link in self.links if link[0] not in circle]

    def circle(self, identity: str) -> frozenset[str]:
        """Everybody who is the same person."""
        circle = {identity}
        while more := {each for link in self.links for each in link if circle & set(link)} - circle:
            circle |= more
        return frozenset(circle)

    # What came of it

    def learn(self, facts: Facts, spoke: Iterable[Spoke]) -> list[str]:
        """Take note of a step; gives what should not have been possible."""
        problems: list[str] = []
        for number, each in facts.openings.items():
            if number not in self.doors:
                problems += self._open(each, facts)
        for each in spoke:
            problems += self._take_part(each)
        before, self.facts = self.facts, facts
        self.doors = {number: door for number, door in self.doors.items() if number in facts.openings}
        for door in self.doors.values():
            self._look_through(door, self.fresh.union(*(before.visible.get(each, ()) for each in door.sessions)))
        return problems

    def told(self, identity: str, place: Place, words: Iterable[str]) -> None:
        """The agent answered them, and that was judged."""
        spot = self.town.spot(place.chat)
        if spot and spot.is_direct:
            self.answered[identity, spot.profile] |= set(words)

    def _take_part(self, spoke: Spoke) -> Iterable[str]:
        """Anyone who speaks where others do takes part; what is said in an attached place is said at the other end."""
        identity, place, there = spoke.identity, spoke.place, _place_of(spoke.key)
        if not self._direct(place):
            self.took[identity].add(spoke.session)
        if there == place or (self._direct(place) and self._direct(there)):
            return
        if not any(spoke.session in door.sessions or spoke.key in self._keys_of(door) for door in self.doors.values()):
            yield f"what {identity} said in {place} went to {spoke.key}"
        for word in self.fresh:
            if self.speaker[word] == identity and place in self.homes[word]:
                self.homes[word].add(there)
        spot = self.town.spot(there.chat)
        for each in spot.people if spot and not spot.is_direct else ():
            if each.identity in self.circle(identity):
                self.took[each.identity].add(spoke.session)

    def _direct(self, place: Place) -> bool:
        spot = self.town.spot(place.chat)
        return spot is None or spot.is_direct

    def _keys_of(self, door: _Door) -> set[str]:
        return {self.facts.keys[each] for each in door.sessions if each in self.facts.keys}

    def rest(self) -> None:
        """The step is over and was judged: what can be seen through doors now is open."""
        self.fresh.clear()
        for door in self.doors.values():
            if not door.opening.is_handoff:  # what is begun afresh there is for all
                keys = self._keys_of(door)
                last = max(door.sessions)
                door.sessions |= {no for no, key in self.facts.keys.items() if key in keys and no > last}
            self._look_through(door, set(self.speaker))

    def _look_through(self, door: _Door, words: set[str]) -> None:
        for session in door.sessions:
            for side in door.sides:
                self.opened[side] |= self.facts.visible.get(session, frozenset()) & words

    def _open(self, opening: Opening, facts: Facts) -> Iterable[str]:
        """Only what is one's own, or was told to oneself alone, may be opened to others, but by an admin."""
        words = facts.visible.get(opening.session, frozenset())
        who = self.town.who(opening.by)
        circle = self.circle(opening.by)
        told = {word for (each, _), answered in self.answered.items() if each in circle for word in answered}
        strange = {word for word in words - told if self.speaker[word] not in circle}
        if strange and not who.is_admin and not self._direct(_place_of(opening.to)):
            yield f"{who.person.name} opened to {opening.to} what others said: {sorted(strange)}"
        key = facts.keys.get(opening.session)
        home = _place_of(key) if key else None
        self.doors[opening.number] = _Door(opening, {opening.to, *([home.chat] if home else ())}, {opening.session})
        self.opened[opening.to] |= words
        self.took[opening.by].add(opening.session)
        spot = self.town.spot(home.chat) if home else None
        if spot and spot.is_direct:  # anyone who is at home there sees what comes in through the other door
            self.took[spot.people[0].identity].add(opening.session)

    # What may be seen

    def allowed(self, place: Place) -> frozenset[str]:
        spot = self.town.spot(place.chat)
        if spot is None:
            return frozenset()
        words = {word for word, homes in self.homes.items() if place in homes}
        for to, opened in self.opened.items():
            if to == place.chat or _place_of(to) == place:
                words |= opened
        return frozenset(words | (self._privately(spot) if spot.is_direct else set()))

    def _privately(self, spot: Spot) -> set[str]:
        circle = self.circle(spot.people[0].identity)
        if self.town.nosy and any(self.town.who(each).role is AccessRole.OWNER for each in circle):
            return set(self.speaker)
        profile = spot.profile
        words = {word for word, who in self.speaker.items() if who in circle and self.profile[word] == profile}
        words |= {word for each in circle for word in self.answered[each, profile]}
        for session in {session for each in circle for session in self.took[each]}:
            key = self.facts.keys.get(session)
            if key and SessionKey.parse(key).profile == profile:
                words |= self.facts.everything.get(session, frozenset())
        return words


def _place_of(name: str) -> Place:
    """The place of a key, or a chat as a whole."""
    if not name.startswith("agent:"):
        return Place(name)
    key = SessionKey.parse(name)
    user = f"{key.platform}:{key.user}" if key.user else ""
    return Place(f"{key.platform}:{key.chat}", key.thread, user)
