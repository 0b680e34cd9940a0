"""A connector with the fake platform, and gateways that reach the platform only through it."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from pathlib import Path

from palaver.model.access import AccessRole, Basis, Grant
from palaver.model.key import ProfileRule
from palaver.platforms.relayed.adapter import RelayedAdapter, RelayedOptions, join, make_relayed
from palaver.protocols.adapter import Limits
from palaver.protocols.relay import Enrolment, digest, new_secret
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.people.api_tokens import CredentialKind
from palaver.testkit.adapter import FakeAdapter
from palaver.testkit.platform import BOT, FakePlatform, LoopClock
from palaver.web.relay import RelayServer
from tests.engine.gateway import Bench, NoPauses, running

RELAYED = Grant(platform="fake", role=AccessRole.MEMBER, basis=Basis.RELAY)
"""Only somebody who comes through the relay gets in."""
_STARTS = count(1)
"""Each start is a worker of its own, as in real life."""


@dataclass(kw_only=True)
class Connector:
    here: Bench
    port: int
    folder: Path
    world: FakePlatform = field(default_factory=FakePlatform)

    @property
    def url(self) -> str:
        return f"ws://127.0.0.1:{self.port}"

    async def invite(self, tenant: str, *, lasts: timedelta = timedelta(hours=1)) -> str:
        code, now, store = new_secret(), LoopClock().now(), self.here.store
        add = store.api_tokens.add(
            digest(code), CredentialKind.RELAY_CODE, now, name=tenant, rights=(), profile=tenant, expires=now + lasts
        )
        await store.transact(add)
        return code

    async def enrol(self, tenant: str) -> Enrolment:
        return await join(self.url, await self.invite(tenant), new_secret())

    async def adapter(self, tenant: str) -> RelayedAdapter:
        return self.make(await self.enrol(tenant))

    def make(self, enrolment: Enrolment) -> RelayedAdapter:
        file = self.folder / f"relay-{enrolment.tenant}.json"
        file.write_text(enrolment.model_dump_json())
        return make_relayed(FakeAdapter(self.world).platform, BOT, RelayedOptions(relay_file=file))

    async def waiting(self, tenant: str) -> int:
        return await self.here.store.read(self.here.store.relayed.count_waiting(tenant))


@asynccontextmanager
async def connector(
    folder: Path,
    *rules: ProfileRule,
    world: FakePlatform | None = None,
    port: int = 0,
    limits: Limits | None = None,
    **changed: object,
) -> AsyncGenerator[Connector]:
    """A connector that hands everything on the fake platform to `acme`, unless rules say otherwise."""
    world = world or FakePlatform()
    given = rules or (ProfileRule(profile="acme", platform="fake"),)
    async with running(
        folder / "connector.db",
        world,
        worker=f"connector {next(_STARTS)}",
        shelf=BlobStore(folder / "connector-files"),
        chance=NoPauses(1),
        limits=limits,
        tenants=given,
        **changed,  # pyright: ignore[reportArgumentType]
    ) as here:
        server = RelayServer(store=here.store, engine=here.engine, clock=LoopClock(), file_key="a key of this store")
        async with server.serve("127.0.0.1", port) as listening:
            found = next(iter(listening.sockets)).getsockname()[1]
            yield Connector(here=here, port=found, folder=folder, world=world)


@asynccontextmanager
async def gateway(
    folder: Path, adapter: RelayedAdapter, name: str = "gateway", **changed: object
) -> AsyncGenerator[Bench]:
    async with running(
        folder / f"{name}.db",
        adapters=[adapter],
        worker=f"{name} {next(_STARTS)}",
        grants=(RELAYED,),
        shelf=BlobStore(folder / f"{name}-files"),
        chance=NoPauses(1),
        **changed,  # pyright: ignore[reportArgumentType]
    ) as here:
        yield here
