"""A real sshd on loopback, with a host key and a user key of its own."""

import asyncio
import getpass
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.engine.gateway import until
from tests.needs import program
from tests.ports import free_port

__all__ = ["Sshd", "sshd"]

CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile {folder}/pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
"""


@dataclass(frozen=True)
class Sshd:
    host: str
    port: int
    key: Path
    known_hosts: Path


async def _run(*argv: str) -> None:
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0, argv


@asynccontextmanager
async def sshd(folder: Path) -> AsyncGenerator[Sshd]:
    server_program = program("sshd")
    folder.mkdir(mode=0o700)  # noqa: ASYNC240 - quick
    for name in ("host", "user"):
        await _run(f"{program('ssh')}-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name))
    port = free_port()
    (folder / "config").write_text(CONFIG.format(port=port, folder=folder))
    public = (folder / "host.pub").read_text()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {public}")
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # noqa: PTH103 - where it drops its rights
    server = await asyncio.create_subprocess_exec(server_program, "-D", "-e", "-f", str(folder / "config"), stderr=-3)
    try:
        await until(lambda: _listens(port))
        yield Sshd(f"{getpass.getuser()}@127.0.0.1", port, folder / "user", folder / "known")
    finally:
        server.terminate()
        await server.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
