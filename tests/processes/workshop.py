"""A gateway whose agent has a terminal: the real engine, real supervisors, and a fake platform to speak into."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from palaver.model.access import AccessRole, Grant
from palaver.model.command_policy import CommandPolicy
from palaver.model.process import Process
from palaver.model.session import Principal
from palaver.processes.backends.base import Backend, LocalBackend
from palaver.processes.home import ProcessHome
from palaver.processes.launcher import kill
from palaver.processes.manager import ProcessManager
from palaver.protocols.tools import Toolset
from palaver.store.processes import Keeper, ProcessLimits
from palaver.store.store import Store
from palaver.testkit.chat import Chat
from palaver.testkit.platform import FakePlatform
from palaver.testkit.updates import Person
from palaver.tools.terminal import TerminalTools
from tests.engine.gateway import Bench, MovableClock, running, until

__all__ = ["Workshop", "use", "workshop"]

OPERATOR = Principal.operator()
OWNERS = (Grant(role=AccessRole.OWNER),)


def use(tool: str, **arguments: object) -> str:
    return f"!use {tool} {json.dumps(arguments)}"


@dataclass(kw_only=True)
class Workshop:
    here: Bench
    manager: ProcessManager
    alice: Person
    chat: Chat
    clock: MovableClock

    async def uses(self, tool: str, **arguments: object) -> str:
        """What the agent learns from a tool."""
        before = await self._results()

        async def has_answered() -> bool:
            return await self._results() > before

        await self.chat.say(self.alice, use(tool, **arguments))
        await until(has_answered)
        (result,) = [entry.text for entry in await self.here.entries() if entry.answers][-1:]
        return result

    async def _results(self) -> int:
        return (await self.here.rows("SELECT count(*) FROM entries WHERE role = 'tool'"))[0][0]

    async def runs(self, command: str, **arguments: object) -> str:
        told = await self.uses("terminal", command=command, **arguments)
        return re.sub(r"^\((.*?) after [0-9]+ s", r"(\1 after 0 s", told)

    async def does(self, action: str, **arguments: object) -> str:
        return await self.uses("process", action=action, **arguments)

    async def starts(self, command: str, **arguments: object) -> Process:
        """Start it in the background, and return it."""
        told = await self.runs(command, background=True, **arguments)
        assert told.startswith("Started p"), told
        return await self.process(told.split()[1])

    async def process(self, name: str) -> Process:
        return await self.here.store.read(self.here.store.processes.find(name, OPERATOR))

    async def ended(self, process: Process) -> Process:
        async def has_ended() -> bool:
            return (await self.process(process.name)).ended is not None

        await until(has_ended)
        return await self.process(process.name)

    def output(self, process: Process) -> bytes:
        directory = self.manager.directory(process)
        return b"".join(data for _, data in directory.read(0, directory.size()))

    async def writes(self, process: Process, text: bytes) -> None:
        """Wait until its output has this."""
        await until(lambda: text in self.output(process))


@asynccontextmanager
async def workshop(
    url: str | Path,
    folder: Path,
    *,
    again: Workshop | None = None,
    worker: str = "w1",
    policy: CommandPolicy | None = None,
    limits: ProcessLimits | None = None,
    wait_limit: timedelta = timedelta(seconds=20),
    backend: Backend | None = None,
    home: str = "here",
    alone: bool = True,
    keeps: bool = False,
    **changed: Any,
) -> AsyncGenerator[Workshop]:
    """A gateway with processes in `folder`, `again` after one that died.

    When the test is over, processes are killed, unless a next gateway needs them.
    """
    world, clock = (again.here.world, again.clock) if again else (FakePlatform(), MovableClock())
    alice = again.alice if again else world.person("alice")
    place = ProcessHome(path=folder / f"processes-{home}", token=home)
    work = folder / "work"
    for each in (place.path, work):
        each.mkdir(mode=0o700, parents=True, exist_ok=True)
    made: list[ProcessManager] = []
    options: dict[str, Any] = {"grants": OWNERS, **changed}

    def toolsets(store: Store) -> Sequence[Toolset]:
        keeper = Keeper(home=home, host=f"host {home}", worker=worker, alone=alone, lease=timedelta(seconds=1))
        manager = ProcessManager(store=store, home=place, keeper=keeper, clock=clock, limits=limits or ProcessLimits())
        made.append(manager)
        return (
            TerminalTools(
                manager=manager,
                backend=backend or LocalBackend(folder=work),
                policy=policy or CommandPolicy(),
                wait_limit=wait_limit,
            ),
        )

    async def serve() -> None:
        await made[0].serve()

    try:
        async with running(
            url,
            world,
            worker=worker,
            alone=alone,
            clock=clock,
            toolsets=toolsets,
            loops={"processes": serve},
            **options,
        ) as here:
            chat = again.chat if again else world.dm(alice)
            yield Workshop(here=here, manager=made[0], alice=alice, chat=chat, clock=clock)
    finally:
        if not keeps:
            await asyncio.gather(*(kill(place.directory(id_), 0) for id_ in place.ids()))
