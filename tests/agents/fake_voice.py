"""OpenAI's audio endpoints on loopback: multipart in, text out; JSON in, a recording out."""

import asyncio
import json
import re
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any


def wave(seconds: float = 1.0) -> bytes:
    """Silence, as a recording of one channel with 8 bits and 8 kHz."""
    data = b"\x80" * int(8_000 * seconds)
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, 8_000, 8_000, 1, 8)
    return (
        struct.pack("<4sI4s", b"RIFF", 36 + len(data), b"WAVE") + head + struct.pack("<4sI", b"data", len(data)) + data
    )


def opus(seconds: float = 1.0) -> bytes:
    """The first and the last page of a recording, as far as its length goes."""
    first = b"OggS\0\2" + struct.pack("<qIII", 0, 1, 0, 0) + b"\1\x13OpusHead\1\1" + b"\0" * 9
    return first + b"OggS\0\4" + struct.pack("<qIII", int(48_000 * seconds), 1, 1, 0) + b"\1\1x"


@dataclass
class VoiceService:
    says: str = "buy milk"
    statuses: list[int] = field(default_factory=list[int])
    """What it answers first, before it works."""
    holds: asyncio.Event | None = None
    transcribed: list[dict[str, bytes]] = field(default_factory=list[dict[str, bytes]])
    spoken: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    keys: list[str] = field(default_factory=list[str])
    url: str = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = {
                    name.lower(): text.strip() for name, _, text in (line.partition(":") for line in head.splitlines())
                }
                body = await reader.readexactly(int(headers["content-length"]))
                self.keys.append(headers.get("authorization", ""))
                status, kind, answer = await self._answer(head.split()[1], headers["content-type"], body)
                writer.write(
                    f"HTTP/1.1 {status} -\r\ncontent-type: {kind}\r\ncontent-length: {len(answer)}\r\n\r\n".encode()
                )
                writer.write(answer)
                await writer.drain()
        writer.close()

    async def _answer(self, path: str, kind: str, body: bytes) -> tuple[int, str, bytes]:
        if path.endswith("/audio/transcriptions"):
            self.transcribed.append(_fields(kind, body))
        else:
            self.spoken.append(json.loads(body))
        if self.holds:
            await self.holds.wait()
        if self.statuses and (status := self.statuses.pop(0)) != 200:
            return status, "application/json", b'{"error": {"message": "no"}}'
        if path.endswith("/audio/transcriptions"):
            return 200, "application/json", json.dumps({"text": self.says}).encode()
        return 200, "audio/ogg", opus() if self.spoken[-1]["response_format"] == "opus" else b"ID3\3\0 a recording"


def _fields(kind: str, body: bytes) -> dict[str, bytes]:
    """Return the fields of a form, and the name and type of its file."""
    form = message_from_bytes(f"content-type: {kind}\r\n\r\n".encode() + body)
    found: dict[str, bytes] = {}
    for part in form.get_payload():  # pyright: ignore[reportGeneralTypeIssues]
        shown: Any = part
        name = re.findall(r'name="(\w+)"', shown["content-disposition"])[0]
        found[name] = shown.get_payload(decode=True)
        if shown.get_filename():
            found["filename"], found["type"] = shown.get_filename().encode(), shown.get_content_type().encode()
    return found


@asynccontextmanager
async def voicing(**given: Any) -> AsyncGenerator[VoiceService]:
    service = VoiceService(**given)
    server = await asyncio.start_server(service.serve, "127.0.0.1", 0)
    service.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    try:
        yield service
    finally:
        server.close()
