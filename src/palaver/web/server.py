"""The server of the window: in the gateway's own loop, its end decided by the gateway."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING

import uvicorn

from palaver.web.access.doors import make_link
from palaver.web.address import Address
from palaver.web.app import make_app
from palaver.web.desk import Desk

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["opened"]

log = logging.getLogger(__name__)

_TRY_AGAIN = 5.0
"""Seconds until a port that was taken is tried again."""
_LAST_ANSWERS = 2
"""Seconds in which requests may end when the window closes."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the gateway's."""
        yield


@asynccontextmanager
async def opened(desk: Desk, tell: Callable[[str], None]) -> AsyncGenerator[None]:
    """While this lasts the window is open, or waits for its port. Once it is open, a login link is told."""
    app = make_app(desk)
    hub = asyncio.create_task(desk.hub.serve(), name="hub")
    serving = asyncio.create_task(_serve(app, desk, tell), name="window")
    try:
        yield
    finally:
        desk.hub.close()
        for task in (serving, hub):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _serve(app: "ASGIApp", desk: Desk, tell: Callable[[str], None]) -> None:
    """Without its window a gateway goes on: whoever writes to it elsewhere does not need it."""
    address = desk.address
    listener = await _bound(address)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        proxy_headers=bool(address.trusted_proxies),
        forwarded_allow_ips=list(address.trusted_proxies),
        timeout_graceful_shutdown=_LAST_ANSWERS,
    )
    server = _Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    log.info("the window is open at %s", address.url, extra={"action": "window.open"})
    try:
        link = await make_link(desk.store, address.url, desk.clock.now())
        tell(f"Open {link} in a browser; the link is good once, for an hour.")
        await asyncio.shield(running)
    except asyncio.CancelledError:
        desk.hub.close()
        server.should_exit = True
        await running
        raise
    finally:
        listener.close()


async def _bound(address: Address) -> socket.socket:
    """The socket, as soon as nobody else has the port."""
    is_told = False
    while True:
        try:
            return _listener(address)
        except OSError as error:
            if not is_told:
                told = {"action": "window.waits"}
                why = f"{address.host} port {address.port} cannot be had ({error.strerror or error})"
                log.error("no window: %s; free it or take another: web: {port: 8788}", why, extra=told)  # noqa: TRY400
            is_told = True
        await asyncio.sleep(_TRY_AGAIN)


def _listener(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # By the protocol asyncio knows that small answers must not wait for each other.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
        listener.listen(2048)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener
