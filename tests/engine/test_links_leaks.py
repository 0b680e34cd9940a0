"""Whatever people say and command, linked and unlinked in the middle of it, nobody is shown the words of another."""

import random
import re
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

import pytest

from palaver.model.key import DmScope, GroupScope, Scope, ScopedSetting
from palaver.protocols.agent import Event, Final, Request
from palaver.store.status.invariants import violations
from palaver.testkit.chat import Chat
from palaver.testkit.updates import Person
from tests.engine.agents import Scripted, noted
from tests.engine.places import Two, between

WORD = re.compile(r"canary[a-z]\d+x")
STEPS = 70


async def tells_all(request: Request) -> AsyncGenerator[Event]:
    """An agent that repeats every word it was ever told in the conversation."""
    yield Final(text=f"heard: {' '.join(dict.fromkeys(WORD.findall(noted(request))))}")


@dataclass
class Somebody:
    person: Person
    chat: Chat
    name: str
    identity: str
    said: set[str] = field(default_factory=set[str])
    shown: set[str] = field(default_factory=set[str])
    """Words of others that were rightly shown in their chat."""
    took_part: set[int] = field(default_factory=set[int])
    """The sessions in which they spoke."""
    looked: int = 0


@dataclass
class Walk:
    two: Two
    chance: random.Random
    group: Chat
    members: list[Somebody]
    everybody: list[Somebody]
    circles: list[set[str]]
    said_in_group: set[str] = field(default_factory=set[str])
    groups: set[int] = field(default_factory=set[int])
    """The sessions of the group."""
    said_in: dict[str, int] = field(default_factory=dict[str, int])
    """The session of each word that was said in a direct chat."""
    number: int = 0

    def circle(self, who: Somebody) -> set[str]:
        return next(circle for circle in self.circles if who.identity in circle)

    def word(self, who: Somebody) -> str:
        self.number += 1
        word = f"canary{who.name}{self.number}x"
        who.said.add(word)
        return word

    def may_see(self, who: Somebody) -> set[str]:
        mine = [each for each in self.everybody if each.identity in self.circle(who)]
        words = {word for each in mine for word in (*each.said, *each.shown)}
        if any(each in self.members for each in mine):
            words |= self.said_in_group
        return words

    async def ask(self, who: Somebody, text: str) -> str:
        """What is answered, which holds no word of another."""
        answer = await self.two.ask(who.chat, who.person, text)
        for each in self.everybody:
            found = set(WORD.findall("".join(message.text for message in each.chat.shown[each.looked :])))
            each.looked = len(each.chat.shown)
            allowed = self.may_see(each)
            assert found <= allowed, f"{who.name} said {text!r}: {each.name} was shown {found - allowed}"
            each.shown |= found
        return answer

    async def step(self) -> None:
        who = self.chance.choice(self.everybody)
        act = self.chance.choice([self._say, self._say, self._command, self._command, self._in_group, self._change])
        await act(who)

    async def _say(self, who: Somebody) -> None:
        word = self.word(who)
        await self.ask(who, word)
        self.said_in[word] = session = await self._where()
        who.took_part.add(session)
        if session in self.groups:  # they took the group's conversation to their chat, or the chat to it
            self._give_to_group(who, word)

    async def _in_group(self, who: Somebody) -> None:
        if who in self.members:
            word = self.word(who)
            self._give_to_group(who, word)
            await self.two.ask(self.group, who.person, word)
            await self._where()

    def _give_to_group(self, who: Somebody, word: str) -> None:
        who.said.remove(word)
        self.said_in_group.add(word)

    async def _where(self) -> int:
        """The session in which something was said last."""
        newest = "SELECT session_no, key FROM turns ORDER BY no DESC LIMIT 1"
        number, key = (await self.two.here.rows(newest))[0]
        if ":group:" in key:
            self.groups.add(number)
        return number

    async def _command(self, who: Somebody) -> None:
        another = self.chance.choice(self.everybody)
        sessions = await self.two.here.rows("SELECT id, title FROM sessions")
        session, title = self.chance.choice(sessions or [("none", None)])
        word = self.chance.choice([*sorted(another.said | self.said_in_group), "canary"])
        command = self.chance.choice(
            [
                *("/new", f"/new Title {who.name}", "/back", "/undo", "/redo", "/sessions", "/resume", "/branch"),
                *(
                    f"/resume {session}",
                    f"/resume {session[:20]}",
                    f"/resume {title or 'Title a'}",
                    f"/resume {session}",
                ),
                *(f"/search {word}", f"/search {word}", f"/attach {session}", "/detach", "/retry", "/status"),
            ]
        )
        before = len(sessions)
        await self.ask(who, command)
        # They take part in what they began, and in what they acted on.
        acted_on = (
            "SELECT no FROM sessions WHERE no > ? OR id IN (SELECT parent FROM sessions WHERE no > ?)"
            " OR (? = 1 AND ended IS NULL AND key = (SELECT key FROM inbox ORDER BY no DESC LIMIT 1))"
        )
        hides = int(command in {"/undo", "/redo"})
        who.took_part |= {row[0] for row in await self.two.here.rows(acted_on, before, before, hides)}

    async def _change(self, who: Somebody) -> None:
        if len(self.circle(who)) > 1 and self.chance.random() < 0.6:
            await self._unlink(who)
        else:
            other = self.chance.choice([each for each in self.everybody if each is not who])
            await self._link(who, other)

    async def _link(self, one: Somebody, other: Somebody) -> None:
        code = re.search(r"code is (\w+)\.", await self.ask(one, "/link"))
        assert code
        if "your own" in await self.ask(other, f"/link {code[1]}"):
            return
        await self.ask(other, "/link yes")
        assert "one person now" in await self.ask(one, "/link yes")
        joined = self.circle(one) | self.circle(other)
        self.circles = [*(each for each in self.circles if not each & joined), joined]

    async def _unlink(self, who: Somebody) -> None:
        account = self.chance.choice(sorted(self.circle(who)))
        answer = await self.ask(who, self.chance.choice(["/unlink", f"/unlink {account}"]))
        for each in self.everybody:  # what was common stays readable for all who took part; what is said later is not
            common = each.took_part - self.groups
            each.shown |= {word for word, session in self.said_in.items() if session in common}
        parted = [set(line.split(", ")) for line in answer.splitlines()[1:] if line[:4] != "What"]
        everyone = set[str]().union(*parted)
        self.circles = [*(each for each in self.circles if not each & everyone), *parted]


def somebody(two: Two, name: str, *, other: bool) -> Somebody:
    world, platform = (two.other, "other") if other else (two.fake, "fake")
    person = world.person(name)
    return Somebody(person, world.dm(person), name, f"{platform}:{person.id}")


async def walk(url: str, seed: int, scope: DmScope) -> None:
    scopes = ScopedSetting(default=Scope(dm=scope, group=GroupScope.SHARED))
    async with between(url, agent=Scripted(tells_all), scopes=scopes) as two:
        people = [somebody(two, name, other=name in "bd") for name in "abcd"]
        members = [people[0], people[2]]
        group = two.fake.group("friends", *(each.person for each in members))
        chance = random.Random(seed)  # noqa: S311 - it makes a walk, and keeps no secret
        walk = Walk(two, chance, group, members, people, [{each.identity} for each in people])
        for _ in range(STEPS):
            await walk.step()
        await two.here.settled()
        assert await two.here.store.read(violations()) == []


@pytest.mark.parametrize(("seed", "scope"), [(1, DmScope.PER_PERSON), (3, DmScope.PER_CHAT), (76, DmScope.PER_PERSON)])
async def test_nobody_is_shown_the_words_of_another(store_url: str, seed: int, scope: DmScope) -> None:
    await walk(store_url, seed, scope)
