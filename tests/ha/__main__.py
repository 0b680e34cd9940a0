"""`python -m tests.ha`: two gateways under a steady load while their database fails over. Prints what that cost."""

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx

from palaver.db.transaction import Row, Statements, transaction
from palaver.protocols.clock import SystemClock
from palaver.store.opening import open_store
from palaver.store.people.api_tokens import Right
from palaver.store.records import entries_of
from palaver.store.status.invariants import violations
from palaver.web.tokens import issue_token
from tests.ha.cluster import DRIVER, Cluster, cluster
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_PROGRAMS = 12
_PAUSE_SECONDS = 0.25
_CALM_SECONDS = 8.0
"""Before and after each kind of trouble."""
_LOST_SECONDS = 3.0
_LATE_SECONDS = 2.0
"""How much later than the database a gateway can notice."""
_REQUEST_SECONDS = 90.0
_PATIENCE_SECONDS = 90.0
"""For what is still to be answered in the end."""


@dataclass(kw_only=True)
class Request:
    began: float
    seconds: float
    status: str
    can_retry: bool = True


@dataclass(kw_only=True)
class Trouble:
    """What happened while one thing was wrong: times are of the monotonic clock."""

    name: str
    began: float
    ended: float = 0.0
    away: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When the database took no writes."""
    requests: list[Request] = field(default_factory=list[Request])
    ready: list[tuple[float, int, bool]] = field(default_factory=list[tuple[float, int, bool]])
    """When which gateway said whether it is ready."""

    def was_away(self, at: float, late: float = 0.0) -> bool:
        return any(began <= at <= ended + late for began, ended in self.away)

    @property
    def columns(self) -> tuple[str, ...]:
        failed = [each for each in self.requests if each.status not in {"200", "202"}]
        late = [each for each in failed if not self.was_away(each.began + each.seconds, _LATE_SECONDS)]
        other = [each for each in failed if each.status != "503" or not each.can_retry]
        fine = sorted(each.began + each.seconds for each in self.requests if each not in failed)
        gap = max((after - before for before, after in pairwise(fine)), default=0.0)
        wrong = sum(1 for at, _, said in self.ready if said == self.was_away(at)) * _PAUSE_SECONDS
        gateways = max(1, len({gateway for _, gateway, _ in self.ready}))
        return (
            self.name,
            f"{sum(ended - began for began, ended in self.away):.1f}",
            f"{gap:.1f}",
            str(len(self.requests)),
            str(len(failed)),
            str(len(late)),
            " ".join(f"{status}:{n}" for status, n in sorted(Counter(each.status for each in other).items())) or "-",
            f"{max((each.seconds for each in self.requests), default=0.0):.1f}",
            f"{wrong / gateways:.1f}",
        )


HEADS = ("trouble", "away s", "no 2xx s", "requests", "failed", "late", "no 503+retry", "longest s", "/ready wrong s")


@dataclass(kw_only=True)
class Siege:
    servers: Cluster
    ports: list[int]
    token: str
    troubles: list[Trouble] = field(default_factory=list[Trouble])
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    over: asyncio.Event = field(default_factory=asyncio.Event)
    may_lose: bool = False

    @property
    def now(self) -> Trouble:
        return self.troubles[-1]

    async def talk(self, number: int) -> None:
        """One program: it says each word until it was accepted, to the next gateway if one does not take it."""
        spoken, gateway = 0, number
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=_REQUEST_SECONDS) as client:
            while not self.over.is_set():
                word = f"w{number}x{spoken}"
                url = f"http://127.0.0.1:{self.ports[gateway % len(self.ports)]}/api/v1/messages"
                found = await self._post(client, url, word, f"talk{number}")
                if found:
                    self.accepted[word], spoken = found, spoken + 1
                else:
                    gateway += 1
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _post(self, client: httpx.AsyncClient, url: str, word: str, conversation: str) -> str | None:
        began, found, can_retry = time.monotonic(), None, True
        try:
            body = {"text": word, "conversation": conversation}
            response = await client.post(url, json=body, headers={"Idempotency-Key": word})
            status, can_retry = str(response.status_code), "retry-after" in response.headers
            if response.is_success:
                found = response.json()["id"]
        except httpx.HTTPError as error:
            status = type(error).__name__
        seconds = time.monotonic() - began
        self.now.requests.append(Request(began=began, seconds=seconds, status=status, can_retry=can_retry))
        return found

    async def count_mistaken(self) -> int:
        """Count the ids that now name another message than the one that was accepted."""
        mistaken = 0
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(headers=headers, timeout=_REQUEST_SECONDS) as client:
            for word, id_ in self.accepted.items():
                response = await client.get(f"http://127.0.0.1:{self.ports[0]}/api/v1/messages/{id_}")
                answer = response.json().get("answer") if response.is_success else None
                mistaken += answer not in {None, f"You said: {word}"}
        return mistaken

    async def ask_ready(self, gateway: int) -> None:
        async with httpx.AsyncClient(timeout=_REQUEST_SECONDS) as client:
            while not self.over.is_set():
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    response = await client.get(f"http://127.0.0.1:{self.ports[gateway]}/ready")
                except httpx.HTTPError:
                    continue
                self.now.ready.append((time.monotonic(), gateway, response.is_success))

    async def suffer(self, name: str, trouble: Callable[[], Awaitable[None]]) -> None:
        self.troubles.append(Trouble(name=name, began=time.monotonic()))
        await asyncio.sleep(_CALM_SECONDS / 4)
        await trouble()
        await asyncio.sleep(_CALM_SECONDS)
        self.now.ended = time.monotonic()
        print(table([self.now]), flush=True)  # noqa: T201 - a program

    # What goes wrong

    async def _away(self, seconds: float, *, fails_over: bool) -> None:
        """The primary is gone from now on, for so long before the cluster manager sees it."""
        began = time.monotonic()
        await asyncio.sleep(seconds)
        old = await self.servers.fail_over() if fails_over else None
        self.now.away.append((began, time.monotonic()))
        if old:
            await asyncio.sleep(_CALM_SECONDS / 2)
            await self.servers.rejoin(old)

    async def kill(self) -> None:
        self.servers.primary.signal(signal.SIGKILL)
        await self._away(3, fails_over=True)

    async def switch(self) -> None:
        primary = self.servers.primary
        stopping = asyncio.to_thread(primary.run, "pg_ctl", "-w", "-m", "fast", "-D", str(primary.folder), "stop")
        began = time.monotonic()
        await stopping
        old = await self.servers.fail_over()
        self.now.away.append((began, time.monotonic()))
        await self.servers.rejoin(old)

    async def freeze(self) -> None:
        self.servers.primary.signal(signal.SIGSTOP)
        await self._away(10, fails_over=True)

    async def stall(self) -> None:
        """No standby answers: every commit waits."""
        for node in self.servers.standbys:
            node.signal(signal.SIGSTOP)
        await self._away(4, fails_over=False)
        for node in self.servers.standbys:
            node.signal(signal.SIGCONT)

    async def freeze_standby(self) -> None:
        """The other one is enough."""
        self.servers.standbys[0].signal(signal.SIGSTOP)
        await asyncio.sleep(5)
        self.servers.standbys[0].signal(signal.SIGCONT)

    async def lose(self) -> None:
        """Promote a standby that lacks the last commits, which nobody had to confirm."""
        await self.servers.primary.ask("ALTER SYSTEM SET synchronous_standby_names = ''")
        await self.servers.primary.ask("SELECT pg_reload_conf()")
        await asyncio.sleep(_PAUSE_SECONDS * 8)
        for node in self.servers.standbys:
            await asyncio.to_thread(node.leave)
        await asyncio.sleep(_LOST_SECONDS)
        self.may_lose = True
        await self.kill()

    async def terminate(self) -> None:
        for _ in range(5):
            await self.servers.primary.ask(
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'palaver'"
            )
            await asyncio.sleep(1)

    async def take_slots(self) -> None:
        """Nobody can connect. What is connected goes on."""
        async with AsyncExitStack() as stack:
            try:
                while True:
                    taken = await DRIVER.connect(
                        host="127.0.0.1", port=self.servers.primary.port, user="postgres", database="postgres"
                    )
                    stack.push_async_callback(taken.close)
            except DRIVER.TooManyConnectionsError:
                await asyncio.sleep(5)

    async def delay(self) -> None:
        for setting in ("commit_delay = 20000", "commit_siblings = 0"):
            await self.servers.primary.ask(f"ALTER SYSTEM SET {setting}")
        await self.servers.primary.ask("SELECT pg_reload_conf()")
        await asyncio.sleep(10)
        await self.servers.primary.ask("ALTER SYSTEM RESET commit_delay")
        await self.servers.primary.ask("SELECT pg_reload_conf()")


TROUBLES = ("kill", "switch", "freeze", "stall", "freeze_standby", "terminate", "take_slots", "delay", "lose")


_ENTRIES = (
    "SELECT s.key, e.role, e.id, e.body FROM entries e"
    " JOIN turns t ON t.no = e.turn_no JOIN sessions s ON s.no = t.session_no"
    " WHERE e.role IN ('user', 'assistant') ORDER BY e.id"
)
_WORD = re.compile(r"w(\d+)x(\d+)$")
_OPEN = (
    "SELECT i.no, i.state, i.turn_no, t.state, t.worker, t.attempt, r.key IS NOT NULL FROM inbox i"
    " LEFT JOIN turns t ON t.no = i.turn_no LEFT JOIN ready_queue r ON r.key = i.key"
    " WHERE i.state = 'waiting' OR (i.state = 'in-turn' AND t.state NOT IN ('done', 'failed'))"
)


def table(troubles: list[Trouble]) -> str:
    rows = [HEADS, *(each.columns for each in troubles)]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


@transaction
def answered() -> Statements[list[Row]]:
    """Return the conversation, the role and the text of every entry, in order."""
    rows = yield _ENTRIES, ()
    return [(key, role, entries_of([(number, body)])[0].text) for key, role, number, body in rows]


async def _verdict(siege: Siege, url: str) -> dict[str, int]:
    """Wait until nothing is open, and compare what is stored with what was accepted."""
    async with await open_store(url) as store:
        patience = time.monotonic() + _PATIENCE_SECONDS
        while (left := await store.read(_open())) and time.monotonic() < patience:  # noqa: ASYNC110 - it is elsewhere
            await asyncio.sleep(0.5)
        rows = await store.read(answered())
        broken = await store.read(violations())
    asked = Counter(text for _, role, text in rows if role == "user")
    foreign = disorder = 0
    last: dict[str, tuple[str, int]] = {}
    for key, role, text in rows:
        said = _WORD.search(str(text))
        if said is None:
            print("unexpected:", key, role, text)  # noqa: T201 - a program
            continue
        talk, number = said.groups()
        before = last.get(f"{key} {role}", (talk, -1))
        foreign += before[0] != talk
        disorder += int(number) <= before[1]
        last[f"{key} {role}"] = (talk, int(number))
    replies = Counter(str(text).removeprefix("You said: ") for _, role, text in rows if role == "assistant")
    for row in left:
        print("open:", *row)  # noqa: T201 - a program
    return {
        "open": len(left),
        "accepted": len(siege.accepted),
        "lost": sum(1 for word in siege.accepted if not asked[word]),
        "unanswered": sum(1 for word in siege.accepted if not replies[word]),
        "doubled": sum(n - 1 for n in (asked + replies).values() if n > 2),
        "disorder": disorder,
        "foreign": foreign,
        "violations": len(broken),
    }


@transaction
def _open() -> Statements[list[Row]]:
    """Return the messages that wait, each with its turn, and whether its conversation is known to be ready."""
    return (yield _OPEN, ())


def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()


def _configure(folder: Path, url: str, port: int) -> dict[str, str]:
    folder.mkdir()
    config: dict[str, Any] = {
        "data_dir": str(folder / "data"),
        "store": url,
        "web": {"port": port},
        "agent": {"name": "echo"},
    }
    (folder / "palaver.yaml").write_text(json.dumps(config))
    return {**os.environ, "PALAVER_CONFIG": str(folder / "palaver.yaml")}


async def run(wanted: argparse.Namespace, folder: Path) -> int:
    async with cluster(folder / "servers") as servers, AsyncExitStack() as stack:
        url = servers.url
        async with await open_store(url) as store:
            token, _ = await issue_token(store, SystemClock().now(), name="ha", rights=[Right.CHAT, Right.READ])
        ports = [free_port(), free_port()]
        processes: list[asyncio.subprocess.Process] = []
        for number, port in enumerate(ports):
            log = stack.enter_context((folder / f"gateway{number}.log").open("wb"))
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "palaver", "up"),
                cwd=ROOT,
                env=_configure(folder / str(number), url, port),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
            stack.callback(_kill, process)
            processes.append(process)
        siege = Siege(servers=servers, ports=ports, token=token)
        async with httpx.AsyncClient() as client:
            for port in ports:
                await _until_ready(client, port)
        async with asyncio.TaskGroup() as group:
            siege.troubles.append(Trouble(name="calm", began=time.monotonic()))
            for number in range(_PROGRAMS):
                group.create_task(siege.talk(number))
            for number in range(len(ports)):
                group.create_task(siege.ask_ready(number))
            await asyncio.sleep(_CALM_SECONDS)
            for name in wanted.troubles or TROUBLES:
                await siege.suffer(name, getattr(siege, name))
            siege.over.set()
        found = {"mistaken": await siege.count_mistaken(), **await _verdict(siege, url)}
        restarts = sum(process.returncode is not None for process in processes)
        print(table(siege.troubles))  # noqa: T201 - a program
        print(" ".join(f"{name}={n}" for name, n in found.items()), f"ended={restarts}")  # noqa: T201
        fine = {"accepted", *(("lost", "unanswered") if siege.may_lose else ())}
        return int(any(found[name] for name in found if name not in fine) or restarts > 0)


async def _until_ready(client: httpx.AsyncClient, port: int) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/ready")).is_success:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.2)


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ha", description=__doc__)
    parser.add_argument("--folder", type=Path, help="an empty one, to keep the logs in")
    parser.add_argument("troubles", nargs="*", choices=[*TROUBLES, []], metavar="TROUBLE", help=", ".join(TROUBLES))
    wanted = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="palaver-ha-", ignore_cleanup_errors=True) as temporary:
        folder: Path = wanted.folder or Path(temporary)
        folder.chmod(0o755)  # the servers have a user of their own
        (folder / "servers").mkdir()
        return asyncio.run(run(wanted, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
