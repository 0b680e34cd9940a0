"""The server of the window: in the gateway's own loop, its end decided by the gateway."""

import asyncio
import logging
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from palaver.engine.retry import log_error, log_task_error, retry_outage
from palaver.web.address import Address
from palaver.web.app import make_app
from palaver.web.services import Services
from palaver.web.tokens import has_keys, make_link

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["opened"]

log = logging.getLogger(__name__)

_TRY_AGAIN = 5.0
"""Seconds until a port that was taken, or whatever broke, is tried again."""
_LAST_ANSWERS = 2
"""Seconds in which requests may end when the window closes."""


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Signals are the gateway's."""
        yield


@asynccontextmanager
async def opened(services: Services, tell: Callable[[str], None], *, is_kept: bool = False) -> AsyncGenerator[None]:
    """While this lasts the window is open, or waits for its port. Once it is open, a login link is told.

    Where what is told is kept, as logs are, no link is: but to a gateway that nobody has come to yet.
    """
    is_open = asyncio.Event()
    tasks = [
        asyncio.create_task(_unending(services.hub.serve), name="hub"),
        asyncio.create_task(_unending(partial(_serve, make_app(services), services, is_open)), name="window"),
        asyncio.create_task(_tell_how(services, tell, is_open, is_kept=is_kept), name="link"),
    ]
    tasks[-1].add_done_callback(partial(log_task_error, log, "no link was made", {"action": "web.link_not_shown"}))
    try:
        yield
    finally:
        services.hub.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _unending(part: Callable[[], Awaitable[None]]) -> None:
    """Without its window a gateway goes on, and a window that broke opens again."""
    while True:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - the gateway outlives whatever it is
            log_error(log, "the window begins anew", error, {"action": "web.error"})
        await asyncio.sleep(_TRY_AGAIN)


async def _tell_how(services: Services, tell: Callable[[str], None], is_open: asyncio.Event, *, is_kept: bool) -> None:
    await is_open.wait()
    tell(await retry_outage(lambda: _how(services, is_kept=is_kept)))


async def _how(services: Services, *, is_kept: bool) -> str:
    """How to log in."""
    url, now = services.address.url, services.clock.now()
    if is_kept and await has_keys(services.store, now):
        return f"The window is open at {url}; `palaver web link` makes a link that logs a browser in."
    link = await make_link(services.store, url, now)
    return f"Open {link} in a browser; the link is good once, for an hour."


async def _serve(app: "ASGIApp", services: Services, is_open: asyncio.Event) -> None:
    address = services.address
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        proxy_headers=bool(address.trusted_proxies),
        forwarded_allow_ips=list(address.trusted_proxies),
        timeout_graceful_shutdown=_LAST_ANSWERS,
    )
    server = _Server(config)
    listener = await _bound(address)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    log.info("the window is open at %s", address.url, extra={"action": "web.started"})
    is_open.set()
    try:
        await asyncio.shield(running)
    finally:
        server.should_exit = True
        await asyncio.wait({running})
        listener.close()


async def _bound(address: Address) -> socket.socket:
    """The socket, as soon as nobody else has the port."""
    is_told = False
    while True:
        try:
            return _listener(address)
        except OSError as error:
            if not is_told:
                told = {"action": "web.port_taken"}
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
