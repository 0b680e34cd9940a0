"""Play a dialogue with a real engine: on the fake platform, or at a terminal."""

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from palaver.domain.access import AccessRole, Grant
from palaver.domain.busy import BusyMode
from palaver.domain.layers import Layers
from palaver.domain.platform import Platform
from palaver.platforms.kit.adapter import FakeAdapter
from palaver.platforms.kit.chat import Chat
from palaver.platforms.kit.messages import Person as Somebody
from palaver.platforms.kit.world import World
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.ports.adapter import Adapter
from tests.dialogues.script import Dialogue, Happens, Says
from tests.engine.gateway import Bench, MovableClock, running
from tests.platforms.terminal.people import Paper, Person, PlainDesk

__all__ = ["play"]

_OTHER = Platform(name="other", title="Other platform")
_SPAN = re.compile(r"(?P<count>\d+) (?P<unit>minutes?|hours?|days?) pass")


class Stage(Protocol):
    """Where a dialogue is played: what is said reaches the engine, and what is heard can be asked for."""

    async def say(self, step: Says, text: str) -> None: ...
    def heard(self, step: Says) -> Sequence[str]:
        """Everything heard so far where the step is said."""
        ...

    def everywhere(self) -> int:
        """How many messages were heard in all."""
        ...

    def adapters(self) -> Sequence[Adapter]: ...


class Platforms:
    """Two fake platforms: the usual one, and `elsewhere`."""

    def __init__(self, clock: MovableClock) -> None:
        self._worlds = {"fake": World(clock=clock), "other": World(clock=clock)}
        self._chats: dict[tuple[str, str | None], Chat] = {}

    def adapters(self) -> Sequence[Adapter]:
        return [FakeAdapter(self._worlds["fake"]), FakeAdapter(self._worlds["other"], platform=_OTHER)]

    async def say(self, step: Says, text: str) -> None:
        await self._chat(step).say(_person(step.person), text)

    def heard(self, step: Says) -> Sequence[str]:
        return [message.text for message in self._chat(step).shown]

    def everywhere(self) -> int:
        return sum(len(chat.shown) for world in self._worlds.values() for chat in world.chats.values())

    @property
    def world(self) -> World:
        return self._worlds["fake"]

    def _world(self, step: Says) -> World:
        return self._worlds["other" if step.place == "elsewhere" else "fake"]

    def _chat(self, step: Says) -> Chat:
        name = (step.person if step.place in {None, "elsewhere"} else "", step.place)
        if name not in self._chats:
            world = self._world(step)
            group = step.place not in {None, "elsewhere"}
            self._chats[name] = world.group(step.place or "") if group else world.dm(_person(step.person))
        return self._chats[name]


def _person(name: str) -> Somebody:
    return Somebody(id=name, name=name)


class Terminal:
    """One person at one terminal."""

    def __init__(self, path: Path, clock: MovableClock) -> None:
        self._path = path
        self._clock = clock
        self._paper = Paper()
        self.person = Person(path, paper=self._paper)

    def adapters(self) -> Sequence[Adapter]:
        return [TerminalAdapter(self._path, PlainDesk(), self._clock)]

    async def say(self, step: Says, text: str) -> None:
        assert step.place is None
        self.person.say(text)

    def heard(self, step: Says) -> Sequence[str]:
        assert step.person
        return self._paper.texts

    def everywhere(self) -> int:
        return len(self._paper.texts)


async def play(dialogue: Dialogue, url: str, socket: Path | None = None) -> None:
    clock = MovableClock()
    stage = Terminal(socket, clock) if socket else Platforms(clock)
    remembered: dict[str, str] = {}
    expected = 0
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(_open(dialogue, url, stage, clock))
        for step in dialogue.steps:
            if isinstance(step, Says):
                expected += await _hear(stage, step, remembered)
            elif step.what == "the gateway restarts":
                await here.settled()
                await stack.aclose()
                here = await stack.enter_async_context(_open(dialogue, url, stage, clock))
            else:
                _pass(step, clock)
        await here.settled()
        assert stage.everywhere() == expected, f"{dialogue.title}: more was heard than stands there"


@asynccontextmanager
async def _open(
    dialogue: Dialogue, url: str, stage: Platforms | Terminal, clock: MovableClock
) -> AsyncGenerator[Bench]:
    world = stage.world if isinstance(stage, Platforms) else None
    options: Any = _options(dialogue)
    async with running(url, world, adapters=stage.adapters(), clock=clock, **options) as here:
        if isinstance(stage, Platforms):
            yield here
        else:
            async with stage.person.present():
                yield here


def _options(dialogue: Dialogue) -> dict[str, object]:
    given = {name: role for name, role in dialogue.people.items() if role != "stranger"}
    grants = tuple(
        Grant(platform=platform, user_id=name, role=AccessRole[role.upper()])
        for name, role in given.items()
        for platform in ("fake", "other")
    )
    chosen: dict[str, object] = {
        "grants": (*grants, Grant(platform="terminal", role=AccessRole.OWNER)),
        "burst_window": timedelta(0),
    }
    if "busy" in dialogue.options:
        chosen["busy"] = Layers(default=BusyMode(dialogue.options["busy"]))
    return chosen


async def _hear(stage: Stage, step: Says, remembered: dict[str, str]) -> int:
    before = len(stage.heard(step))
    await stage.say(step, re.sub(r"\{(\w+)\}", lambda name: remembered[name[1]], step.text))
    try:
        async with asyncio.timeout(5):
            while len(stage.heard(step)) < before + len(step.heard):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
    except TimeoutError:
        pass
    heard = stage.heard(step)[before:]
    for wanted, text in zip(step.heard, heard, strict=False):
        found = re.fullmatch(_pattern(wanted), text.strip())
        assert found, f"line {step.line}: wanted {wanted!r}, heard {text!r}"
        remembered.update(found.groupdict())
    assert len(heard) >= len(step.heard), f"line {step.line}: wanted {step.heard}, heard {heard}"
    return len(step.heard)


def _pattern(wanted: str) -> str:
    pattern = re.escape(wanted.strip()).replace("…", r"[\s\S]*")
    return re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>\\S+?)", pattern)


def _pass(step: Happens, clock: MovableClock) -> None:
    span = _SPAN.fullmatch(step.what)
    assert span, f"line {step.line}: what is {step.what!r}?"
    clock.later(**{f"{span['unit'].rstrip('s')}s": int(span["count"])})
