"""The desk: what pages and the API are given to read, act and push with."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from palaver.commands.registry import Registry
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.engine import Engine
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.model.platform import Platform
from palaver.model.session import Principal
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.clock import Clock
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.status.health import HealthCheck
from palaver.store.store import Store
from palaver.web.address import Address
from palaver.web.bodies import Bodies
from palaver.web.caller import Caller, principal_of
from palaver.web.event_hub import Hub
from palaver.web.tokens import Authenticator
from palaver.web.webchat import WebChat

__all__ = [
    "Services",
]

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Services:
    store: Store
    engine: Engine
    commands: Registry
    clock: Clock
    address: Address
    auth: Authenticator
    hub: Hub
    webchat: WebChat
    waiting: ReplyWaiter
    platforms: Mapping[str, Platform]
    """Every platform there is, whether it is used or not."""
    listening: Mapping[tuple[str, str], HttpCallbacks]
    """The accounts that are called over HTTP, by platform and name."""
    examine: Callable[[], Awaitable[Sequence[HealthCheck]]]
    """Everything that can be checked, each with what was found: it may take a while."""
    bodies: Bodies = field(default_factory=Bodies)
    shelf: BlobStore | None = None
    metrics: Callable[[], bytes] | None = None
    """The figures as Prometheus reads them, where somebody counts."""

    async def read(self, caller: Caller, question: Callable[[Principal], Transaction[T]]) -> T:
        """Ask the store on behalf of the visitor: for example

        `await desk.read(visitor, lambda p: store.session_list.recent_sessions(p, 50))`.
        """
        return await self.store.read(_asked(self.store, caller, question))

    async def act(self, caller: Caller, deed: Callable[[Principal], Transaction[T]]) -> T:
        """Change something on behalf of the visitor, in one step."""
        return await self.store.transact(_asked(self.store, caller, deed))


@transaction
def _asked(store: Store, caller: Caller, question: Callable[[Principal], Transaction[T]]) -> Statements[T]:
    principal = yield from principal_of(caller, store)
    return (yield from question(principal))
