"""A walk: people talk and try commands in an order that the seed says; after every step it is seen who saw what."""

import asyncio
import random
import re
from collections import defaultdict
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from palaver.model.source import identity_of
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.records import INBOX_COLUMNS, SEQS, from_json, received_of, source_of
from palaver.store.status.invariants import violations
from palaver.testkit.updates import Message
from palaver.tools.memory import MemoryTools
from palaver.tools.search import SearchTools
from tests.engine.gateway import Bench, MovableClock, running
from tests.leaks.oracle import Facts, Opening, Oracle, Spoke
from tests.leaks.town import Somebody, Spot, Town, secrets_in

__all__ = ["Leak", "Walk", "walk"]

PATIENCE = 180.0
_INBOX = f"SELECT {INBOX_COLUMNS} FROM inbox i LEFT JOIN turns t ON t.no = i.turn_no"  # noqa: S608
THREADS = (None, None, "t1", "t2")


class Leak(AssertionError):
    """Somebody was shown what they may not see."""


@dataclass
class Walk:
    seed: int
    url: str
    files: Path
    aloud: bool = False
    clock: MovableClock = field(default_factory=MovableClock)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)  # noqa: S311 - it makes a walk, and keeps no secret
        self.town = Town(self.chance)
        self.oracle = Oracle(self.town)
        self.number = 0
        self.forgot = False
        self.plants: list[tuple[Somebody, Spot, Message]] = []
        self.seen: set[tuple[str, str, str]] = set()
        self.last_inbox = 0
        self.open_before: dict[str, int] = {}
        self.trail: list[str] = []
        self.here: Bench
        self._stack = AsyncExitStack()

    # The gateway

    async def start(self) -> None:
        options = self.town.options
        gateway = running(
            self.url,
            self.town.worlds["fake"],
            adapters=self.town.adapters(),
            agent=self.town.agent,
            clock=self.clock,
            shelf=BlobStore(self.files),
            toolsets=lambda store: (SearchTools(store), MemoryTools(store)),
            **options,  # pyright: ignore[reportArgumentType]
        )
        self.here = await self._stack.enter_async_context(gateway)

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        self._tell("the gateway is killed and started again")
        await self.stop()
        await self.start()

    async def quiet(self) -> None:
        """Until nothing waits, runs or is owed any more."""
        async with asyncio.timeout(PATIENCE):
            while not await self._is_quiet():  # noqa: ASYNC110 - nobody would set an event
                await asyncio.sleep(0.002)

    async def _is_quiet(self) -> bool:
        if any(world.unacknowledged() for world in self.town.worlds.values()):
            return False
        rows = await self.here.rows(
            "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting')"
            " + (SELECT count(*) FROM turns WHERE state IN ('running', 'interrupted'))"
            " + (SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending'))"
            " + (SELECT count(*) FROM erasures WHERE ended IS NULL)"
        )
        return rows[0][0] == 0

    # Speaking

    def _tell(self, line: str) -> None:
        self.trail.append(line)
        if self.aloud:
            print(f"{len(self.trail):4} {line}", flush=True)  # noqa: T201 - for people who replay a seed

    async def say(self, who: Somebody, spot: Spot, text: str, thread: str | None = None) -> Message:
        place = self.town.place(spot, who, thread)
        for word in sorted(secrets_in(text) - self.oracle.speaker.keys()):
            self.oracle.said(word, who, spot, place)
        self._tell(f"{who.person.name} in {spot.name} {thread or ''}: {text}")
        return await spot.chat.say(who.person, text, thread=thread)

    async def ask(self, who: Somebody, spot: Spot, text: str, thread: str | None = None) -> str:
        """What is answered to it; everything that is shown meanwhile is judged."""
        said = await self.say(who, spot, text, thread)
        await self.judge()
        answers = [each.text for each in spot.chat.shown if each.reply_to == said.id]
        for answer in answers:
            self._tell(f"    -> {answer[:200]!r}")
        return "\n".join(answers)

    def plant(self) -> str:
        """A handle to search for, and a secret that nobody types twice."""
        self.number += 1
        return f"note h{self.number}h u{self.number}u"

    # Judging

    async def judge(self) -> None:
        await self.quiet()
        facts, spoke = await self._facts(), await self._spoke()
        problems = self.oracle.learn(facts, spoke)
        problems += [problem for spot in self.town.spots for problem in self._read(spot)]
        problems += await self._look_at_prompts()
        if problems:
            last = "\n".join(self.trail[-40:])
            raise Leak(f"seed {self.seed}, step {len(self.trail)}: {'; '.join(problems)}\n{last}")
        self.oracle.rest()

    async def _facts(self) -> Facts:
        sessions = await self.here.rows("SELECT no, key, ended, title FROM sessions")
        entries = await self.here.rows("SELECT id / ?, hidden_by, body FROM entries", SEQS)
        visible, everything = defaultdict[int, set[str]](set), defaultdict[int, set[str]](set)
        for number, hidden_by, body in entries:
            words = secrets_in(bytes(body).decode(errors="replace") if not isinstance(body, str) else body)
            everything[number] |= words
            if hidden_by is None:
                visible[number] |= words
        for number, _, _, title in sessions:
            everything[number] |= secrets_in(title or "")
            visible[number] |= secrets_in(title or "")
        openings = await self.here.rows(
            "SELECT o.no, o.session_no, o.actor, o.details, a.place FROM operations o"
            " LEFT JOIN attached_chats a ON a.operation = o.no"
            " WHERE a.place IS NOT NULL OR (o.kind = 'handoff' AND o.undone_at IS NULL)"
        )
        self.open_now = {key: number for number, key, ended, _ in sessions if ended is None}
        return Facts(
            keys={number: key for number, key, *_ in sessions},
            visible={number: frozenset(words) for number, words in visible.items()},
            everything={number: frozenset(words) for number, words in everything.items()},
            openings={
                number: Opening(
                    number=number, session=session, by=by, to=place or _home(details), is_handoff=place is None
                )
                for number, session, by, details, place in openings
            },
        )

    async def _spoke(self) -> list[Spoke]:
        """Who has spoken in this step, where, and in which sessions that was."""
        rows = await self.here.rows(
            f"{_INBOX} WHERE i.no > ? AND i.state <> 'refused' AND length(i.body) > 0", self.last_inbox
        )
        turns = dict(await self.here.rows("SELECT i.no, t.session_no FROM inbox i JOIN turns t ON t.no = i.turn_no"))
        spoke: list[Spoke] = []
        for received in map(received_of, rows):
            self.last_inbox = max(self.last_inbox, received.number)
            source, key = received.inbound.source, received.key.text
            identity = identity_of(source) or ""
            spot = self.town.spot(f"{source.platform}:{source.chat_id}")
            if spot is None:
                continue
            place = self.town.place(spot, self.town.who(identity), source.thread_id)
            sessions = {turns.get(received.number), self.open_before.get(key), self.open_now.get(key)}
            spoke += [Spoke(identity, place, session, key) for session in sessions if session is not None]
        self.open_before = self.open_now
        return spoke

    def _read(self, spot: Spot) -> list[str]:
        problems: list[str] = []
        for message in spot.chat.shown:
            version = (spot.name, message.id, message.text)
            if version in self.seen:
                continue
            self.seen.add(version)
            files = [file.content.decode(errors="replace") for file in message.files]
            answered = spot.chat.find(message.reply_to) if message.reply_to else None
            typed = secrets_in(answered.text) if answered else frozenset[str]()
            found = secrets_in(message.text, *files, *(file.name for file in message.files)) - typed
            allowed = self._allowed(spot, message, answered)
            if found - allowed:
                problems.append(f"{spot.name} was shown {sorted(found - allowed)} in {message.text[:300]!r}")
        return problems

    def _allowed(self, spot: Spot, message: Message, answered: Message | None) -> frozenset[str]:
        """By the person it answers; what answers nobody is for everybody there."""
        speakers = [each for each in spot.people if not answered or each.person.id == answered.author]
        threads = (message.thread, answered.thread) if answered else (message.thread,)
        places = {self.town.place(spot, each, thread) for each in speakers for thread in threads}
        return frozenset[str]().union(*(self.oracle.allowed(place) for place in places))

    async def _look_at_prompts(self) -> list[str]:
        shown, self.town.agent.shown = self.town.agent.shown, []
        problems: list[str] = []
        for turn, words in shown:
            rows = await self.here.rows(f"{_INBOX} WHERE i.turn_no = ? ORDER BY i.no DESC LIMIT 1", turn)
            for received in map(received_of, rows):
                source = received.inbound.source
                spot = self.town.spot(f"{source.platform}:{source.chat_id}")
                if spot is None or not (identity := identity_of(source)):
                    continue
                place = self.town.place(spot, self.town.who(identity), source.thread_id)
                strange = words - self.oracle.allowed(place)
                self.oracle.told(identity, place, words - strange)
                if strange:
                    problems.append(f"the agent was shown {sorted(strange)} for {identity} in {place}")
        return problems

    # Statements

    async def step(self) -> None:
        acts = {
            self._talk: 8,
            self._talk_at_once: 2,
            self._command: 16,
            self._probe: 8,
            self._link: 2,
            self._unlink: 2,
            self._revise: 2,
            self._later: 1,
            self._restart: 1,
            self._forget: 0 if self.chance.random() < 0.9 else 1,
        }
        (act,) = self.chance.choices(list(acts), list(acts.values()))
        await act()

    def _somewhere(self) -> tuple[Somebody, Spot, str | None]:
        spot = self.chance.choice(self.town.spots)
        thread = None if spot.is_direct else self.chance.choice(self._threads(spot))
        return self.chance.choice(spot.people), spot, thread

    def _threads(self, spot: Spot) -> list[str | None]:
        """Also those that a handoff has opened."""
        return [*THREADS, *sorted({each.thread for each in spot.chat.shown if each.thread} - {"t1", "t2"})]

    async def _talk(self) -> None:
        who, spot, thread = self._somewhere()
        said = await self.say(who, spot, self.plant(), thread)
        self.plants.append((who, spot, said))
        await self.judge()

    async def _talk_at_once(self) -> None:
        for _ in range(self.chance.randint(2, 4)):
            who, spot, thread = self._somewhere()
            self.plants.append((who, spot, await self.say(who, spot, self.plant(), thread)))
        await self.judge()

    async def _command(self) -> None:
        who, spot, thread = self._somewhere()
        platform = self.chance.choice(list(self.town.worlds))
        # A title stays with the person who began the conversation, also one that somebody linked with them has given.
        alone = len(self.oracle.circle(who.identity)) == 1
        title = f"/title Plan {self.plant()}" if alone else "/title Plan"
        note = self.chance.randint(1, 20)
        commands = [
            *("/new", f"/new Plan {self.plant()}", title, "/title", "/back", "/back"),
            *("/undo", "/undo 9", "/redo", "/retry", "/branch", "/branch --at 1", "/detach", "/compress"),
            *("/sessions", "/resume", "/status", "/usage", "/whoami", "/export", "/export jsonl", "/help", "/model"),
            *("!use remember", "!use remember", "/memory", "/memory", f"/memory forget {note}"),
            f"/memory edit {note} {self.plant() if alone else 'Plan'}",
            *(f"/handoff {platform} --yes", "/sethome", "/stop", "/approve", "/link yes", "/search note"),
        ]
        await self.ask(who, spot, self.chance.choice(commands), thread)

    async def _probe(self) -> None:
        """For something of others, by everything that names it."""
        who, spot, thread = self._somewhere()
        rows = await self.here.rows("SELECT id, title, no FROM sessions ORDER BY no")
        session, title, number = self.chance.choice(rows or [("01", None, 0)])
        name = self.chance.choice(
            [session, session[:12], session[:4], title or session, str(self.chance.randint(1, 12))]
        )
        handle = f"h{self.chance.randint(1, max(self.number, 1))}h"
        everything = " --all" if self.town.nosy and self.chance.random() < 0.5 else ""
        probes = [
            *(f"/resume {name}{everything}", f"/resume {name}", f"/export {name}", f"/export html {name}"),
            *(f"/attach {name} --yes", f"/attach {name} --yes", f"/attach {name}"),
            *(f"/search {handle}", f"/search {handle} --role user --order best", f"/sessions{everything}"),
            *(f"!use search {handle}", "!use search note"),
        ]
        text = self.chance.choice(probes)
        self._tell(f"(session {number})")
        await self.ask(who, spot, text, thread)

    def _direct(self) -> tuple[Somebody, Spot]:
        spot = self.chance.choice([each for each in self.town.spots if each.is_direct])
        return spot.people[0], spot

    async def _link(self) -> None:
        one, here = self._direct()
        other, there = self._direct()
        code = re.search(r"code is (\w+)\.", await self.ask(one, here, "/link"))
        if code is None:
            return
        if self.chance.random() < 0.2:
            other, there = self._direct()
        await self.ask(other, there, f"/link {code[1]}")
        await self.ask(other, there, self.chance.choice(("/link yes", "/link yes", "/link yes", "/link no")))
        answer = await self.say(one, here, "/link yes")
        await self.quiet()
        if any(each.reply_to == answer.id and "one person now" in each.text for each in here.chat.shown):
            self.oracle.linked(one.identity, other.identity)
        await self.judge()

    async def _unlink(self) -> None:
        linked = sorted({each for link in self.oracle.links for each in link})
        if not linked:
            return
        who = self.town.who(self.chance.choice(linked))
        spot = next(each for each in self.town.spots if each.is_direct and who in each.people)
        account = self.chance.choice(["", *sorted(self.oracle.circle(who.identity))])
        said = await self.say(who, spot, f"/unlink {account}".strip())
        await self.quiet()
        if any(each.reply_to == said.id and "different people" in each.text for each in spot.chat.shown):
            self._tell("    parted")
            if account:
                self.oracle.unlinked(account)
            else:
                self.oracle.unlinked_last(who.identity)
        await self.judge()

    async def _revise(self) -> None:
        if not self.plants:
            return
        who, spot, said = self.chance.choice(self.plants)
        found = spot.chat.find(said.id)
        if found is None or found.deleted:
            return
        if self.chance.random() < 0.5:
            self._tell(f"{who.person.name} deletes {found.text}")
            await spot.chat.delete(who.person, found)
        else:
            text = self.plant()
            for word in sorted(secrets_in(text)):
                self.oracle.said(word, who, spot, self.town.place(spot, who, found.thread))
            self._tell(f"{who.person.name} changes {found.text} to {text}")
            await spot.chat.edit(who.person, found, text)
        await self.judge()

    async def _later(self) -> None:
        self.clock.later(days=2)
        self._tell("two days later")

    async def _restart(self) -> None:
        await self.restart()

    async def _forget(self) -> None:
        who, spot = self._direct()
        await self.ask(who, spot, "/forget")
        if who.role is not None and who.identity != self.town.people[0].identity:
            said = await self.say(who, spot, "/forget --yes")
            await self.quiet()
            self.oracle.forgotten(who.identity)
            self.forgot = True
            self._tell(f"    forgotten {said.id}")
            await self.judge()


def _home(details: str) -> str:
    home = source_of(from_json(details)["home"])
    return f"{home.platform}:{home.chat}"


async def walk(seed: int, url: str, files: Path, steps: int, *, aloud: bool = False) -> Walk:
    """Raises Leak where somebody sees what they may not."""
    taken = Walk(seed, url, files, aloud=aloud)
    await taken.start()
    try:
        for _ in range(steps):
            await taken.step()
        broken = [] if taken.forgot else await taken.here.store.read(violations())
        assert broken == [], f"seed {seed}: {broken}"
    finally:
        await taken.stop()
    return taken
