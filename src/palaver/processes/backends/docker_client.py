"""Run one command in a new container and pass its streams on: a program that the supervisor runs.

It speaks the HTTP API of the Docker engine over its socket, with the standard library only. Its exit code is that of
the command, or 125 if there is no container. `remove` ends a container that `run` has made. After SIGTERM, `run` starts
nothing any more.
"""

import json
import os
import select
import signal
import socket
import sys
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any, cast
from urllib.parse import quote, urlencode

VERSION = "/v1.41"
NO_CONTAINER, KILLED = 125, 137
GRACE_SECONDS = 3.0
CHUNK_BYTES = 1 << 16
HEAD_BYTES = 8


_ended: list[int] = []
"""The signals that asked this program to end."""


class EngineError(Exception):
    """The engine refuses something or does not answer."""


class Connection(HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


class Engine:
    def __init__(self, path: str) -> None:
        self._path = path

    def ask(self, method: str, path: str, body: object = None, **query: object) -> Any:  # noqa: ANN401 - any JSON
        """Call the engine and return its answer. Raises EngineError."""
        connection = Connection(self._path)
        try:
            connection.request(method, _url(path, query), *_content(body))
            return _decoded(connection.getresponse())
        except (OSError, HTTPException) as error:
            raise EngineError(f"the engine does not answer at {self._path}: {error}") from error
        finally:
            connection.close()

    def begin_wait(self, name: str) -> Connection:
        """Ask for the exit code of a container, which `read_code` returns. Raises EngineError."""
        connection = Connection(self._path)
        try:
            connection.request("POST", _url(f"/containers/{quote(name)}/wait", {}))
        except OSError as error:
            raise EngineError(f"the engine does not answer at {self._path}: {error}") from error
        return connection

    def attach(self, name: str, *, takes_input: bool) -> socket.socket:
        """Connect to the streams of a container. Raises EngineError."""
        connection = Connection(self._path)
        query = {"stream": 1, "stdin": int(takes_input), "stdout": 1, "stderr": 1}
        try:
            connection.connect()
            stream = connection.sock
            url = _url(f"/containers/{quote(name)}/attach", query)
            head = f"POST {url} HTTP/1.1\r\nHost: localhost\r\nUpgrade: tcp\r\nConnection: Upgrade\r\n\r\n"
            stream.sendall(head.encode())
            status = _read_head(stream)
        except OSError as error:
            raise EngineError(f"the engine does not answer at {self._path}: {error}") from error
        if status not in {101, 200}:
            raise EngineError(f"the engine refuses to connect to the container (HTTP {status})")
        return stream


def _url(path: str, query: Mapping[str, object]) -> str:
    return f"{VERSION}{path}" + (f"?{urlencode(query)}" if query else "")


def _content(body: object) -> tuple[bytes | None, dict[str, str]]:
    return (None, {}) if body is None else (json.dumps(body).encode(), {"Content-Type": "application/json"})


def _decoded(response: Any) -> Any:  # noqa: ANN401 - any JSON
    text = response.read()
    found: Any = json.loads(text) if text.strip() else {}
    if response.status >= 400:  # noqa: PLR2004 - HTTP
        raise EngineError(str(found.get("message") or f"HTTP {response.status}"))
    return found


def _read_head(stream: socket.socket) -> int:
    """Read the head of a response byte by byte, so that nothing of the stream after it is taken."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        if not byte:
            raise OSError("the connection was closed")
        head += byte
    return int(head.split(b" ", 2)[1])


def run(engine: Engine, name: str, body: dict[str, Any]) -> int:
    """Run the container of this description to its end, and return the exit code of its command."""
    engine.ask("POST", "/containers/create", body, name=name)
    try:
        if _ended:
            return KILLED
        stream = engine.attach(name, takes_input=body["OpenStdin"])
        if _ended:
            return KILLED
        engine.ask("POST", f"/containers/{quote(name)}/start")
        if _ended:  # `remove` was perhaps too early
            remove(engine, name)
            return KILLED
        if body["Tty"]:
            rows, columns = termios.tcgetwinsize(0)
            engine.ask("POST", f"/containers/{quote(name)}/resize", h=rows, w=columns)
        waiting = engine.begin_wait(name)  # Before it ends: `remove` could be faster then.
        copy_streams(stream, is_raw=body["Tty"], takes_input=body["OpenStdin"])
        return read_code(waiting)
    finally:
        _remove_now(engine, name)


def read_code(waiting: Connection) -> int:
    try:
        return int(_decoded(waiting.getresponse())["StatusCode"])
    except (EngineError, OSError, HTTPException):
        return KILLED  # the container was removed before it had ended
    finally:
        waiting.close()


def remove(engine: Engine, name: str) -> None:
    """Ask the command to end, and remove its container after a grace period."""
    try:
        engine.ask("POST", f"/containers/{quote(name)}/kill", signal="SIGTERM")
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until and engine.ask("GET", f"/containers/{quote(name)}/json")["State"]["Running"]:
            time.sleep(0.1)
    except EngineError:
        pass  # it has ended
    _remove_now(engine, name)


def _remove_now(engine: Engine, name: str) -> None:
    with suppress(EngineError):  # somebody else removed it
        engine.ask("DELETE", f"/containers/{quote(name)}", force=1, v=1)


def copy_streams(stream: socket.socket, *, is_raw: bool, takes_input: bool) -> None:
    """Pass on what the container writes, and what is written to us, until the container closes the stream."""
    stream.setblocking(False)  # The container may wait until we read, and read nothing itself until then.
    buffer = given = b""
    while True:
        reading: list[socket.socket | int] = [stream, 0] if takes_input and not given else [stream]
        ready, writable, _ = select.select(reading, [stream] if given else [], [])
        try:
            if 0 in ready:
                given = _read_input()
                if not given:
                    takes_input = False
                    stream.shutdown(socket.SHUT_WR)
            if writable:
                given = given[stream.send(given) :]
        except OSError:  # it has ended; what it said is still there
            given, takes_input = b"", False
        if stream in ready:
            data = _received(stream)
            if not data:
                return
            buffer = _write(buffer + data, is_raw=is_raw)


def _read_input() -> bytes:
    """Return input, and nothing at its end. An error ends it, too: the container would wait for more."""
    try:
        return os.read(0, CHUNK_BYTES)
    except OSError as error:
        with suppress(OSError):
            os.write(2, f"Docker: the input ends early: {error.strerror}\n".encode())
        return b""


def _received(stream: socket.socket) -> bytes:
    try:
        return stream.recv(CHUNK_BYTES)
    except OSError:  # it has ended without reading all that it was given
        return b""


def _write(data: bytes, *, is_raw: bool) -> bytes:
    """Write what is complete; return the rest. Without a terminal, each piece has a head with its stream and length."""
    if is_raw:
        _write_all(1, data)
        return b""
    while len(data) >= HEAD_BYTES:
        end = HEAD_BYTES + int.from_bytes(data[4:HEAD_BYTES], "big")
        if len(data) < end:
            break
        _write_all(2 if data[0] == 2 else 1, data[HEAD_BYTES:end])  # noqa: PLR2004 - standard error
        data = data[end:]
    return data


def _write_all(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]


def main() -> None:
    # `remove` ends the command, and then this program ends.
    signal.signal(signal.SIGTERM, lambda number, _: _ended.append(number))
    try:
        if sys.argv[1] == "remove":
            request = json.loads(sys.argv[2])
            remove(Engine(request["socket"]), request["name"])
            return
        request = json.loads(os.environ["PALAVER_CONTAINER"])
        code = run(Engine(request["socket"]), request["name"], cast("dict[str, Any]", request["body"]))
    except EngineError as error:
        sys.stderr.write(f"Docker: {error}\n")
        code = NO_CONTAINER
    sys.exit(code)
