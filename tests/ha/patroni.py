"""The same three servers under Patroni and etcd, as Debian packages them."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import httpx
import psutil

from tests.ha.cluster import REFUSED, WRITE, Cluster, Node, user_of_servers
from tests.ha.link import Link
from tests.ports import free_port
from tests.programs import Program, install

__all__ = ["under_patroni"]

NEEDS = (
    Program(name="patroni", package="patroni postgresql", purpose="a cluster of PostgreSQL that manages itself"),
    Program(name="etcd", package="etcd-server", purpose="the memory of that cluster"),
)
_PASSWORD = "none is asked for"  # noqa: S105 - every connection is trusted
_SETTINGS = {
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "32MB",
    "max_connections": 60,
    "wal_keep_size": "128MB",
    "wal_retrieve_retry_interval": "500ms",
    "wal_receiver_timeout": "5s",
}
_TIMES = {"ttl": 20, "loop_wait": 2, "retry_timeout": 3}
"""The quickest that Patroni takes."""
_REJOIN_SECONDS = 45.0


def _configuration(node: Node, etcd: Link, api: Link, api_port: int) -> dict[str, object]:
    logins = {"username": "postgres", "password": _PASSWORD}
    return {
        "scope": "ha",
        "name": node.name,
        "restapi": {"listen": f"127.0.0.1:{api_port}", "connect_address": f"127.0.0.1:{api.port}"},
        "etcd3": {"host": f"127.0.0.1:{etcd.port}", "use_proxies": True},  # look for no other way there
        "bootstrap": {
            "dcs": {**_TIMES, "synchronous_mode": True, "postgresql": {"parameters": _SETTINGS}},
            "initdb": [{"auth": "trust"}, {"encoding": "UTF8"}],
        },
        "postgresql": {
            "listen": f"127.0.0.1:{node.port}",
            "connect_address": f"127.0.0.1:{node.peers.port}",
            "data_dir": str(node.folder),
            "bin_dir": str(node.programs),
            "pgpass": f"{node.folder}.pgpass",
            "authentication": {"superuser": logins, "replication": logins},
            "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
            "remove_data_directory_on_diverged_timelines": True,
            "basebackup": [{"checkpoint": "fast"}],
        },
    }


class Patroni(Cluster):
    def start(self, node: Node) -> None:
        """Start its manager, which starts the server."""
        with Path(f"{node.folder}.log").open("ab") as log:
            command = ["/usr/bin/patroni", f"{node.folder}.json"]
            process = subprocess.Popen(command, user=node.user, cwd="/", stdout=log, stderr=log, start_new_session=True)
        node.manager = psutil.Process(process.pid)

    async def until_writable(self) -> None:
        async with asyncio.timeout(180):
            while True:
                for node in self.nodes:
                    with suppress(*REFUSED):
                        if not await node.ask("SELECT pg_is_in_recovery()", 3) and await node.ask(WRITE, 3):
                            self.nodes.sort(key=lambda each: each is not node)
                            return
                await asyncio.sleep(0.2)

    async def replace_primary(self, seconds: float) -> Node:
        del seconds
        old = self.primary
        await self.until_writable()
        return old

    async def switch_over(self) -> Node:
        old = self.primary
        command = ["/usr/bin/patronictl", "-c", f"{old.folder}.json", "switchover", "--force"]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
        while self.primary is old:
            await asyncio.sleep(0.2)
            await self.until_writable()
        return old

    async def heal(self, node: Node) -> None:
        node.signal(signal.SIGCONT)
        for link in node.links:
            link.mend()
        if node.manager not in node.processes():
            self.start(node)
        try:
            await self.until_replicated(_REJOIN_SECONDS)
        except TimeoutError:  # what it has differs from what the others have
            await node.until_ended()
            await asyncio.to_thread(shutil.rmtree, node.folder)
            self.start(node)
            await self.until_replicated()


def _programs() -> Path:
    return max(Path("/usr/lib/postgresql").glob("*/bin/initdb")).parent


async def _until_etcd_answers(port: int) -> None:
    """At first it does not know its own version, which Patroni does not expect."""
    async with asyncio.timeout(60), httpx.AsyncClient() as client:
        while True:
            with suppress(httpx.HTTPError):
                found = (await client.get(f"http://127.0.0.1:{port}/version")).json()
                if found["etcdcluster"] != "not_decided":
                    return
            await asyncio.sleep(0.1)


@asynccontextmanager
async def under_patroni(folder: Path) -> AsyncGenerator[Cluster]:
    if not install([each for each in NEEDS if not each.is_there], lambda text: print(text, file=sys.stderr)):  # noqa: T201
        sys.exit("\n".join(f"{each.name} is missing: {each.remedy}" for each in NEEDS if not each.is_there))
    programs = _programs()
    user = user_of_servers(programs, folder)
    nodes = [Node(name=f"db{n}", folder=folder / f"db{n}", programs=programs, user=user) for n in (1, 2, 3)]
    etcd_port, peer_port = free_port(), free_port()
    urls = {"--listen-client-urls": etcd_port, "--advertise-client-urls": etcd_port, "--listen-peer-urls": peer_port}
    words = [word for name, port in urls.items() for word in (name, f"http://127.0.0.1:{port}")]
    peer = f"http://127.0.0.1:{peer_port}"
    words += ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
    command = ["etcd", "--data-dir", folder / "etcd", *words]
    quiet = asyncio.subprocess.DEVNULL
    etcd = await asyncio.create_subprocess_exec(*command, stdout=quiet, stderr=quiet)
    cluster = Patroni(nodes=nodes)
    try:
        await _until_etcd_answers(etcd_port)
        for node in nodes:
            api_port = free_port()
            to_etcd, to_api = Link(etcd_port), Link(api_port)
            node.links += [to_etcd, to_api]
            for link in node.links:
                await link.start()
            configuration = json.dumps(_configuration(node, to_etcd, to_api, api_port))
            node.folder.with_suffix(".json").write_text(configuration)
            cluster.start(node)
        await cluster.until_writable()
        await cluster.until_replicated()
        await cluster.primary.ask("CREATE DATABASE palaver")
        yield cluster
    finally:
        for node in nodes:
            await node.until_ended()
            for link in node.links:
                link.stop()
        etcd.kill()
        await etcd.wait()
