"""A town for leak tests: people on two platforms, where they meet, and an agent that keeps nothing to itself."""

import json
import random
import re
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import NamedTuple

from palaver.model.access import AccessRole, Grant
from palaver.model.key import ChatSelector as ChatName
from palaver.model.key import DmScope, GroupScope, ProfileRule, Scope, ScopedSetting
from palaver.model.platform import Ability, Platform
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.revision import RevisionPolicy
from palaver.model.session import ModelOverride
from palaver.model.source import DM
from palaver.model.transcript import ToolCall
from palaver.protocols.adapter import Adapter
from palaver.protocols.agent import Event, Excerpt, Final, GeneratedText, Request, ToolCalled, ToolReturned
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person

__all__ = ["SECRET", "Gossip", "Place", "Somebody", "Spot", "Town", "secrets_in"]

SECRET = re.compile(r"u\d+u")
_SEARCH = re.compile(r"!use search (\w+)")
_REMEMBER = "!use remember"
OTHER = Platform(name="other", title="The other platform", abilities=frozenset({Ability.THREADS}))
WORK = "work"


def secrets_in(*texts: str) -> frozenset[str]:
    return frozenset(word for text in texts for word in SECRET.findall(text))


class Shown(NamedTuple):
    """What the agent was given for a turn."""

    turn: int
    words: frozenset[str]


@dataclass
class Gossip:
    """Tells everything it is shown, or finds where it is told to look: in answers, in summaries, in titles."""

    shown: list[Shown] = field(default_factory=list[Shown])

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        words = secrets_in(request.section, *(message.text for message in request.messages))
        if asked := _SEARCH.search(request.messages[-1].text if request.messages else ""):
            call = ToolCall(f"c{request.turn}", "search", json.dumps({"query": asked[1]}))
            yield ToolCalled(calls=(call,))
            found = await request.toolbox.use(call)
            yield ToolReturned(call=call.id, text=found)
            words |= secrets_in(found)
        elif request.messages and _REMEMBER in request.messages[-1].text:
            call = ToolCall(f"c{request.turn}", "remember", json.dumps({"text": " ".join(sorted(words)) or "nothing"}))
            yield ToolCalled(calls=(call,))
            yield ToolReturned(call=call.id, text=await request.toolbox.use(call))
        self.shown.append(Shown(request.turn, words))
        yield Final(text=f"I know {' '.join(sorted(words)) or 'nothing'}.")

    def context_window(self, override: ModelOverride | None) -> int | None:  # noqa: ARG002
        return None

    async def summarise(self, passage: Excerpt) -> GeneratedText:
        return GeneratedText(text=" ".join(sorted(secrets_in(*(message.text for message in passage.messages)))))

    async def title(self, passage: Excerpt) -> GeneratedText:
        return GeneratedText(
            text=f"About {' '.join(sorted(secrets_in(*(each.text for each in passage.messages)))[:3])}"
        )


class Place(NamedTuple):
    """Where somebody speaks: others have a conversation of their own, or share it, by the scope of the chat."""

    chat: str
    thread: str = ""
    user: str = ""


class Somebody(NamedTuple):
    person: Person
    identity: str
    role: AccessRole | None

    @property
    def is_admin(self) -> bool:
        return (self.role or AccessRole.GUEST) >= AccessRole.ADMIN


@dataclass(frozen=True, kw_only=True)
class Spot:
    """A chat, and what is known of it."""

    chat: Chat
    name: str
    people: tuple[Somebody, ...]
    profile: str = "main"
    alone: bool = False
    """Everybody has a conversation of their own."""

    @property
    def is_direct(self) -> bool:
        return self.chat.kind == DM

    @property
    def platform(self) -> str:
        return self.name.partition(":")[0]


_ROLES = {
    "fake": {"ann": AccessRole.OWNER, "ben": AccessRole.ADMIN, "gus": AccessRole.GUEST, "eve": None},
    "other": {"hal": AccessRole.ADMIN},
}


class Town:
    """Everything of it is drawn from the seed."""

    def __init__(self, chance: random.Random) -> None:
        self.worlds = {"fake": FakePlatform(), "other": FakePlatform()}
        self.agent = Gossip()
        self.dm_scope = chance.choice(list(DmScope))
        self.threads_alone = chance.random() < 0.3
        self.nosy = chance.random() < 0.25
        """The owner says `--all`: then they may see everything."""
        self.people = [
            *(self._somebody("fake", name) for name in ("ann", "ben", "cy", "dee", "gus", "eve")),
            *(self._somebody("other", name) for name in ("bob", "fay", "hal")),
        ]
        ann, ben, cy, dee, gus, eve, bob, fay, hal = self.people
        self.spots = [
            *(self._spot("fake", each) for each in (ann, ben, cy, dee, gus, eve)),
            *(self._spot("other", each) for each in (bob, fay, hal)),
            *(self._spot("fake", each, profile=WORK) for each in (ann, cy)),
            self._spot("fake", cy),
            self._spot("fake", ann, cy, dee, gus, eve, alone=True),
            self._spot("fake", ben, cy, dee, gus),
            self._spot("fake", cy, dee, profile=WORK),
            self._spot("other", bob, fay, hal),
            self._spot("other", bob, fay, alone=True),
        ]
        self.options: dict[str, object] = {
            "scopes": self._scopes(),
            "profiles": tuple(self._rules()),
            "grants": tuple(self._grants()),
            "acknowledges": False,
            "sweep_every": timedelta(milliseconds=100),
            "revisions": ScopedSetting(default=chance.choice(list(RevisionPolicy))),
            "resets": ScopedSetting(default=ResetPolicy(mode=chance.choice((ResetMode.NEVER, ResetMode.IDLE)))),
            "message_limit": chance.choice((400, 12)),
        }

    def adapters(self) -> list[Adapter]:
        return [FakeAdapter(self.worlds["fake"]), FakeAdapter(self.worlds["other"], platform=OTHER)]

    def spot(self, name: str) -> Spot | None:
        return next((each for each in self.spots if each.name == name), None)

    def who(self, identity: str) -> Somebody:
        return next(each for each in self.people if each.identity == identity)

    def place(self, spot: Spot, somebody: Somebody, thread: str | None) -> Place:
        """The oracle's own reading of the scopes."""
        if spot.is_direct:
            return Place(spot.name)
        alone = self.threads_alone if thread else spot.alone
        return Place(spot.name, thread or "", somebody.identity if alone else "")

    def _somebody(self, platform: str, name: str) -> Somebody:
        person = self.worlds[platform].person(name)
        return Somebody(person, f"{platform}:{person.id}", _ROLES[platform].get(name, AccessRole.MEMBER))

    def _spot(self, platform: str, *people: Somebody, profile: str = "main", alone: bool = False) -> Spot:
        world = self.worlds[platform]
        if len(people) == 1:
            chat = world.dm(people[0].person)
        else:
            chat = world.group("group", *(each.person for each in people))
        return Spot(chat=chat, name=f"{platform}:{chat.id}", people=people, profile=profile, alone=alone)

    def _scopes(self) -> ScopedSetting[Scope]:
        thread = GroupScope.PER_USER if self.threads_alone else GroupScope.SHARED
        chats = {
            ChatName(spot.platform, spot.chat.id): Scope(
                dm=self.dm_scope, group=GroupScope.PER_USER if spot.alone else GroupScope.SHARED, thread=thread
            )
            for spot in self.spots
        }
        return ScopedSetting(default=Scope(dm=self.dm_scope), chats=chats)

    def _rules(self) -> Iterable[ProfileRule]:
        for spot in self.spots:
            if spot.profile == WORK:
                yield ProfileRule(profile=WORK, platform=spot.platform, chat_id=spot.chat.id)

    def _grants(self) -> Iterable[Grant]:
        for each in self.people:
            if each.role is not None:
                platform, _, user = each.identity.partition(":")
                yield Grant(platform=platform, user_id=user, role=each.role)
