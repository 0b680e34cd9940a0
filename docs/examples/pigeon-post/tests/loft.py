"""A loft for tests: it keeps letters until they were received, and can be told to make trouble."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

RING = "AT-2026-0042"
NAME = "Greta"


class Loft:
    def __init__(self) -> None:
        self.port = 0
        self.letters: dict[int, dict[str, Any]] = {}
        """Letters that nobody has said to have received."""
        self.flown: dict[str, dict[str, Any]] = {}
        """What was sent, by its key."""
        self.roosts = {"tower"}
        self.is_tired = False
        self.hangs_up: bool | None = None
        """During the next letter: True after it has arrived, False before."""
        self._count = 0
        self._news = asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def opened(self) -> AsyncGenerator["Loft"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.cut()

    def write(self, text: str, name: str) -> int:
        """Somebody writes to our pigeon."""
        return self.bring({"roost": "tower", "from": "ann", "called": name, "at": 0, "text": text})

    def bring(self, facts: dict[str, Any]) -> int:
        self._count += 1
        self.letters[self._count] = {"letter": self._count, **facts}
        self._news.set()
        return self._count

    def cut(self) -> None:
        for writer in self._open:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        listening: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if said["do"] == "got":
                    self.letters.pop(said["letter"], None)
                    continue
                writer.write(json.dumps(self._answer(said, writer)).encode() + b"\n")
                if said["do"] == "listen":
                    listening = asyncio.create_task(self._deliver(writer))
        except OSError:
            pass
        finally:
            if listening:
                listening.cancel()
                with suppress(asyncio.CancelledError):
                    await listening
            self._open.discard(writer)
            writer.close()

    async def _deliver(self, writer: asyncio.StreamWriter) -> None:
        told = 0
        while True:
            self._news.clear()
            for number in sorted(each for each in self.letters if each > told):
                writer.write(json.dumps(self.letters[number]).encode() + b"\n")
                told = number
            await self._news.wait()

    def _answer(self, said: dict[str, Any], writer: asyncio.StreamWriter) -> dict[str, object]:
        if said["do"] != "fly":
            return {"name": NAME} if said["ring"] == RING else {"error": "ring"}
        if self.is_tired:
            self.is_tired = False
            return {"error": "tired", "after": 2}
        if said["roost"] not in self.roosts:
            return {"error": "no such roost"}
        if self.hangs_up is not False:
            self.flown.setdefault(said["key"], {**said, "flown": f"f{len(self.flown) + 1}"})
        if self.hangs_up is not None:
            self.hangs_up = None
            writer.transport.abort()
            return {}
        return {"flown": self.flown[said["key"]]["flown"]}
