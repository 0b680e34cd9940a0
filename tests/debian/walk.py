"""The life of an installation: talk, restart, upgrade under traffic, back up, lose the disk, restore, go on."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

import httpx

from tests.soak.clients import ApiTalk

__all__ = ["Installation", "Step", "Walk"]

_PATIENCE = 180.0
_CONVERSATION = "bicycle"
_PROGRAMS = 5


class Installation(Protocol):
    """Where a gateway is installed, and everything that its owner does there."""

    @property
    def url(self) -> str: ...
    @property
    def archive(self) -> str:
        """Where backups go; it outlives the disk."""
        ...

    async def install(self, version: str) -> str:
        """Put the version `old` or `new` on an empty machine; say what is there now."""
        ...

    async def start(self) -> str:
        """Have a gateway run from now on."""
        ...

    async def restart(self) -> str:
        """Reboot the machine, or whatever is like that."""
        ...

    async def break_down(self) -> str:
        """Kill the gateway; it comes back."""
        ...

    async def upgrade(self) -> str:
        """Replace the old version by the new one, as documented."""
        ...

    async def palaver(self, *words: str) -> str:
        """Run a command on the store of the gateway."""
        ...

    async def lose_disk(self) -> str:
        """Leave nothing but the archive."""
        ...


@dataclass(frozen=True, kw_only=True)
class Step:
    name: str
    seconds: float
    result: str


@dataclass(kw_only=True)
class Walk:
    place: Installation
    traffic: int = 100
    """So many messages of programs are answered before the upgrade, and so many after it."""
    tell: Callable[[Step], None] = lambda _: None
    steps: list[Step] = field(default_factory=list[Step])
    _token: str = ""
    _session: str = ""
    _said: list[str] = field(default_factory=list[str])
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _words: dict[str, str] = field(default_factory=dict[str, str])
    """What programs said, and in which session."""

    async def run(self) -> None:
        for name, step in (
            ("install", self._install),
            ("talk", self._talk),
            ("restart", self._restart),
            ("upgrade", self._upgrade),
            ("break down", self._break_down),
            ("back up", self._back_up),
            ("lose the disk", self.place.lose_disk),
            ("restore", self._restore),
            ("go on", self._go_on),
        ):
            began = time.monotonic()
            done = Step(name=name, result=await step(), seconds=time.monotonic() - began)
            self.steps.append(done)
            self.tell(done)

    # Steps

    async def _install(self) -> str:
        installed = await self.place.install("old")
        started = await self.place.start()
        await self._ready()
        self._token = (await self.place.palaver("web", "tokens", "create", "walk")).split()[-1]
        return f"{installed}; {started}"

    async def _talk(self) -> str:
        for _ in range(3):
            await self._say()
        return f"{len(self._said)} exchanges in session {self._session}"

    async def _restart(self) -> str:
        done = await self.place.restart()
        await self._ready()
        await self._say()
        return f"{done}; the same session answered"

    async def _break_down(self) -> str:
        done = await self.place.break_down()
        await self._ready()
        await self._say()
        return f"{done}; the same session answered"

    async def _upgrade(self) -> str:
        talk = ApiTalk(url=lambda: self.place.url, token=self._token, chance=random.Random(1), pause=(0.0, 0.2))  # noqa: S311
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for number in range(_PROGRAMS):
                group.create_task(talk.talk(number, over))
            await self._until_answered(talk, self.traffic)
            before = len(talk.answered)
            done = await self.place.upgrade()
            await self._ready()
            await self._until_answered(talk, len(talk.answered) + self.traffic)
            over.set()
        for word, answer in talk.answered.items():
            assert answer, f"{word} was accepted and not answered"
            assert answer.count(word) == 1, f"{word} was answered with {answer!r}"
        self._words = dict(talk.accepted)
        await self._check_words()
        await self._say()
        refused = sum(talk.refused.values())
        return f"{done}; {len(talk.answered)} messages, {before} of them before, each answered once; {refused} retries"

    async def _until_answered(self, talk: ApiTalk, messages: int) -> None:
        async with asyncio.timeout(_PATIENCE):
            while len(talk.answered) < messages:  # noqa: ASYNC110 - it is in another process
                await asyncio.sleep(0.05)

    async def _back_up(self) -> str:
        await self.place.palaver("backup", "-o", self.place.archive)
        said = await self.place.palaver("backup", "verify", self.place.archive)
        assert "complete and restores" in said
        return " ".join(said.splitlines()[-1:])

    async def _restore(self) -> str:
        installed = await self.place.install("new")
        await self.place.palaver("restore", self.place.archive)
        started = await self.place.start()
        await self._ready()
        return f"{installed}; {started}"

    async def _go_on(self) -> str:
        await self._check_words()
        await self._say()
        entries = await self._entries(self._session)
        mine = [entry["text"] for entry in entries if entry["role"] == "user"]
        assert mine == self._said, f"the conversation is {mine}, not {self._said}"
        found = await self._get("/search", q="turquoise")
        assert found["hits"], "what was said is not found"
        return f"the same session, all {len(mine)} exchanges and {len(self._words)} messages of programs, each once"

    # Talk

    async def _ready(self) -> None:
        async with asyncio.timeout(_PATIENCE), httpx.AsyncClient() as client:
            while True:
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{self.place.url}/ready")).is_success:
                        return
                await asyncio.sleep(0.1)

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[httpx.AsyncClient]:
        headers = {"Authorization": f"Bearer {self._token}"}
        async with httpx.AsyncClient(base_url=f"{self.place.url}/api/v1", headers=headers, timeout=_PATIENCE) as client:
            yield client

    async def _get(self, path: str, **query: str | int) -> Any:
        async with self._client() as client:
            response = await client.get(path, params=query)
            response.raise_for_status()
            return response.json()

    async def _say(self) -> None:
        """Say something that was not said before, and check the answer and where it was said."""
        text = f"my bicycle number {next(self._numbers)} is turquoise"
        body = {"text": text, "conversation": _CONVERSATION, "wait": 60}
        async with self._client() as client:
            response = await client.post("/messages", json=body)
            response.raise_for_status()
            message = response.json()
        assert text in (message["answer"] or ""), message
        self._said.append(text)
        self._session = self._session or message["session"]
        assert message["session"] == self._session, "the conversation has another session"

    async def _entries(self, session: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while page := (await self._get(f"/sessions/{session}/entries", after=found[-1]["seq"] if found else 0))[
            "entries"
        ]:
            found += page
        return found

    async def _check_words(self) -> None:
        """Each message of a program stands once in a transcript, and so does its answer."""
        sessions = (await self._get("/sessions", limit=100))["sessions"]
        seen: Counter[tuple[str, str]] = Counter()
        for session in sessions:
            for entry in await self._entries(session["id"]):
                seen.update((word, entry["role"]) for word in entry["text"].split() if word in self._words)
        wrong = [(word, role) for word in self._words for role in ("user", "assistant") if seen[word, role] != 1]
        assert not wrong, f"not there once: {wrong[:10]}"
