"""What a message costs a PostgreSQL that two gateways share: commits, statements and notifications for each message.

Real gateways, real HTTP. The server counts: it needs Debian's package `postgresql`, which brings `pg_stat_statements`.
`python -m bench.traffic [paced|crowd]` prints which statements a message takes, too.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from bench.lines import line
from bench.measure import Figure, not_taken
from bench.workshop import ROOT, Workshop, say
from palaver.cli.loop import run
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.store.people.api_tokens import Right
from palaver.web.tokens import issue_token
from tests.ports import free_port

__all__ = ["crowd", "paced"]

# asyncpg has no types of its own.
_asyncpg: Any = asyncpg
_EXTENSION = "pg_stat_statements"
_SETTINGS = (
    "listen_addresses = '127.0.0.1'",
    "unix_socket_directories = ''",
    f"shared_preload_libraries = '{_EXTENSION}'",
    "autovacuum = off",  # its transactions are nobody's
)
_GATEWAYS = 2
_PER_SECOND = 18
_CONVERSATIONS = 60
_CALLERS = 100
_IDLE_SECONDS = 10.0
_PACED_MESSAGES = 240
_CROWD_MESSAGES = 300
_PATIENCE = 500.0
_COUNTS = """
SELECT xact_commit, pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
 (SELECT sum(calls)::bigint FROM pg_stat_statements WHERE dbid = d.datid)
 FROM pg_stat_database d WHERE datname = current_database()
"""
_STATEMENTS = "SELECT query, sum(calls)::bigint, sum(rows)::bigint FROM pg_stat_statements GROUP BY query"
_IS_OURS = "-- of the bench"
_ANSWERED = 200


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What the server has done so far, or between two moments."""

    messages: int
    seconds: float
    commits: int
    writes: int
    """Transactions that got an id because they wrote or locked something."""
    statements: int
    by_text: Mapping[str, tuple[int, int]]
    """How often each statement ran, and how many rows that gave."""

    def __sub__(self, before: "Counted") -> "Counted":
        by_text = {
            text: (calls - earlier[0], rows - earlier[1])
            for text, (calls, rows) in self.by_text.items()
            if (earlier := before.by_text.get(text, (0, 0)))[0] < calls
        }
        return Counted(
            messages=self.messages - before.messages,
            seconds=self.seconds - before.seconds,
            commits=self.commits - before.commits,
            writes=self.writes - before.writes,
            statements=self.statements - before.statements,
            by_text=by_text,
        )

    @property
    def notifications(self) -> int:
        """How many topics were sent; each goes to every gateway that listens to its channel."""
        return sum(rows for text, (_, rows) in self.by_text.items() if "pg_notify" in text)

    def figures(self, name: str) -> Iterator[Figure]:
        note = f"{self.messages / self.seconds:.1f} messages/s"
        each = (
            ("commits", self.commits, f"for each message; {note}"),
            ("read_only", self.commits - self.writes, "of these"),
            ("statements", self.statements, "for each message, with BEGIN, SET and COMMIT"),
            ("notifications", self.notifications, "for each message, sent"),
        )
        for what, number, words in each:
            yield Figure(name=f"pg.{name}_{what}", value=number / self.messages, unit="", note=words)

    def table(self, most: int = 60) -> str:
        ordered = sorted(self.by_text.items(), key=lambda item: -item[1][0])[:most]
        return "\n".join(
            f"{calls / self.messages:7.2f}  {' '.join(text.split())[:170]}" for text, (calls, _) in ordered
        )


@dataclass(kw_only=True)
class Site:
    """Two gateways on a server that counts."""

    ports: list[int]
    token: str
    counter: Any
    answered: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)

    async def count(self) -> Counted:
        commits, writes, statements = await self.counter.fetchrow(_COUNTS + _IS_OURS)
        rows = await self.counter.fetch(_STATEMENTS + _IS_OURS)
        by_text = {text: (calls, given) for text, calls, given in rows if _EXTENSION not in text}
        return Counted(
            messages=self.answered,
            seconds=asyncio.get_running_loop().time(),
            commits=commits,
            writes=writes,
            statements=statements,
            by_text=by_text,
        )

    async def say(self, client: httpx.AsyncClient, number: int, conversation: int) -> None:
        url = f"http://127.0.0.1:{self.ports[number % len(self.ports)]}/api/v1/messages"
        body = {"text": f"hello {number}", "conversation": f"talk {conversation}", "wait": _PATIENCE}
        response = await client.post(url, json=body)
        if response.status_code != _ANSWERED:
            raise RuntimeError(f"{response.status_code}: {response.text}")
        self.answered += 1

    def client(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=_CALLERS)
        headers = {"Authorization": f"Bearer {self.token}"}
        return httpx.AsyncClient(headers=headers, timeout=2 * _PATIENCE, limits=limits)

    async def speak_paced(self) -> None:
        """Say so many things a second, in every conversation in turn, at every gateway in turn."""
        async with self.client() as client, asyncio.TaskGroup() as group:
            for number in count():
                if self.over.is_set():
                    return
                group.create_task(self.say(client, number // _CONVERSATIONS + number, number % _CONVERSATIONS))
                await asyncio.sleep(1 / _PER_SECOND)

    async def speak_as_crowd(self) -> None:
        """Many callers, each of whom says the next thing when they have the answer."""

        async def speak(client: httpx.AsyncClient, caller: int) -> None:
            while not self.over.is_set():
                await self.say(client, caller, caller)

        async with self.client() as client, asyncio.TaskGroup() as group:
            for caller in range(_CALLERS):
                group.create_task(speak(client, caller))

    async def until_answered(self, messages: int) -> None:
        async with asyncio.timeout(10 * _PATIENCE):
            while self.answered < messages:  # noqa: ASYNC110 - an event for each answer would cost more
                await asyncio.sleep(0.05)


def paced(_: Workshop) -> Iterator[Figure]:
    """Eighteen messages a second."""
    return _measure(f"at_{_PER_SECOND}", measure_paced)


def crowd(_: Workshop) -> Iterator[Figure]:
    """A hundred callers at once, each of whom waits for the answer."""
    return _measure(f"callers_{_CALLERS}", measure_crowd)


def _measure(name: str, measure: Callable[[Site], Any]) -> Iterator[Figure]:
    programs = _find_programs()
    if programs is None:
        yield not_taken(f"pg.{name}_commits", f"no PostgreSQL with {_EXTENSION} in /usr/lib/postgresql")
        return
    counted: Counted = run(_at_site(programs, measure))
    yield from counted.figures(name)


async def _at_site(programs: Path, measure: Callable[[Site], Any]) -> Counted:
    async with _site(programs) as site:
        return await measure(site)


async def measure_paced(site: Site) -> Counted:
    before = await site.count()
    await asyncio.sleep(_IDLE_SECONDS)
    idle = await site.count() - before
    say(f"idle: {idle.commits / idle.seconds:.1f} commits/s, {idle.statements / idle.seconds:.1f} statements/s")
    async with asyncio.TaskGroup() as group:
        group.create_task(site.speak_paced())
        await site.until_answered(_CONVERSATIONS)
        before = await site.count()
        await site.until_answered(before.messages + _PACED_MESSAGES)
        found = await site.count() - before
        site.over.set()
    return found


async def measure_crowd(site: Site) -> Counted:
    async with asyncio.TaskGroup() as group:
        group.create_task(site.speak_as_crowd())
        await site.until_answered(_CALLERS)
        before = await site.count()
        await site.until_answered(before.messages + _CROWD_MESSAGES)
        found = await site.count() - before
        site.over.set()
    return found


def _find_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/lib/{_EXTENSION}.so"))
    return found[-1].parents[1] / "bin" if found else None


@asynccontextmanager
async def _site(programs: Path) -> AsyncGenerator[Site]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="palaver-bench-")))
        url = _start_server(programs, folder, stack)
        async with await open_store(url) as store:
            token, _ = await issue_token(store, SystemClock().now(), name="bench", rights=[Right.CHAT, Right.READ])
        ports = [free_port() for _ in range(_GATEWAYS)]
        for number, port in enumerate(ports):
            stack.callback(_end, _start_gateway(folder / str(number), url, port))
        async with asyncio.timeout(_PATIENCE), httpx.AsyncClient() as client:
            for port in ports:
                while not await _is_ready(client, port):  # noqa: ASYNC110 - it is elsewhere
                    await asyncio.sleep(0.2)
        counter = await _asyncpg.connect(url)
        stack.push_async_callback(counter.close)
        await counter.execute(f"CREATE EXTENSION {_EXTENSION}")
        yield Site(ports=ports, token=token, counter=counter)


def _start_server(programs: Path, folder: Path, stack: AsyncExitStack) -> str:
    user = "postgres" if os.getuid() == 0 else None
    folder.chmod(0o755)  # the server has a user of its own
    data, port = folder / "server", free_port()
    data.mkdir()
    if user:
        shutil.chown(data, user)

    def control(program: str, *words: str) -> None:
        command = [str(programs / program), "-D", str(data), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=user, cwd="/")  # noqa: S603

    control("initdb", "-A", "trust", "-U", "postgres", "-N")
    with (data / "postgresql.conf").open("a") as file:
        file.writelines(f"{setting}\n" for setting in _SETTINGS)
    control("pg_ctl", "-w", "-l", str(data / "log"), "-o", f"-p {port}", "start")
    stack.callback(control, "pg_ctl", "-w", "-m", "immediate", "stop")
    return f"postgresql://postgres@127.0.0.1:{port}/postgres"


def _start_gateway(folder: Path, url: str, port: int) -> subprocess.Popen[bytes]:
    folder.mkdir()
    config = {"data_dir": str(folder / "data"), "store": url, "web": {"port": port}, "agent": {"name": "echo"}}
    (folder / "palaver.yaml").write_text(json.dumps(config))
    environment = {**os.environ, "PALAVER_CONFIG": str(folder / "palaver.yaml")}
    command = (sys.executable, "-m", "palaver", "up")
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


async def _is_ready(client: httpx.AsyncClient, port: int) -> bool:
    try:
        return (await client.get(f"http://127.0.0.1:{port}/ready")).is_success
    except httpx.HTTPError:
        return False


def _main(names: list[str]) -> None:
    programs = _find_programs()
    if programs is None:
        sys.exit(f"no PostgreSQL with {_EXTENSION} in /usr/lib/postgresql: install postgresql")
    for name, measure in (("paced", measure_paced), ("crowd", measure_crowd)):
        if not names or name in names:
            counted = run(_at_site(programs, measure))
            for figure in counted.figures(name):
                print(line(figure))
            print(counted.table(), flush=True)


if __name__ == "__main__":
    _main(sys.argv[1:])
