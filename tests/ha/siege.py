"""Programs that talk to two gateways all the time, and what they and the database saw of each trouble."""

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import httpx

from tests.ha.cluster import DRIVER, REFUSED, WRITE, Cluster, Node

__all__ = ["CALM_SECONDS", "Gateway", "Siege", "table"]

CALM_SECONDS = 8.0
"""Before and after each kind of trouble."""
_PAUSE_SECONDS = 0.25
_PROBE_SECONDS = 0.1
_AWAY_SECONDS = 1.0
"""A gap between two confirmed commits that is shorter can be this busy machine."""
_LATE_SECONDS = 2.0
"""How much later than the database a gateway can notice."""
_REQUEST_SECONDS = 90.0
_NO_LIMIT = 1e6
_FINE = {"200", "202"}
_WARNING = re.compile(rb"^\S+ \S+ (?:warning|error|critical) ", re.MULTILINE)
HEADS = (
    *(
        "trouble",
        "away s",
        "no 2xx s",
        "requests",
        "failed",
        "late",
        "no 503+retry",
        "longest s",
        "ready though away s",
    ),
    "not ready though there s",
    *("warnings", "load"),
)


@dataclass(kw_only=True)
class Gateway:
    port: int
    log: Path

    def warnings(self) -> int:
        return len(_WARNING.findall(self.log.read_bytes()))


@dataclass(kw_only=True)
class Request:
    ended: float
    seconds: float
    status: str
    can_retry: bool = True


@dataclass(kw_only=True)
class Trouble:
    """What happened while one thing was wrong: times are of the monotonic clock."""

    name: str
    began: float = field(default_factory=time.monotonic)
    warnings: int = 0
    confirmed: list[float] = field(default_factory=list[float])
    """When some server confirmed a commit to a client beside it."""
    barred: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """When no gateway could reach any server, though it took writes."""
    requests: list[Request] = field(default_factory=list[Request])
    ready: list[tuple[float, int, bool]] = field(default_factory=list[tuple[float, int, bool]])
    """When which gateway said whether it is ready."""

    @property
    def away(self) -> list[tuple[float, float]]:
        """When the database took no writes."""
        gaps = [(before, after) for before, after in pairwise(self.confirmed) if after - before > _AWAY_SECONDS]
        return [*gaps, *self.barred]

    @property
    def columns(self) -> tuple[str, ...]:
        away = self.away

        def was_away(at: float, late: float = 0.0) -> bool:
            return any(began <= at <= ended + late for began, ended in away)

        failed = [each for each in self.requests if each.status not in _FINE]
        late = [each for each in failed if not was_away(each.ended, _LATE_SECONDS)]
        other = Counter(each.status for each in failed if each.status != "503" or not each.can_retry)
        fine = sorted(each.ended for each in self.requests if each.status in _FINE)
        gateways = max(1, len({gateway for _, gateway, _ in self.ready}))
        wrong = Counter(is_ready for at, _, is_ready in self.ready if is_ready == was_away(at))
        return (
            self.name,
            f"{sum(ended - began for began, ended in away):.1f}",
            f"{max((after - before for before, after in pairwise(fine)), default=0.0):.1f}",
            str(len(self.requests)),
            str(len(failed)),
            str(len(late)),
            " ".join(f"{status}:{n}" for status, n in sorted(other.items())) or "-",
            f"{max((each.seconds for each in self.requests), default=0.0):.1f}",
            *(f"{wrong[is_ready] * _PAUSE_SECONDS / gateways:.1f}" for is_ready in (True, False)),
            str(self.warnings),
            f"{os.getloadavg()[0]:.0f}",
        )


def table(rows: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (HEADS, *rows))


@dataclass(kw_only=True)
class Siege:
    servers: Cluster
    gateways: list[Gateway]
    token: str
    now: Trouble = field(default_factory=lambda: Trouble(name="calm"))
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    accepted: dict[str, str] = field(default_factory=dict[str, str])
    """The id of each word."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    may_lose: bool = False

    def url(self, gateway: int, path: str) -> str:
        return f"http://127.0.0.1:{self.gateways[gateway % len(self.gateways)].port}{path}"

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(headers={"Authorization": f"Bearer {self.token}"}, timeout=_REQUEST_SECONDS)

    async def talk(self, number: int) -> None:
        """One program: it says each word until it was accepted, to the next gateway if one does not take it."""
        spoken, gateway = 0, number
        async with self.client() as client:
            while not self.over.is_set():
                word = f"w{number}x{spoken}"
                found = await self._post(client, self.url(gateway, "/api/v1/messages"), word, f"talk{number}")
                if found:
                    self.accepted[word], spoken = found, spoken + 1
                else:
                    gateway += 1
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _post(self, client: httpx.AsyncClient, url: str, word: str, conversation: str) -> str | None:
        began, found, can_retry = time.monotonic(), None, True
        try:
            body = {"text": word, "conversation": conversation}
            response = await client.post(url, json=body, headers={"Idempotency-Key": word})
            status, can_retry = str(response.status_code), "retry-after" in response.headers
            if response.is_success:
                found = response.json()["id"]
        except httpx.HTTPError as error:
            status = type(error).__name__
        ended = time.monotonic()
        self.now.requests.append(Request(ended=ended, seconds=ended - began, status=status, can_retry=can_retry))
        return found

    async def ask_ready(self, gateway: int) -> None:
        async with self.client() as client:
            while not self.over.is_set():
                await asyncio.sleep(_PAUSE_SECONDS)
                try:
                    response = await client.get(self.url(gateway, "/ready"))
                except httpx.HTTPError:
                    continue
                self.now.ready.append((time.monotonic(), gateway, response.is_success))

    async def watch(self, node: Node) -> None:
        """Write all the time, past every gateway and network: this says when the database took writes."""
        while not self.over.is_set():
            try:
                connection = await DRIVER.connect(
                    host="127.0.0.1", port=node.port, user="postgres", database="postgres", timeout=2
                )
            except REFUSED:
                await asyncio.sleep(_PROBE_SECONDS)
                continue
            try:
                while not self.over.is_set():
                    with suppress(DRIVER.InternalServerError):  # a standby
                        # Without a limit: a commit that is cancelled no longer waits for its standby.
                        await connection.execute(WRITE, timeout=_NO_LIMIT)
                        self.now.confirmed.append(time.monotonic())
                    await asyncio.sleep(_PROBE_SECONDS)
            except REFUSED:
                await asyncio.sleep(_PROBE_SECONDS)
            finally:
                connection.terminate()

    async def suffer(self, name: str, trouble: Callable[["Siege"], Awaitable[None]]) -> None:
        before = sum(gateway.warnings() for gateway in self.gateways)
        self.now = Trouble(name=name)
        await asyncio.sleep(CALM_SECONDS / 4)
        await trouble(self)
        await asyncio.sleep(CALM_SECONDS)
        self.now.warnings = sum(gateway.warnings() for gateway in self.gateways) - before
        self.rows.append(self.now.columns)
        print(table(self.rows[-1:]), flush=True)  # noqa: T201 - a program

    async def count_mistaken(self) -> int:
        """Count the ids that now name another message than the one that was accepted."""
        mistaken = 0
        async with self.client() as client:
            for word, id_ in self.accepted.items():
                response = await client.get(self.url(0, f"/api/v1/messages/{id_}"))
                answer = response.json().get("answer") if response.is_success else None
                mistaken += answer not in {None, f"You said: {word}"}
        return mistaken
