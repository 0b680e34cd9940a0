"""Close connections that hold a place without using it, and refuse those beyond the limit.

Uvicorn limits only how long a connection stays open after an answer. Here every connection owes something: a whole
request, or that its client reads the answer. If it owes that for too long, it is closed.
"""

import asyncio
import logging
import socket
import struct
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from palaver.web.auth_middleware import SCOPE_CALLER
from palaver.web.limits import WebLimits

log = logging.getLogger(__name__)

_MAX_REFUSED = 100
_REFUSED_SECONDS = 2.0
"""How long a client that is refused has to read why."""
_PROGRESS_BYTES = 16_000
"""A client that reads this much is not stuck."""
_REPORT_SECONDS = 60.0
_RESET = struct.pack("ii", 1, 0)
_BUSY = b"Too many connections are open. Try again later.\n"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 5\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(_BUSY), _BUSY)
)


class ConnectionState(ServerState):
    """What the connections of one server share."""

    def __init__(self, limits: WebLimits) -> None:
        super().__init__()
        self.limits = limits
        self.waiting: dict[LimitedProtocol, None] = {}
        """Connections that owe a whole request, the longest first."""
        self.refused: dict[LimitedProtocol, None] = {}
        self._closed_count = 0
        self._refused_count = 0
        self._reported: float | None = None

    @property
    def is_full(self) -> bool:
        return len(self.connections) > self.limits.connections

    def make_room(self) -> bool:
        """Close the connection that has owed a request for longest, unless its caller has logged in."""
        while self.waiting:
            oldest = next(iter(self.waiting))
            del self.waiting[oldest]
            if not oldest.has_caller:
                oldest.drop()
                self._closed_count += 1
                self._report(oldest.loop.time())
                return True
        return False

    def refuse(self, connection: "LimitedProtocol") -> None:
        self._refused_count += 1
        self.refused[connection] = None
        if len(self.refused) > _MAX_REFUSED:
            next(iter(self.refused)).drop()
        self._report(connection.loop.time())

    def sweep(self, now: float) -> None:
        """Close what is overdue. Call it about once per second."""
        for connection in self._all():
            if connection.is_overdue(now):
                connection.drop()
        self._report(now)

    def _all(self) -> "list[LimitedProtocol]":
        return [each for each in [*self.connections, *self.refused] if isinstance(each, LimitedProtocol)]

    def _report(self, now: float) -> None:
        """Log it at once, and then at most once per minute."""
        if not self._closed_count + self._refused_count:
            return
        if self._reported is not None and now - self._reported < _REPORT_SECONDS:
            return
        log.warning(
            "all %d connections are in use: closed %d without a request, refused %d; web.connections sets the limit",
            self.limits.connections,
            self._closed_count,
            self._refused_count,
            extra={"action": "web.full"},
        )
        self._reported, self._closed_count, self._refused_count = now, 0, 0

    def drop_all(self) -> None:
        for connection in self._all():
            connection.drop()


class LimitedProtocol(H11Protocol):
    """One connection."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ConnectionState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._state = server_state
        self._since = self.loop.time()
        """When it last brought what it owes."""
        self._unread = 0
        """Bytes that the client had not read then."""
        self._is_refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # pyright: ignore[reportIncompatibleMethodOverride] - as uvicorn has it
        super().connection_made(transport)
        if self._state.is_full and not self._state.make_room():
            self._refuse()
        else:
            self._state.waiting[self] = None

    def _refuse(self) -> None:
        """Say so, and go on reading for a moment: a connection closed with unread data is reset at the other side."""
        self._is_refused = True
        self.connections.discard(self)
        self._state.refuse(self)
        if not self.transport.is_closing():
            self.transport.write(_REFUSAL)
            self.transport.write_eof()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._is_refused:
            super().data_received(data)

    def handle_events(self) -> None:
        super().handle_events()
        if self._is_answering and not self.cycle.more_body:
            self._state.waiting.pop(self, None)

    def on_response_complete(self) -> None:
        self._since, self._unread = self.loop.time(), 0
        self._state.waiting.pop(self, None)
        self._state.waiting[self] = None
        super().on_response_complete()

    def shutdown(self) -> None:
        """Finish the answer to a whole request; drop everything else."""
        if not self._is_answering:
            self.transport.close()
        elif self in self._state.waiting:
            self.drop()
        else:
            super().shutdown()

    @property
    def has_caller(self) -> bool:
        return self._is_answering and SCOPE_CALLER in self.scope

    @property
    def _is_answering(self) -> bool:
        # Uvicorn's attributes are None before the first request.
        return bool(self.cycle) and not self.cycle.response_complete

    def is_overdue(self, now: float) -> bool:
        if self._is_refused:
            return now - self._since > _REFUSED_SECONDS
        unread = self.transport.get_write_buffer_size()
        # While we answer, only reading is owed: a slow body has its own limit.
        if (self._is_answering and not unread) or unread <= self._unread - _PROGRESS_BYTES:
            self._since, self._unread = now, unread
        self._unread = max(self._unread, unread)
        return now - self._since > self._state.limits.idle_seconds

    def drop(self) -> None:
        """Close at once. A reset frees the memory of an answer that the client does not read."""
        self._forget()
        if self.transport.get_write_buffer_size():
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self.transport.abort()

    def _forget(self) -> None:
        self.connections.discard(self)
        self._state.waiting.pop(self, None)
        self._state.refused.pop(self, None)
