"""Scenery: people, chats, what they will say and what will go wrong, all drawn from the seed."""

import random
from dataclasses import dataclass
from datetime import timedelta

from palaver.agents.echo import EchoAgent
from palaver.engine.settings import Settings
from palaver.model.access import AccessRole, Grant
from palaver.model.key import GroupScope, Scope, ScopedSetting
from palaver.model.reset import ResetMode, ResetPolicy
from palaver.model.turn import BusyMode, QuestionMode
from palaver.protocols.adapter import Limits
from palaver.testkit.chat import Chat
from palaver.testkit.faults import Faults
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from tests.settings import settings

__all__ = ["Line", "Scenery", "draw_lines", "draw_scenery"]

_ORDERS = (
    *("", "", "", "", "!tool ", "!approve ", "!approve "),
    *("!slow 1 ", "!slow 4 ", "!slow 30 ", "!busy 1 ", "!busy 9 ", "!fail ", "!hang "),
)
_COMMANDS = (
    *("/stop", "/stop", "/approve", "/approve", "/approve", "/deny", "/title", "/status", "/new", "/back"),
    *("/help", "/help nonsense", "/compress", "/compress m"),
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """Something that somebody will say."""

    at: float
    chat: Chat
    person: Person
    text: str
    thread: str | None


@dataclass(frozen=True, kw_only=True)
class Scenery:
    world: FakePlatform
    faults: Faults
    """What the platform does wrong while people talk."""
    accounts: tuple[str, ...]
    limits: Limits
    agent: EchoAgent
    settings: Settings
    busy: BusyMode
    gateways: int
    length: float
    """How many seconds people talk and things go wrong."""


def draw_scenery(chance: random.Random) -> Scenery:
    longest = chance.choice((120, 4000))
    interval = chance.choice((0.0, 0.0, 0.5))
    repeats_safely = chance.random() < 0.3
    faults = _faults(chance)
    world = FakePlatform(
        faults=faults,
        seed=chance.getrandbits(32),
        max_text=longest,
        interval=interval,
        repeats_safely=repeats_safely,
    )
    accounts = ("bot", "twin")[: chance.choice((1, 2))]
    _people_the_world(world, accounts, chance)
    busy = chance.choice(tuple(BusyMode))
    return Scenery(
        world=world,
        faults=faults,
        accounts=accounts,
        limits=Limits(text=longest, interval=interval, draft_interval=0.5, repeats_safely=repeats_safely),
        agent=EchoAgent(delay=chance.choice((0.0, 0.05, 1.0)), streams=chance.random() < 0.5),
        settings=_settings(busy, chance),
        busy=busy,
        gateways=chance.choice((1, 1, 2, 3)),
        length=chance.choice((15.0, 40.0, 100.0)),
    )


def draw_lines(scenery: Scenery, chance: random.Random) -> list[Line]:
    chats = list(scenery.world.chats.values())
    lines: list[Line] = []
    for number in range(chance.randint(5, 30)):
        chat = chance.choice(chats)
        words = f"{chance.choice(_ORDERS)}m{number}" if chance.random() < 0.85 else chance.choice(_COMMANDS)
        if chance.random() < 0.1:
            words += " and on" * chance.choice((15, 20, 60))
        lines.append(
            Line(
                at=chance.uniform(0, scenery.length),
                chat=chat,
                person=chance.choice(chat.people),
                text=words,
                thread=chance.choice((None, "t1", "t2")) if chat.kind == "group" else None,
            )
        )
    return sorted(lines, key=lambda line: line.at)


def _faults(chance: random.Random) -> Faults:
    def often(most: float) -> float:
        return chance.choice((0.0, 0.0, most / 4, most))

    return Faults(
        duplicate=often(0.4),
        reorder=often(0.4),
        disconnect=often(0.1),
        refused=often(0.1),
        gone=often(0.05),
        busy=often(0.3),
        lost_before=often(0.2),
        lost_after=often(0.2),
        delay=chance.choice((0.0, 0.0, 0.3, 8.0)),
    )


def _people_the_world(world: FakePlatform, accounts: tuple[str, ...], chance: random.Random) -> None:
    people = [world.person(name) for name in ("ann", "bob", "cem")]
    for person in people:
        world.dm(person, account=chance.choice(accounts))
    stranger = world.person("machine", is_bot=True)
    world.group("all", *people, stranger, accounts=accounts)
    world.group("two", *people[:2], accounts=(accounts[0],))


def _settings(busy: BusyMode, chance: random.Random) -> Settings:
    return settings(
        grants=(Grant(platform="fake", role=AccessRole.MEMBER),),
        busy=ScopedSetting(default=busy),
        scopes=ScopedSetting(default=Scope(group=chance.choice(tuple(GroupScope)))),
        concurrent_turns=chance.choice((2, 16)),
        concurrent_sends=chance.choice((2, 32)),
        quiet_limit=timedelta(seconds=10),
        turn_limit=timedelta(seconds=chance.choice((20, 60))),
        drain_limit=timedelta(seconds=5),
        send_limit=timedelta(seconds=chance.choice((5, 10))),
        lease=timedelta(seconds=chance.choice((6, 15))),
        poll=timedelta(seconds=5),
        message_limit=chance.choice((10, 400)),
        titles=chance.random() < 0.5,
        resets=ScopedSetting(default=chance.choice((ResetPolicy(), ResetPolicy(mode=ResetMode.IDLE, idle_minutes=1)))),
        sweep_every=timedelta(seconds=20),
        questions=ScopedSetting(default=chance.choice(tuple(QuestionMode))),
    )
