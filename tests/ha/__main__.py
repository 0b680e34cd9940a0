"""`python -m tests.ha`: two gateways under a steady load while their database fails over. Prints what that cost."""

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
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
from tests.ha.cluster import Cluster, by_hand
from tests.ha.patroni import under_patroni
from tests.ha.siege import CALM_SECONDS, Gateway, Siege, table
from tests.ha.troubles import TROUBLES, UNDER_PATRONI
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
_PROGRAMS = 12
_PATIENCE_SECONDS = 90.0
"""For what is still to be answered in the end."""
_PATRONI = "patroni"
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
        "web": {"port": port, "messages_per_minute": 100_000},
        "agent": {"name": "echo"},
    }
    (folder / "palaver.yaml").write_text(json.dumps(config))
    return {**os.environ, "PALAVER_CONFIG": str(folder / "palaver.yaml")}


async def _start(stack: AsyncExitStack, folder: Path, url: str) -> tuple[Gateway, asyncio.subprocess.Process]:
    gateway = Gateway(port=free_port(), log=folder.with_suffix(".log"))
    environment = _configure(folder, url, gateway.port)
    log = stack.enter_context(gateway.log.open("wb"))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "palaver", "up"),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    stack.callback(_kill, process)
    return gateway, process


async def run(cluster: Cluster, names: Sequence[str], folder: Path) -> int:
    async with AsyncExitStack() as stack:
        async with await open_store(cluster.url) as store:
            token, _ = await issue_token(store, SystemClock().now(), name="ha", rights=[Right.CHAT, Right.READ])
        started = [await _start(stack, folder / f"gateway{number}", cluster.url) for number in (1, 2)]
        siege = Siege(servers=cluster, gateways=[gateway for gateway, _ in started], token=token)
        async with httpx.AsyncClient() as client:
            for gateway in siege.gateways:
                await _until_ready(client, gateway.port)
        async with asyncio.TaskGroup() as group:
            for number in range(_PROGRAMS):
                group.create_task(siege.talk(number))
            for number in range(len(started)):
                group.create_task(siege.ask_ready(number))
            watching = [group.create_task(siege.watch(node)) for node in cluster.nodes]
            await asyncio.sleep(CALM_SECONDS)
            for name in names:
                await siege.suffer(name, TROUBLES[name])
            siege.over.set()
            for each in watching:
                each.cancel()
        found = {"mistaken": await siege.count_mistaken(), **await _verdict(siege, cluster.url)}
        ended = sum(process.returncode is not None for _, process in started)
        print(table(siege.rows))  # noqa: T201 - a program
        print(" ".join(f"{name}={n}" for name, n in found.items()), f"ended={ended}")  # noqa: T201
        fine = {"accepted", *(("lost", "unanswered") if siege.may_lose else ())}
        return int(any(found[name] for name in found if name not in fine) or ended > 0)


async def _until_ready(client: httpx.AsyncClient, port: int) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                if (await client.get(f"http://127.0.0.1:{port}/ready")).is_success:
                    return
            except httpx.HTTPError:
                pass
            await asyncio.sleep(0.2)


async def _main(words: Sequence[str], folder: Path) -> int:
    is_managed = _PATRONI in words
    names = [word for word in words if word != _PATRONI] or (UNDER_PATRONI if is_managed else list(TROUBLES))
    async with (under_patroni if is_managed else by_hand)(folder / "servers") as cluster:
        return await run(cluster, names, folder)


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ha", description=__doc__)
    parser.add_argument("--folder", type=Path, help="an empty one, to keep the logs in")
    words = [_PATRONI, *TROUBLES]
    parser.add_argument("words", nargs="*", choices=[*words, []], metavar="WORD", help=", ".join(words))
    wanted = parser.parse_args(args)
    with tempfile.TemporaryDirectory(prefix="palaver-ha-", ignore_cleanup_errors=True) as temporary:
        folder: Path = wanted.folder or Path(temporary)
        folder.chmod(0o755)  # the servers have a user of their own
        (folder / "servers").mkdir()
        return asyncio.run(_main(wanted.words, folder))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
