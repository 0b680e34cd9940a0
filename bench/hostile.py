"""Hostile clients against a real gateway: `python -m bench.hostile [--connections N] [--seconds N] [KIND…]`.

A gateway runs in a process of its own, with the descriptor limit that most systems give a program. A second process
opens connections that send nothing, half a head or half a body, or read nothing. A second after one is closed it opens
another.
Meanwhile this one asks for /health and sends messages, each time over a new connection. At the end the gateway is
asked to stop while all of them are open.
"""

import argparse
import asyncio
import base64
import hashlib
import json
import multiprocessing
import os
import re
import resource
import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path

from palaver.store.opening import open_store
from palaver.web.tokens import issue_token
from tests.ports import free_port

__all__ = ["KINDS", "Attack", "Gateway", "Probe", "head", "message"]

_PROBE_SECONDS = 0.25
_PATIENCE = 5.0
_AGAIN_SECONDS = 1.0
_LARGE = 50_000_000
_FILE = bytes(5_000_000)
_FILE_ID = hashlib.sha256(_FILE).hexdigest()
_NEVER_READS = "never reads"
_CONFIG = """web: {{port: {port}}}
platforms:
  webhook:
    accounts:
      ci: {{secret: "a secret of a webhook", scheme: token}}
grants:
  - {{platform: api}}
"""


def head(port: int, request: str, *lines: str) -> bytes:
    return "\r\n".join((request, f"Host: 127.0.0.1:{port}", *lines, "", "")).encode()


def message(port: int, token: str, body: bytes) -> bytes:
    lines = (f"Authorization: Bearer {token}", "Content-Type: application/json", f"Content-Length: {len(body)}")
    return head(port, "POST /api/v1/messages HTTP/1.1", *lines) + body


def _idle(_port: int, _token: str) -> bytes:
    return b""


def _half_head(port: int, _token: str) -> bytes:
    return f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nX-Slow: ".encode()


def _half_form(port: int, _token: str) -> bytes:
    kind = "Content-Type: application/x-www-form-urlencoded"
    return head(port, "POST /login HTTP/1.1", kind, "Content-Length: 9000") + b"code="


def _half_callback(port: int, _token: str) -> bytes:
    return head(port, "POST /in/webhook/ci HTTP/1.1", "Content-Length: 1000000") + b"x" * 1000


def _half_message(port: int, token: str) -> bytes:
    lines = (f"Authorization: Bearer {token}", "Content-Type: application/json", f"Content-Length: {_LARGE}")
    return head(port, "POST /v1/chat/completions HTTP/1.1", *lines) + b'{"model": "'


def _silent_stream(port: int, token: str) -> bytes:
    return head(port, "GET /events HTTP/1.1", f"Authorization: Bearer {token}")


def _never_reads(port: int, token: str) -> bytes:
    return head(port, f"GET /api/v1/files/{_FILE_ID} HTTP/1.1", f"Authorization: Bearer {token}")


KINDS: dict[str, Callable[[int, str], bytes]] = {
    "idle": _idle,
    "half head": _half_head,
    "half form": _half_form,
    "half callback": _half_callback,
    "half message": _half_message,
    "silent stream": _silent_stream,
    _NEVER_READS: _never_reads,
}


@dataclass
class Attack:
    """Connections that are opened again when they are closed."""

    port: int
    tokens: Mapping[str, str]
    """A token for each kind."""
    answers: Counter[str] = field(default_factory=Counter[str])
    """What the gateway did with them."""
    _open: dict[socket.socket, str] = field(default_factory=dict[socket.socket, str])
    _tasks: set["asyncio.Task[None]"] = field(default_factory=set["asyncio.Task[None]"])

    @property
    def size(self) -> int:
        return len(self._open)

    async def grow(self, connections: int) -> None:
        kinds = list(self.tokens)
        for number in range(connections):
            await self.connect(kinds[number % len(kinds)])

    async def connect(self, kind: str) -> None:
        loop, each = asyncio.get_running_loop(), socket.socket()
        each.setblocking(False)
        if kind == _NEVER_READS:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        try:
            async with asyncio.timeout(_PATIENCE):
                await loop.sock_connect(each, ("127.0.0.1", self.port))
        except OSError:
            self.answers["not accepted"] += 1
            each.close()
            return
        self._open[each] = kind
        with suppress(OSError):
            each.send(KINDS[kind](self.port, self.tokens[kind]))
        if kind != _NEVER_READS:
            loop.add_reader(each, self._read, each)

    def _read(self, each: socket.socket) -> None:
        try:
            content = each.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            content = b""
        kind = self._open[each]
        if content.startswith(b"HTTP/1.1"):
            self.answers[f"{kind}: {content[9:12].decode()}"] += 1
        if not content:
            self.answers[f"{kind}: closed"] += 1
            self._close(each)
            task = asyncio.create_task(self._connect_again(kind))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _connect_again(self, kind: str) -> None:
        await asyncio.sleep(_AGAIN_SECONDS)
        await self.connect(kind)

    def count_cut_off(self) -> None:
        """Count the connections that read nothing and were closed for it."""
        poll = select.poll()
        for each in (each for each, kind in self._open.items() if kind == _NEVER_READS):
            poll.register(each, 0)
        self.answers[f"{_NEVER_READS}: closed"] = len(poll.poll(0))

    def _close(self, each: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(each)
        del self._open[each]
        each.close()

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for each in list(self._open):
            self._close(each)


@dataclass
class Probe:
    """One kind of honest request, again and again, each over a new connection."""

    port: int
    request: bytes
    patience: float = _PATIENCE
    times: list[float] = field(default_factory=list[float])
    answers: Counter[str] = field(default_factory=Counter[str])

    async def run(self) -> None:
        while True:
            start = time.perf_counter()
            answer = await self.ask()
            self.answers[answer] += 1
            if answer.startswith("2"):
                self.times.append(time.perf_counter() - start)
            await asyncio.sleep(_PROBE_SECONDS)

    async def ask(self) -> str:
        try:
            async with asyncio.timeout(self.patience):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                try:
                    writer.write(self.request)
                    return (await reader.readline()).decode().partition(" ")[2][:3] or "closed"
                finally:
                    writer.close()
        except TimeoutError:
            return "nothing"
        except OSError:
            return "reset"

    def text(self, name: str) -> str:
        p95 = statistics.quantiles(self.times, n=20)[-1] if len(self.times) > 1 else 0.0
        most = max(self.times, default=0.0)
        return f"{name}: {dict(self.answers)}, p95 {p95 * 1000:.0f} ms, slowest {most * 1000:.0f} ms"


@dataclass
class Gateway:
    folder: Path
    files: int
    port: int

    def start(self) -> "subprocess.Popen[bytes]":
        (self.folder / "config.yaml").write_text(_CONFIG.format(port=self.port))
        limited = f'ulimit -Sn {self.files}; exec "{sys.executable}" -m palaver up'
        with (self.folder / "log").open("wb") as log:
            command = ["/bin/sh", "-c", limited]
            return subprocess.Popen(command, env=self._environment, stdout=log, stderr=log)  # noqa: S603

    @property
    def _environment(self) -> dict[str, str]:
        return os.environ | {"PALAVER_HOME": str(self.folder), "PALAVER_CONFIG": str(self.folder / "config.yaml")}

    async def tokens(self, names: Iterable[str], identity: str) -> dict[str, str]:
        async with await open_store(str(self.folder / "palaver.db")) as store:
            now = datetime.now(UTC)
            return {name: (await issue_token(store, now, name=name, identity=identity))[0] for name in names}

    async def send_file(self, token: str) -> None:
        """Send a message with the file that is downloaded later."""
        file = {"name": "large", "content": base64.b64encode(_FILE).decode()}
        body = json.dumps({"text": "hello", "files": [file], "wait": 30}).encode()
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(message(self.port, token, body))
        await reader.readline()
        writer.close()

    def text(self, pid: int) -> str:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+)", status)
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        seconds = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        memory = int(resident[1]) // 1000 if resident else 0
        return f"gateway: {memory} MB, {descriptors} descriptors, {seconds:.0f} s of CPU"


async def _attack(port: int, tokens: Mapping[str, str], connections: int, pipe: Connection) -> None:
    attack, start = Attack(port, tokens), time.perf_counter()
    await attack.grow(connections)
    pipe.send(f"{attack.size} hostile connections in {time.perf_counter() - start:.1f} s")
    while not pipe.poll():  # noqa: ASYNC110 - another process says so
        await asyncio.sleep(0.1)
    attack.count_cut_off()
    pipe.send(f"what became of them: {dict(sorted(attack.answers.items()))}; open at the end: {attack.size}")
    await asyncio.to_thread(lambda: (pipe.recv(), pipe.recv()))
    attack.end()


def _run_attack(port: int, tokens: Mapping[str, str], connections: int, pipe: Connection) -> None:
    asyncio.run(_attack(port, tokens, connections, pipe))


async def _measure(gateway: Gateway, process: "subprocess.Popen[bytes]", options: argparse.Namespace) -> None:
    tokens, port = await gateway.tokens(options.kinds or KINDS, "api:neighbour"), gateway.port
    honest = (await gateway.tokens(["honest"], "api:honest"))["honest"]
    if _NEVER_READS in tokens:
        await gateway.send_file(tokens[_NEVER_READS])
    health = Probe(port, head(port, "GET /health HTTP/1.1"))
    messages = Probe(port, message(port, honest, b'{"text": "hello", "wait": 5}'))
    here, there = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    attackers = context.Process(target=_run_attack, args=(port, tokens, options.connections, there), daemon=True)
    attackers.start()
    tasks = [asyncio.create_task(each) for each in (health.run(), messages.run())]
    print(await asyncio.to_thread(here.recv))
    await asyncio.wait(tasks, timeout=options.seconds)
    here.send("report")
    for task in tasks:
        task.cancel()
    print(await asyncio.to_thread(here.recv))
    print(health.text("GET /health"), messages.text("POST /api/v1/messages"), gateway.text(process.pid), sep="\n")
    start = time.perf_counter()
    process.send_signal(signal.SIGTERM)
    try:
        code = await asyncio.to_thread(process.wait, 60)
        print(f"SIGTERM: ended with {code} after {time.perf_counter() - start:.1f} s")
    except subprocess.TimeoutExpired:
        print("SIGTERM: still running after 60 s")
    here.send("end")
    await asyncio.to_thread(attackers.join)


def _wait_until_up(port: int) -> None:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    sys.exit("the gateway did not start")


def main(args: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile", description=__doc__)
    parser.add_argument("--connections", type=int, default=6000)
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--files", type=int, default=1024, help="the soft descriptor limit of the gateway")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"only these: {', '.join(KINDS)}")
    options = parser.parse_args(args)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * options.connections + 500), hard))
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="palaver-hostile-") as folder:
        gateway = Gateway(Path(folder), options.files, port)
        process = gateway.start()
        try:
            _wait_until_up(port)
            asyncio.run(_measure(gateway, process, options))
        finally:
            process.kill()
            process.wait()
            log = (Path(folder) / "log").read_text(errors="replace").splitlines()
            told = [line for line in log if "info" not in line]
            print(f"log: {len(log)} lines, {len(told)} of them warnings or errors", *told[-8:], sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
