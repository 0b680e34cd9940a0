"""A site: one store, its gateways, the people on its platform and the programs at its web window."""

import asyncio
import json
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.crash.square import FakeSquare, fake_square
from tests.ports import free_port
from tests.soak import gateway
from tests.soak.clients import ApiTalk, SlowClients
from tests.soak.control import Control, control
from tests.soak.disk import SmallDisk, small_disk
from tests.soak.gateway import CLOCK, Process

__all__ = ["Place", "Site", "site"]

_LEASE = "3s"
_LIMITS = {
    "lease": _LEASE,
    "poll": "1s",
    "repeat_after": "3s",
    "send_limit": "5s",
    "attempts": 100,
    "agent_tries": 10,
    "crash_limit": 1000,
    "message_limit": 60,
}
"""A gateway that is killed every few seconds is the rule here, and summaries come often."""
CHATS = 60


@dataclass(kw_only=True)
class Place:
    """Where one gateway after the other runs: its configuration, its port and its clock."""

    name: str
    folder: Path
    port: int
    process: Process | None = None
    lives: list[Process] = field(default_factory=list[Process])

    @property
    def clock(self) -> Path:
        return self.folder / "clock"

    def configure(self, store: str, data: Path, world: str) -> None:
        self.folder.mkdir()
        self.clock.write_text("0")
        command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("agent.py")), str(self.folder.parent)]
        config = {
            "data_dir": str(data),
            "store": store,
            "web": {"port": self.port},
            "agent": {"name": "program", "command": command, "processes": 4},
            "platforms": {"fake": {"accounts": {"bot": {"socket": world}}}},
            "grants": [{"platform": "fake", "role": "member"}],
            "limits": _LIMITS,
            "log": {"format": "json"},
        }
        (self.folder / "palaver.yaml").write_text(json.dumps(config))  # which is YAML, too

    async def start(self) -> Process:
        path = self.folder / "plugins"
        if not path.exists():
            gateway.plugin(path)
        environment = {
            "PALAVER_CONFIG": str(self.folder / "palaver.yaml"),
            "PYTHONPATH": str(path),
            CLOCK: str(self.clock),
        }
        name = f"{self.name}.{len(self.lives) + 1}"
        self.process = await gateway.start(name, environment, self.folder / "log")
        self.lives.append(self.process)
        return self.process

    @property
    def is_up(self) -> bool:
        return self.process is not None and self.process.is_alive

    async def listens(self) -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            return False
        writer.close()
        return True


@dataclass(kw_only=True)
class Site:
    name: str
    folder: Path
    store: str
    square: FakeSquare
    control: Control
    disk: SmallDisk | None
    """On which its store lies, if it can be filled."""
    places: list[Place]
    token: str
    chance: random.Random
    spoken: "count[int]" = field(default_factory=lambda: count(1))

    def __post_init__(self) -> None:
        self.api = ApiTalk(url=self._url, token=self.token, chance=self.chance)
        self.slow = SlowClients(address=self._address, token=self.token, chance=self.chance)

    @property
    def runs(self) -> list[tuple[float, str, int, int]]:
        """When the agent began and ended which turn, in which process."""
        file = self.folder / "runs"
        return [tuple(json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []

    @property
    def lives(self) -> list[Process]:
        return [process for place in self.places for process in place.lives]

    def _address(self) -> tuple[str, int]:
        """Of any gateway that is there."""
        up = [place for place in self.places if place.is_up] or self.places
        return "127.0.0.1", self.chance.choice(up).port

    def _url(self) -> str:
        host, port = self._address()
        return f"http://{host}:{port}"


@asynccontextmanager
async def site(name: str, folder: Path, seed: int, *, server: str | None = None) -> AsyncGenerator[Site]:
    """A site on SQLite with one gateway, or on a database of a PostgreSQL server with two."""
    async with AsyncExitStack() as stack:
        await asyncio.to_thread(folder.mkdir, parents=True)
        square = await stack.enter_async_context(fake_square(seed))
        await square.settle(CHATS)
        disk = stack.enter_context(small_disk(folder / "disk")) if server is None else None
        store = server or f"sqlite:///{folder}/disk/palaver.db"
        async with await open_store(store) as opened:
            token, _ = await issue_token(opened, SystemClock().now(), name="soak", rights=[Right.CHAT, Right.READ])
        places = [
            Place(name=f"{name}{number}", folder=folder / str(number), port=free_port())
            for number in range(1 if server is None else 2)
        ]
        for place in places:
            data = disk.folder if disk else place.folder / "data"
            place.configure(store, data, str(square.where["path"]))
        made = Site(
            name=name,
            folder=folder,
            store=store,
            square=square,
            control=await stack.enter_async_context(control(folder)),
            disk=disk,
            places=places,
            token=token,
            chance=random.Random(seed),  # noqa: S311 - a simulation
        )
        stack.push_async_callback(_end_all, made)
        yield made


async def _end_all(made: Site) -> None:
    await asyncio.gather(*(process.kill() for process in made.lives))
