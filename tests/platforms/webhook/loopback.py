"""Real servers on the loopback for webhooks: one that is called by us, one that calls us."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec

from palaver.platforms.webhook.signature import Scheme, verify

__all__ = ["SECRET", "Asked", "Endpoint", "Said", "serving"]

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"  # noqa: S105 - of the specification


@dataclass(frozen=True, slots=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Said:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Answers = Callable[[Asked], Awaitable[Said | None]]
"""None breaks the connection."""


@asynccontextmanager
async def serving(answers: Answers) -> AsyncGenerator[str]:
    """Its address."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (asked := await _read(reader)) and (said := await answers(asked)):
                writer.write(_written(said))
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader) -> Asked | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    method, path, _ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Asked(method, path, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


def _written(said: Said) -> bytes:
    headers = {"content-length": str(len(said.body)), **said.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {said.status} x\r\n{lines}\r\n".encode() + said.body


class Endpoint:
    """A program that we post to. It knows a message again, and does what it is told the next times."""

    def __init__(self) -> None:
        self.url = ""
        self.posts: list[Asked] = []
        """All that came, repetitions included."""
        self.taken: dict[str, Any] = {}
        """What was taken, by id."""
        self.plans: list[Said | str] = []
        """What becomes of the next posts: an answer, `lost` before it is taken, or `taken` and lost."""
        self.otherwise = Said(204)

    async def answer(self, asked: Asked) -> Said | None:
        self.posts.append(asked)
        plan = self.plans.pop(0) if self.plans else self.otherwise
        if plan == "lost":
            return None
        if plan == "taken" or (isinstance(plan, Said) and plan.status < 300):
            message = verify(Scheme.STANDARD, SECRET, asked.headers, asked.body, datetime.now(UTC))
            self.taken.setdefault(message or "", msgspec.json.decode(asked.body))
        return plan if isinstance(plan, Said) else None

    @property
    def payloads(self) -> list[dict[str, Any]]:
        return list(self.taken.values())

    @property
    def types(self) -> list[str]:
        return [payload["type"] for payload in self.payloads]
