"""Tell the service manager how the gateway is: ready, alive, stopping. Nothing happens without one."""

import asyncio
import os
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
_MICROSECONDS = 1_000_000


@asynccontextmanager
async def supervised() -> AsyncGenerator[None]:
    """Say that the gateway is ready, and then, as often as the manager asks, that its event loop still runs."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        yield
        return
    _send(address, READY)
    alive = asyncio.create_task(_keep_saying_alive(address))
    try:
        yield
    finally:
        alive.cancel()


def notify_stopping() -> None:
    if address := os.environ.get("NOTIFY_SOCKET"):
        _send(address, STOPPING)


async def _keep_saying_alive(address: str) -> None:
    limit = os.environ.get("WATCHDOG_USEC", "")
    if not limit.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return
    while True:
        _send(address, ALIVE)
        await asyncio.sleep(int(limit) / _MICROSECONDS / 3)


def _send(address: str, state: str) -> None:
    """Send one datagram. A manager that does not listen is no reason to stop."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as client:
        try:
            client.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
        except OSError:
            return
