"""What pages and API handlers work with: the store, the engine, the event hub and the rest of the gateway."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from palaver.commands.registry import Registry
from palaver.config.model import Config
from palaver.config.offers import Offer
from palaver.engine.engine import Engine
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.model.log_line import LogFilter, LogLine
from palaver.model.platform import Platform
from palaver.platforms.web.adapter import WebAdapter
from palaver.processes.manager import ProcessManager
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.clock import Clock
from palaver.store.backup.backups import Backup
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.damage.health_check import HealthCheck
from palaver.store.store import Store
from palaver.web.address import Address
from palaver.web.bodies import MAX_CALLBACK_BYTES, BodyReader
from palaver.web.event_hub import Hub
from palaver.web.limits import RateLimiter, WebLimits
from palaver.web.settings import Settings
from palaver.web.tokens import Authenticator


async def no_offers() -> Sequence[Offer]:
    return ()


@dataclass(frozen=True, kw_only=True)
class Services:
    store: Store
    engine: Engine
    commands: Registry
    clock: Clock
    address: Address
    auth: Authenticator
    hub: Hub
    webchat: WebAdapter
    waiting: ReplyWaiter
    platforms: Mapping[str, Platform]
    """Every known platform, configured or not."""
    processes: ProcessManager
    listening: Mapping[tuple[str, str], HttpCallbacks]
    """The accounts that platforms call over HTTP, by platform and account name."""
    examine: Callable[[], Awaitable[Sequence[HealthCheck]]]
    """Run every check of `palaver doctor`; slow, so run it under this lock."""
    read_log: Callable[[LogFilter, int], list[LogLine]]
    """Return the newest lines of the kept log; it reads files."""
    config: Callable[[], Config]
    """The configuration in use."""
    back_up: Callable[[datetime], Awaitable[Backup]]
    """Make a backup."""
    list_backups: Callable[[], Sequence[Backup]]
    """Return the backups, the newest first. Like `back_up`, it raises StoreError for PostgreSQL."""
    limits: WebLimits
    messages: RateLimiter
    """Messages of programs, by login or token."""
    examining: asyncio.Lock = field(default_factory=asyncio.Lock)
    bodies: BodyReader = field(default_factory=BodyReader)
    stranger_bodies: BodyReader = field(
        default_factory=lambda: BodyReader(total=16, per_caller=4, with_files=False, plain_bytes=MAX_CALLBACK_BYTES)
    )
    """For bodies that have to be read before their sender is known."""
    login_failures: RateLimiter = field(default_factory=RateLimiter)
    callback_failures: RateLimiter = field(default_factory=lambda: RateLimiter(per_caller=60, total=None))
    settings: Settings | None = None
    """Change the configuration; None if the gateway was started without its file."""
    find_offers: Callable[[], Awaitable[Sequence[Offer]]] = no_offers
    """Return what this machine has to connect a model with, while the guide answers."""
    shelf: BlobStore | None = None
    metrics: Callable[[], bytes] | None = None
    """Render the metrics for Prometheus; None if its client is not installed."""
