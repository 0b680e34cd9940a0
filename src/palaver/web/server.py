"""Run the web server in the gateway's event loop; the gateway decides when it stops."""

import asyncio
import logging
import math
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from palaver.engine.retry import log_error, log_task_error, retry_outage
from palaver.web.address import Address
from palaver.web.app import make_app
from palaver.web.connections import ConnectionState, LimitedProtocol
from palaver.web.limits import WebLimits, usable_connections
from palaver.web.services import Services
from palaver.web.tokens import has_any_key, issue_link

if TYPE_CHECKING:
    from starlette.types import ASGIApp

log = logging.getLogger(__name__)

_RETRY_SECONDS = 5.0
_SHUTDOWN_SECONDS = 2
"""How long open requests have to finish when the server stops."""
_CANCEL_SECONDS = 1
"""How long after that a request has to end whose client was disconnected, before it is cancelled."""
_TICKS_PER_SWEEP = 10
"""Uvicorn ticks ten times per second."""


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, limits: WebLimits) -> None:
        super().__init__(config)
        self.server_state = self.state = ConnectionState(limits)

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the gateway."""
        yield

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_PER_SWEEP == 0:
            self.state.sweep(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Disconnect clients that are still there after a while, so that their requests end as if they had left."""
        disconnect = asyncio.get_running_loop().call_later(_SHUTDOWN_SECONDS, self.state.drop_all)
        try:
            await super().shutdown(sockets)
        finally:
            disconnect.cancel()
            self.state.drop_all()


@asynccontextmanager
async def serve_web(
    services: Services, announce: Callable[[str], None], *, is_logged: bool = False
) -> AsyncGenerator[None]:
    """Serve the web interface inside the block, or wait for its port; announce how to log in once it is up.

    If announcements are logged, announce a login link only while the gateway has no key at all.
    """
    services, is_up = replace(services, limits=_fit_limits(services.limits)), asyncio.Event()
    tasks = [
        asyncio.create_task(_restart_forever(services.hub.serve), name="event hub"),
        asyncio.create_task(_restart_forever(partial(_serve, make_app(services), services, is_up)), name="web server"),
        asyncio.create_task(_announce(services, announce, is_up, is_logged=is_logged), name="login link"),
    ]
    tasks[-1].add_done_callback(
        partial(log_task_error, log, "no login link was made", {"action": "web.link_not_shown"})
    )
    try:
        yield
    finally:
        services.hub.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _restart_forever(part: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - the gateway goes on without its web interface
            log_error(log, "the web interface restarts", error, {"action": "web.error"})
        await asyncio.sleep(_RETRY_SECONDS)


async def _announce(
    services: Services, announce: Callable[[str], None], is_up: asyncio.Event, *, is_logged: bool
) -> None:
    await is_up.wait()
    announce(await retry_outage(lambda: _login_hint(services, is_logged=is_logged)))


async def _login_hint(services: Services, *, is_logged: bool) -> str:
    url, now = services.address.url, services.clock.now()
    if is_logged and await has_any_key(services.store, now):
        return f"The web interface is at {url}. Run `palaver web link` to log in from a browser."
    link = await issue_link(services.store, url, now)
    return f"Open {link} in a browser. The link works once, within an hour."


async def _serve(app: "ASGIApp", services: Services, is_up: asyncio.Event) -> None:
    address, limits = services.address, services.limits
    config = uvicorn.Config(
        app,
        http=LimitedProtocol,
        log_config=None,
        log_level="error",
        access_log=False,
        ws="none",
        lifespan="off",
        server_header=False,
        proxy_headers=bool(address.trusted_proxies),
        forwarded_allow_ips=list(address.trusted_proxies),
        timeout_keep_alive=math.ceil(limits.idle_seconds),
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS + _CANCEL_SECONDS,
    )
    server = _Server(config, limits)
    listener = await _bind_when_free(address)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    log.info("the web interface is at %s", address.url, extra={"action": "web.started"})
    is_up.set()
    try:
        await asyncio.shield(running)
    finally:
        server.should_exit = True
        await asyncio.wait({running}, timeout=2 * (_SHUTDOWN_SECONDS + _CANCEL_SECONDS))
        running.cancel()
        listener.close()


def _fit_limits(limits: WebLimits) -> WebLimits:
    usable = usable_connections(limits.connections)
    if usable < limits.connections:
        log.warning(
            "web.connections is %d instead of %d: this process cannot open more files",
            usable,
            limits.connections,
            extra={"action": "web.few_files"},
        )
    return replace(limits, connections=usable)


async def _bind_when_free(address: Address) -> socket.socket:
    is_reported = False
    while True:
        try:
            return _bind(address)
        except OSError as error:
            if not is_reported:
                log.error(  # noqa: TRY400 - the traceback adds nothing
                    "no web interface: cannot use %s port %s (%s); free it or set web: {port: 8788}",
                    address.host,
                    address.port,
                    error.strerror or error,
                    extra={"action": "web.port_taken"},
                )
            is_reported = True
        await asyncio.sleep(_RETRY_SECONDS)


def _bind(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    # asyncio turns on TCP_NODELAY only for sockets that name their protocol.
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
