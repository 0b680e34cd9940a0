"""The control socket: takes orders from the gateway, and tells it when something has changed.

An order is one letter, four bytes of length and a payload: `w` writes to standard input, `c` closes it, `k` kills
everything after a grace period in seconds. It is answered with `+` or `-`. A `.` says that there is new output or a new
line in the status.
"""

import select
import time
from _collections_abc import Callable, Iterator  # collections is bigger

from palaver.processes.supervisor.lean import socket

MAX_CLIENTS = 16
MAX_ORDER_BYTES = 1 << 20
HEAD_BYTES = 5
CHUNK_BYTES = 1 << 16
PING_SECONDS = 0.05


class Client:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.buffer = b""
        self.must_ping = True
        self.pinged_at = 0.0

    def send(self, data: bytes) -> None:
        try:
            self.connection.send(data)
        except OSError:
            pass  # it is full of pings, or closes when it is read

    def answer(self, is_done: bool) -> None:
        self.send(b"+" if is_done else b"-")


class ControlServer:
    def __init__(self, path: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(path)
        self._listener.listen(MAX_CLIENTS)
        self._listener.setblocking(False)
        self._clients: dict[int, Client] = {}

    def wanted(self) -> dict[int, int]:
        """Return what to wait for, by descriptor."""
        return dict.fromkeys((self._listener.fileno(), *self._clients), select.POLLIN)

    def orders(self, ready: set[int]) -> Iterator[tuple[bytes, bytes, Callable[[bool], None]]]:
        """Yield letter and payload of each order that has arrived, and the function that answers it."""
        if self._listener.fileno() in ready:
            self._accept()
        for client in [client for number, client in self._clients.items() if number in ready]:
            is_open = self._receive(client)
            while order := _take_order(client):
                yield (*order, client.answer)
            if not is_open or len(client.buffer) > MAX_ORDER_BYTES + HEAD_BYTES:
                del self._clients[client.connection.fileno()]
                client.connection.close()

    def mark_changed(self) -> None:
        for client in self._clients.values():
            client.must_ping = True

    def ping_at(self) -> float | None:
        """Return when the next client has to learn of a change."""
        moments = [client.pinged_at + PING_SECONDS for client in self._clients.values() if client.must_ping]
        return min(moments, default=None)

    def ping(self) -> None:
        now = time.monotonic()
        for client in self._clients.values():
            if client.must_ping and now >= client.pinged_at + PING_SECONDS:
                client.must_ping, client.pinged_at = False, now
                client.send(b".")

    def _accept(self) -> None:
        try:
            number: int = getattr(self._listener, "_accept")()[0]  # noqa: B009 - of the C module
        except OSError:
            return
        connection = socket.socket(fileno=number)
        connection.setblocking(False)
        if len(self._clients) < MAX_CLIENTS:
            self._clients[number] = Client(connection)
        else:
            connection.close()

    def _receive(self, client: Client) -> bool:
        """Return False at the end of the connection."""
        try:
            data = client.connection.recv(CHUNK_BYTES)
        except BlockingIOError:
            return True
        except OSError:
            return False
        client.buffer += data
        return bool(data)


def _take_order(client: Client) -> tuple[bytes, bytes] | None:
    length = int.from_bytes(client.buffer[1:HEAD_BYTES], "big")
    end = HEAD_BYTES + length
    if len(client.buffer) < HEAD_BYTES or len(client.buffer) < end:
        return None
    letter, payload, client.buffer = client.buffer[:1], client.buffer[HEAD_BYTES:end], client.buffer[end:]
    return letter, payload
