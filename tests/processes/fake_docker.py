"""A server that speaks the wire format of the Docker engine and runs nothing: it plays the parts of a few commands."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

__all__ = ["FakeDocker", "fake_docker"]


@dataclass
class Container:
    body: dict[str, Any]
    started: asyncio.Event = field(default_factory=asyncio.Event)
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    code: int = 0
    size: tuple[str, str] | None = None

    @property
    def command(self) -> str:
        return self.body["Cmd"][-1]

    def end(self, code: int) -> None:
        if not self.ended.is_set():
            self.code = code
            self.ended.set()


@dataclass
class FakeDocker:
    """Containers by name. `echo X`, `exit N`, `cat`, `sleep` and `stubborn` are what its commands can do."""

    containers: dict[str, Container] = field(default_factory=dict[str, Container])
    made: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    calls: list[str] = field(default_factory=list[str])
    can_create: asyncio.Event = field(default_factory=asyncio.Event)
    """Clear it and containers take their time."""

    def __post_init__(self) -> None:
        self.can_create.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                lines = head.decode().split("\r\n")
                method, target, _ = lines[0].split(" ")
                headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                url = urlsplit(target)
                query = {name: values[0] for name, values in parse_qs(url.query).items()}
                path = [unquote(part) for part in url.path.removeprefix("/v1.41/").split("/")]
                self.calls.append(f"{method} {'/'.join(path)}")
                if path[-1] == "attach":
                    assert headers["upgrade"] == "tcp"
                    await self._attach(self.containers[path[1]], reader, writer)
                    return
                status, answer = await self._answer(method, path, query, json.loads(body) if body else None)
                content = json.dumps(answer).encode() if answer is not None else b""
                writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, path: list[str], query: dict[str, str], body: Any) -> tuple[int, object]:
        if path == ["containers", "create"]:
            await self.can_create.wait()
            return self._create(query["name"], body)
        found = self.containers.get(path[1])
        if found is None:
            return 404, {"message": f"No such container: {path[1]}"}
        if method == "DELETE":
            found.end(137)
            del self.containers[path[1]]
            return 204, None
        return await self._act(found, path[2], query)

    def _create(self, name: str, body: dict[str, Any]) -> tuple[int, object]:
        if body["Image"] == "missing":
            return 404, {"message": "No such image: missing"}
        self.containers[name] = Container(body)
        self.made.append(body)
        return 201, {"Id": name, "Warnings": []}

    async def _act(self, found: Container, action: str, query: dict[str, str]) -> tuple[int, object]:
        match action:
            case "start":
                found.started.set()
            case "kill" if "stubborn" not in found.command:
                found.end(143)
            case "resize":
                found.size = query["h"], query["w"]
            case "json":
                return 200, {"State": {"Running": not found.ended.is_set()}}
            case "wait":
                await found.ended.wait()
                return 200, {"StatusCode": found.code}
            case _:
                pass
        return 204, None

    async def _attach(self, found: Container, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n\r\n")
        await found.started.wait()

        def say(text: bytes, stream: int = 1) -> None:
            is_raw = found.body["Tty"]
            writer.write(text if is_raw else bytes([stream, 0, 0, 0]) + len(text).to_bytes(4, "big") + text)

        for part in found.command.split("; "):
            word, _, rest = part.partition(" ")
            match word:
                case "echo":
                    say(f"{rest}\n".encode())
                case "complain":
                    say(f"{rest}\n".encode(), 2)
                case "cat":
                    copying = asyncio.create_task(_copy(reader, say))
                    over = asyncio.create_task(found.ended.wait())
                    await asyncio.wait({copying, over}, return_when=asyncio.FIRST_COMPLETED)
                    copying.cancel()
                    over.cancel()
                case "exit":
                    found.end(int(rest))
                case _:
                    await found.ended.wait()
        found.end(0)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, say: Callable[[bytes], None]) -> None:
    while data := await reader.read(100):
        say(data)


@asynccontextmanager
async def fake_docker(folder: Path) -> AsyncGenerator[tuple[FakeDocker, Path]]:
    docker, path = FakeDocker(), folder / "docker.sock"
    server = await asyncio.start_unix_server(docker.serve, path)
    try:
        yield docker, path
    finally:
        server.close()
        for container in docker.containers.values():
            container.end(137)
            container.started.set()
