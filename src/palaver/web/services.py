"""What pages and API handlers work with: the store on behalf of a caller, the engine, and the event hub."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from palaver.commands.registry import Registry
from palaver.db.transaction import Statements, Transaction, transaction
from palaver.engine.engine import Engine
from palaver.engine.intake.effective_role import EffectiveRole, effective_role
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.model.attachment import Attachment
from palaver.model.errors import NotAllowed
from palaver.model.platform import Platform
from palaver.model.session import Principal, Session
from palaver.model.source import Source
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.clock import Clock
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.status.health import HealthCheck
from palaver.store.store import Store
from palaver.web.address import Address
from palaver.web.bodies import BodyReader
from palaver.web.caller import Caller, principal_of
from palaver.web.event_hub import Hub
from palaver.web.tokens import Authenticator

T = TypeVar("T")


class WebChat(Protocol):
    """The web chat's adapter, as its page uses it."""

    async def say(
        self,
        user: str,
        chat: str,
        message: str,
        text: str,
        *,
        name: str = "",
        files: Sequence[Attachment] = (),
        talk_only: bool = False,
    ) -> Source:
        """Accept a message; it is stored when this returns. The same message id is the same message."""
        ...

    def source(self, user: str, chat: str, message: str | None = None) -> Source: ...

    async def keep(self, name: str, media_type: str, chunks: AsyncIterator[bytes], limit: int) -> Attachment:
        """Store a file for the next message. Raises TooLarge."""
        ...


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
    """Every known platform, configured or not."""
    listening: Mapping[tuple[str, str], HttpCallbacks]
    """The accounts that platforms call over HTTP, by platform and account name."""
    examine: Callable[[], Awaitable[Sequence[HealthCheck]]]
    """Run every check of `palaver doctor`; slow."""
    bodies: BodyReader = field(default_factory=BodyReader)
    shelf: BlobStore | None = None
    metrics: Callable[[], bytes] | None = None
    """Render the metrics for Prometheus; None if its client is not installed."""

    async def read(self, caller: Caller, query: Callable[[Principal], Transaction[T]]) -> T:
        """Read on behalf of the caller: `await services.read(caller, lambda p: store.sessions.find(name, p))`."""
        return await self.store.read(_on_behalf(self.store, caller, query))

    async def write(self, caller: Caller, change: Callable[[Principal], Transaction[T]]) -> T:
        """Change something on behalf of the caller, in one transaction."""
        return await self.store.transact(_on_behalf(self.store, caller, change))

    async def principal(self, caller: Caller) -> Principal:
        """For work that takes several transactions; `read` and `write` pass it on themselves."""
        return await self.store.read(principal_of(caller, self.store))

    async def run_command(self, caller: Caller, session: str, text: str) -> str:
        """Run a chat command in a session with the caller's role there; return its answer."""
        answer = await self.engine.run_command(text, session, await self.principal(caller))
        self.hub.hint("sessions", "turns")
        return answer

    async def rename_session(self, caller: Caller, session: str, title: str) -> Session:
        @transaction
        def rename(principal: Principal) -> Statements[Session]:
            yield from self.check_command(principal, session, "title")
            return (yield from self.store.sessions.rename(session, title, principal))

        renamed = await self.write(caller, rename)
        self.hub.hint("sessions")
        return renamed

    @transaction
    def check_command(self, principal: Principal, session: str, command: str) -> Statements[EffectiveRole]:
        """Return the principal's role in a session; raise NotAllowed if it is too low for the command."""
        options = self.engine.options
        there = yield from effective_role(self.store, options.grants, session, principal)
        needed = options.command_roles.get(command, self.commands.table[command].role)
        if there.role < needed:
            raise NotAllowed(f"/{command}", needed.text)
        return there


@transaction
def _on_behalf(store: Store, caller: Caller, query: Callable[[Principal], Transaction[T]]) -> Statements[T]:
    principal = yield from principal_of(caller, store)
    return (yield from query(principal))
