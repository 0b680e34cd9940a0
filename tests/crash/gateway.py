"""A gateway in a process of its own, on a world in another process, to be killed at any instant.

The module run as a program reads orders, one JSON line each, and forks a gateway for each of them, so that it is there
at once. It tells the pid, and how the gateway ended, before it reads the next order.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

from palaver.agents.echo import EchoAgent
from palaver.commands.builtin import builtin_commands
from palaver.config.loader import load
from palaver.db import postgres
from palaver.engine.context import Resources
from palaver.engine.delivery.departures import Departures
from palaver.engine.engine import Engine
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.settings import Settings
from palaver.gateway.vault import database_key, find_vault
from palaver.model.access import AccessRole, Grant
from palaver.model.command_policy import CommandPolicy
from palaver.model.errors import StoreInUse, StoreUnavailable
from palaver.platforms.plugins import load_factory, make_adapter
from palaver.platforms.relayed.adapter import RelayedOptions, make_relayed
from palaver.processes.backends.base import LocalBackend
from palaver.processes.manager import ProcessManager
from palaver.protocols.adapter import Adapter, Limits
from palaver.protocols.clock import SystemClock
from palaver.settings.limits import LimitsConfig
from palaver.store.clock import StoreClock
from palaver.store.opening import open_store, sqlite_path
from palaver.store.processes import Keeper
from palaver.store.store import Store
from palaver.testkit.adapter import FAKE, FakeAdapter
from palaver.testkit.platform import BOT
from palaver.testkit.socket import SocketClient
from palaver.tools.terminal import TerminalTools
from tests.crash.background import make_home
from tests.crash.fuse import Fuse, FusedAgent, FusedStore, fuse_adapter
from tests.forkserver import start_module
from tests.settings import settings

__all__ = ["ACCOUNT", "Gateway", "Order", "Slot", "open_keyed", "slots"]

ACCOUNT = "helper"
"""What our account is called on platforms that are no fake."""
OWNER = "p1"
"""Who owns the gateway of a paced town: somebody with a chat of their own, where notices come."""
PACE_SECONDS = 1.0
"""Between two messages or edits in a paced chat, as on Telegram."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Order:
    url: str
    platform: str
    where: dict[str, Any]
    """What its adapter has to know to find the world."""
    log: str
    worker: str
    alone: bool
    lease: float = 1.0
    home: str | None = None
    """Where its processes live, if it runs any."""
    key_file: str | None = None
    """Where the key of an encrypted store is."""
    is_paced: bool = False
    """Send at the pace that real chats ask for, and show answers while they grow."""
    step: str | None = None
    length: int = 1
    signal: int = signal.SIGKILL
    """What the gateway gets when it has reached the step so many times."""


def _settings(order: Order) -> Settings:
    lease = timedelta(seconds=order.lease)
    owners = (Grant(platform=order.platform, user_id=OWNER, role=AccessRole.OWNER),) if order.is_paced else ()
    return settings(
        grants=(*owners, Grant(platform=order.platform, role=AccessRole.ADMIN if order.home else AccessRole.MEMBER)),
        lease=lease,
        send_limit=lease,
        repeat_after=lease,
        poll=lease,
        attempts=20 if order.is_paced else 5,
        unclear_notice_every=timedelta(seconds=1),
        sweep_every=timedelta(seconds=1) if order.is_paced else LimitsConfig().sweep_every,
        # Here nobody starts a gateway that crashes by itself.
        crash_limit=1_000_000,
    )


def _adapter(order: Order) -> Adapter:
    """Without the pace that real chats ask for, unless it is wanted."""
    if "relay_file" in order.where:
        return make_relayed(FAKE, BOT, RelayedOptions.model_validate(order.where))
    if order.platform == "fake":
        limits = (
            Limits(interval=PACE_SECONDS, draft_interval=PACE_SECONDS, announces_requests=True)
            if order.is_paced
            else Limits()
        )
        return FakeAdapter(SocketClient(**order.where), limits=limits)
    adapter: Any = make_adapter(order.platform, ACCOUNT, order.where)
    adapter.limits = replace(adapter.limits, interval=0.0)
    return adapter


def _background(order: Order, store: Store) -> dict[str, Any]:
    """What runs processes, if any are wanted."""
    if order.home is None:
        return {}
    lease, home = timedelta(seconds=order.lease), make_home(Path(order.home))
    keeper = Keeper(home=home.token, host="here", worker=order.worker, alone=order.alone, lease=lease)
    manager = ProcessManager(store=store, home=home, keeper=keeper, clock=SystemClock())
    backend = LocalBackend(folder=Path(order.home))
    terminal = TerminalTools(manager=manager, backend=backend, policy=CommandPolicy())
    resources = Resources(reply_waiter=ReplyWaiter(store), toolsets=[terminal])
    return {"resources": resources, "loops": {"processes": manager.serve}}


async def open_keyed(url: str, key_file: str | None, *, exclusive: bool = False) -> Store:
    """Open a store as `palaver up` does, with the key that is in its file now."""
    path = sqlite_path(url)
    if path is None or key_file is None:
        return await open_store(url, exclusive=exclusive)
    environment = {"PALAVER_HOME": str(path.parent), "PALAVER_STORE": url, "PALAVER_ENCRYPTION__KEY_FILE": key_file}
    return await open_store(url, key=database_key(find_vault(load(path.parent, environment))), exclusive=exclusive)


async def _open(order: Order) -> Store:
    """Try again, as a service manager does: what a killed gateway was just starting holds its lock until it runs.

    And PostgreSQL can be just starting itself.
    """
    while True:
        try:
            return await open_keyed(order.url, order.key_file, exclusive=order.alone)
        except (StoreInUse, StoreUnavailable) as error:
            logging.getLogger("palaver").warning("%s", error, extra={"action": "store.in_use"})
            await asyncio.sleep(0.02)


async def _serve(order: Order) -> None:
    asyncio.get_running_loop().add_reader(0, os._exit, 1)  # the process that gave the order is gone
    fuse = Fuse(order.step, order.length, order.signal)
    async with await _open(order) as store:
        note = _notebook(order)
        fused, adapter = FusedStore(store, fuse, note), _adapter(order)
        echo = EchoAgent(delay=0.1, streams=True) if order.is_paced else EchoAgent(delay=0.005)
        fuse_adapter(adapter, fuse, connected=lambda: _say("serving", os.getpid()))
        await Engine(
            store=fused,
            adapters=[adapter],
            agent=FusedAgent(fuse, note, echo),
            commands=builtin_commands(fused),
            settings=_settings(order),
            clock=StoreClock(store.database, SystemClock()),
            worker=order.worker,
            alone=order.alone,
            departures=Departures(Path(order.log).with_name("departures")),
            **_background(order, fused),
        ).serve()


def _notebook(order: Order) -> Callable[[str], None]:
    """Write down what happens at which gateway and when, so that a kill forgets nothing of it."""
    book = os.open(Path(order.log).with_name("notes"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(what: str) -> None:
        os.write(book, f"{what} {order.worker} {time.monotonic():.6f}\n".encode())

    return note


def _be_gateway(order: Order) -> None:
    postgres.SESSION_TIMEOUTS.update({"idle_in_transaction_session_timeout": "2s", "transaction_timeout": "5s"})
    os.dup2(os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    output = logging.StreamHandler()
    form = f"%(asctime)s {order.worker} %(levelname)s %(action)s %(message)s"
    output.setFormatter(logging.Formatter(form, defaults={"action": "-"}))
    logging.basicConfig(level=logging.WARNING, handlers=[output])
    logging.getLogger("palaver").setLevel(logging.INFO)
    asyncio.run(_serve(order))


def _say(what: str, number: int) -> None:
    os.write(1, (json.dumps([what, number]) + "\n").encode())


def _fork_gateways(platform: str) -> None:
    if platform != "fake":
        load_factory(platform)  # imported here, once
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                _be_gateway(Order(**json.loads(line)))
            except BaseException:  # noqa: BLE001 - nobody else would say it
                traceback.print_exc()
            finally:
                os._exit(1)
        _say("started", pid)
        _, status = os.waitpid(pid, os.WUNTRACED)
        while os.WIFSTOPPED(status):
            _say("frozen", pid)
            _, status = os.waitpid(pid, os.WUNTRACED)
        _say("ended", os.waitstatus_to_exitcode(status))


# The other side


class Gateway:
    """A gateway that was started."""

    def __init__(self, order: Order, pid: int, told: AsyncIterator[tuple[str, int]]) -> None:
        self.order = order
        self.frozen = asyncio.Event()
        self.serving = asyncio.Event()
        """Its adapter is connected."""
        self.killed: float | None = None
        """When we killed it."""
        self._pid = pid
        self._ended = asyncio.create_task(self._hear(told))

    async def _hear(self, told: AsyncIterator[tuple[str, int]]) -> int:
        async for what, number in told:
            if what == "ended":
                return number
            (self.serving if what == "serving" else self.frozen).set()
        raise AssertionError("the forking process is gone")

    def freeze(self) -> None:
        os.kill(self._pid, signal.SIGSTOP)

    def go_on(self) -> None:
        self.frozen.clear()
        os.kill(self._pid, signal.SIGCONT)

    async def dies(self, within: float) -> bool:
        """Whether it dies by itself in that time. A gateway that ends in another way is broken."""
        await asyncio.wait({self._ended}, timeout=within)
        if not self._ended.done():
            return False
        if self._ended.result() != -signal.SIGKILL:
            raise AssertionError(f"{self.order} ended with {self._ended.result()}: {self._last_words()}")
        return True

    def _last_words(self) -> str:
        return Path(self.order.log).read_text()[-5000:]

    async def serves(self) -> None:
        """Wait until it is connected, or over."""
        connected = asyncio.create_task(self.serving.wait())
        await asyncio.wait({self._ended, connected}, return_when=asyncio.FIRST_COMPLETED)
        connected.cancel()

    async def kill(self) -> None:
        self.killed = time.monotonic()
        with suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        await asyncio.wait({self._ended})


class Slot:
    """A place for one gateway after the other."""

    def __init__(self, process: Popen[str], told: asyncio.StreamReader) -> None:
        self._process = process
        self._lines = told
        self._gateway: Gateway | None = None

    async def start(self, order: Order) -> Gateway:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        told = self._told()
        _, pid = await anext(told)
        self._gateway = Gateway(order, pid, told)
        return self._gateway

    async def _told(self) -> AsyncGenerator[tuple[str, int]]:
        while told := await self._lines.readline():
            what, number = json.loads(told)
            yield what, number

    async def close(self) -> None:
        if self._gateway:
            await self._gateway.kill()
        assert self._process.stdin
        self._process.stdin.close()
        await asyncio.to_thread(self._process.wait)
        await self._lines.read()


@asynccontextmanager
async def slots(count: int, platform: str) -> AsyncGenerator[list[Slot]]:
    made = [await _start_slot(platform) for _ in range(count)]
    try:
        yield made
    finally:
        await asyncio.gather(*(slot.close() for slot in made))


async def _start_slot(platform: str) -> Slot:
    process = start_module("tests.crash.gateway", platform, cwd=ROOT, stdin=PIPE, stdout=PIPE)
    told = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(told), process.stdout)
    return Slot(process, told)


if __name__ == "__main__":
    _fork_gateways(sys.argv[1])
