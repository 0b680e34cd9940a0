"""Play a dialogue with a real engine: say each line, and listen until what stands there was heard."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Any

from palaver.agents.echo import EchoAgent
from palaver.db.transaction import JOBS, Notify, Statements, transaction
from palaver.model.value import value
from palaver.protocols.agent import Event, Request, ToolCalled
from palaver.tools.toolsets import Toolsets
from tests.dialogues.owner import Owner
from tests.dialogues.rules import rules
from tests.dialogues.script import Dialogue, Happens, Place, Says
from tests.dialogues.stage import Platforms, Terminal
from tests.engine.gateway import Bench, MovableClock, running, until

__all__ = ["play"]

_SPAN = re.compile(r"(?P<count>\d+) (?P<unit>minutes?|hours?|days?) pass(?:es)?")
_NEWS = re.compile(r"news for (?P<person>[a-z]+): (?P<text>.+)")


@value
class Unhurried(EchoAgent):
    """The echo agent with a tool that takes as long as the dialogue says."""

    is_done: asyncio.Event = field(default_factory=asyncio.Event)
    at_it: Counter[str] = field(default_factory=Counter[str])

    async def answer(self, request: Request) -> AsyncGenerator[Event]:
        async for event in EchoAgent.answer(self, request):
            yield event
            if isinstance(event, ToolCalled):
                self.at_it["tool"] += 1
                try:
                    await self.is_done.wait()
                finally:
                    self.at_it["tool"] -= 1


class Play:
    def __init__(self, dialogue: Dialogue, url: str, socket: Path | None) -> None:
        self._dialogue = dialogue
        self._url = url
        self._clock = MovableClock()
        self._owner = Owner(self._clock)
        self._stage = Terminal(socket, self._clock) if socket else Platforms(self._clock)
        self._streams = dialogue.options.get("streams") == "yes"
        self._agent = Unhurried(streams=self._streams)
        self._agent.is_done.set()
        self._remembered: dict[str, str] = {}
        self._listened = Counter[Place]()
        """How much of what was heard in each place has stood there already."""

    async def play(self) -> None:
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(self._open())
            for step in self._dialogue.steps:
                if isinstance(step, Says):
                    await self._stage.say(step, _filled(step.text, self._remembered))
                elif step.what == "the gateway restarts":
                    await stack.aclose()
                    here = await stack.enter_async_context(self._open())
                else:
                    await self._let_happen(here, step)
                if self._streams:  # What is still growing is not heard yet.
                    await until(lambda here=here: self._is_quiet(here))
                await self._listen(step)
                await until(lambda here=here: self._is_quiet(here))
            more = [text for place in self._stage.places() for text in self._unheard(place)]
            assert not more, f"{self._dialogue.title}: more was heard than stands there: {more}"

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Bench]:
        stage = self._stage
        world = stage.world if isinstance(stage, Platforms) else None
        options: Any = rules(self._dialogue)
        async with running(
            self._url,
            world,
            adapters=stage.adapters(),
            agent=self._agent,
            clock=self._clock,
            toolsets=Toolsets({}).toolsets,
            **options,
        ) as here:
            if isinstance(stage, Platforms):
                yield here
            else:
                async with stage.person.present():
                    yield here

    async def _let_happen(self, here: Bench, step: Happens) -> None:
        if span := _SPAN.fullmatch(step.what):
            self._clock.later(**{f"{span['unit'].rstrip('s')}s": int(span["count"])})
            await here.store.transact(_look_for_jobs())
        elif step.what == "the tool takes long":
            self._agent.is_done.clear()
        elif step.what == "the tool is done":
            self._agent.is_done.set()
        elif step.what == "the turn has ended":
            await until(lambda: _no_turn_runs(here))
        elif step.what == "the agent has found a title":
            await until(lambda: _all_titled(here))
        elif step.what == "a minute later the gateway has tidied up":
            await here.store.erasures.resume_all(self._clock.now())
            # The gateway may be at it already, and is not disturbed then.
            await until(lambda: _all_forgotten(here))
        elif (news := _NEWS.fullmatch(step.what)) and isinstance(self._stage, Platforms):
            await self._owner.tell(here, self._stage.source_of(news["person"]), news["text"])
        elif not await self._owner.does(here, _filled(step.what, self._remembered)):
            assert await self._stage.change(step), f"line {step.line}: what is {step.what!r}?"

    async def _listen(self, step: Says | Happens) -> None:
        for wanted in step.heard:
            place = wanted.place
            with suppress(TimeoutError):
                await until(lambda place=place: bool(self._unheard(place)))
            heard = self._unheard(place)
            assert heard, f"line {step.line}: wanted {wanted.text!r}, heard nothing"
            found = re.fullmatch(_pattern(wanted.text, self._remembered), heard[0].strip())
            assert found, f"line {step.line}: wanted {wanted.text!r}, heard {heard[0]!r}"
            self._remembered.update(found.groupdict())
            self._listened[place] += 1

    def _unheard(self, place: Place) -> list[str]:
        return list(self._stage.heard(place)[self._listened[place] :])

    async def _is_quiet(self, here: Bench) -> bool:
        """Everything that was said is taken, and nothing is done but what the dialogue holds up."""
        if not self._stage.is_taken():
            return False
        ((waiting, parked, running, owed),) = await here.rows(
            "SELECT (SELECT count(*) FROM inbox WHERE state = 'waiting'),"
            " (SELECT count(*) FROM turns WHERE state = 'parked'),"
            " (SELECT count(*) FROM turns WHERE state IN ('running', 'interrupted')),"
            " (SELECT count(*) FROM outbox WHERE state IN ('due', 'claimed', 'sending'))"
        )
        held = self._agent.at_it["tool"]
        return owed == 0 and running == held and (waiting == 0 or bool(held or parked))


@transaction
def _look_for_jobs() -> Statements[None]:
    """Wake the scheduler, which knows nothing of a clock that is moved."""
    yield Notify(JOBS)


async def play(dialogue: Dialogue, url: str, socket: Path | None = None) -> None:
    await Play(dialogue, url, socket).play()


async def _all_forgotten(here: Bench) -> bool:
    return not await here.rows("SELECT no FROM erasures WHERE ended IS NULL")


async def _no_turn_runs(here: Bench) -> bool:
    return not await here.rows("SELECT no FROM turns WHERE ended IS NULL")


async def _all_titled(here: Bench) -> bool:
    return await here.rows("SELECT count(*) FROM sessions WHERE title IS NULL") == [(0,)]


def _filled(text: str, remembered: Mapping[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: remembered[name[1]], text)


def _pattern(wanted: str, remembered: Mapping[str, str]) -> str:
    """Lines may have empty ones between them."""
    new: set[str] = set()

    def word(found: re.Match[str]) -> str:
        name = found[1]
        if name in remembered:
            return re.escape(remembered[name])
        again = name in new
        new.add(name)
        return f"(?P={name})" if again else rf"(?P<{name}>\S+?)"

    pattern = re.escape(wanted.strip()).replace("…", r"[\s\S]*").replace("\\\n", r"\n+")
    return re.sub(r"\\\{(\w+)\\\}", word, pattern)
