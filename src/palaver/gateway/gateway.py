"""The gateway: the composition root. Store, adapters, agent and engine, put together, started, drained and stopped."""

import asyncio
import gc
import logging
import os
import secrets
import socket
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from palaver.commands.builtin import standard_commands
from palaver.commands.plugins import with_plugins
from palaver.commands.registry import Registry
from palaver.config.model import Config
from palaver.db.transaction import Statements, transaction
from palaver.engine.engine import Engine
from palaver.engine.hooks import load_hook
from palaver.engine.metrics import Exposing, Meter, NoMeter
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.gateway.agents import AgentPool
from palaver.model.errors import NewerSchema, NotFound, StoreUnavailable
from palaver.model.key import SessionKey
from palaver.model.source import Source, Trust
from palaver.model.transcript import Entry, Role
from palaver.model.turn import Inbound, account_text
from palaver.platforms.api.adapter import ApiAdapter
from palaver.platforms.plugins import known_platforms, make_adapter
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.platforms.terminal.screen import forgets_typed
from palaver.platforms.terminal.socket import socket_path
from palaver.platforms.terminal.wire import CommandLine, Said, Settled
from palaver.platforms.web.adapter import Shown, WebAdapter, user_of
from palaver.protocols.adapter import Adapter
from palaver.protocols.agent import Agents
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.clock import SystemClock
from palaver.protocols.hooks import GatewayEvent, Hook, PartialAnswer
from palaver.protocols.tools import Toolset
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import open_store, sqlite_path
from palaver.store.status import message_status
from palaver.store.status.health import HealthCheck, check_data_directory, check_store
from palaver.store.store import Store
from palaver.tools.toolsets import Offering
from palaver.web.address import Address
from palaver.web.event_hub import CHAT, Event, Hub
from palaver.web.services import Services
from palaver.web.tokens import Authenticator

__all__ = [
    "COLLECT_AFTER",
    "Gateway",
    "terminal_socket",
]

log = logging.getLogger(__name__)

COLLECT_AFTER = 10_000
"""Rings of objects that are left behind, by libraries mostly, are looked for less often: it costs less of a turn."""
_RECAP = 6
_LOOK_AGAIN = 1.0
_PATIENCE = 5.0
"""Seconds in which a store that cannot be written may come back before who waits at a terminal is told."""
_FIXED = ("data_dir", "store", "hooks", "log", "metrics", "web")
"""What a running gateway cannot change."""


class Gateway:
    """`serve` until `end` is asked for: once for a quiet end, twice for one at once.

    With `window` it has one, and says how to log in there: to `window` alone, or to a log if that `is_kept`.
    """

    def __init__(
        self,
        config: Config,
        *,
        meter: Meter | None = None,
        window: Callable[[str], None] | None = None,
        is_kept: bool = False,
    ) -> None:
        self._config = config
        self._meter = meter or NoMeter()
        self._tells_link = window
        self._is_kept = is_kept
        self._agency = AgentPool()
        self._engine: Engine | None = None
        self._listening: Mapping[tuple[str, str], HttpCallbacks] = {}
        self._quietly = asyncio.Event()
        self._at_once = asyncio.Event()

    async def serve(self) -> bool:
        """Whether it ended in good order. Raises StoreInUse, saying by whom, where another gateway owns the store.

        Raises NewerSchema where a newer Palaver has changed the store, at the start or later.
        """
        gc.set_threshold(COLLECT_AFTER)
        # What others have made is had before anything starts: whatever is wrong with it is said at once.
        adapters = [make_adapter(*account) for account in _accounts(self._config)]
        self._listening = _listening(adapters)
        self._tell_unheard()
        hooks = [load_hook(name) for name in self._config.hooks]
        agents = self._agency.agents(self._config)
        offering = Offering(_tool_servers(self._config))
        async with await open_store(self._config.store, exclusive=True) as store:
            desk = self._assemble(store, agents, adapters, hooks, offering.toolsets(store))
            self._engine = engine = desk.engine
            serving = asyncio.create_task(_served(engine))
            log.info("the gateway is up", extra={"action": "gateway.started"})
            try:
                async with self._window(desk):
                    await _first(serving, self._quietly.wait())
                    await _first(serving, engine.drain(), self._at_once.wait())
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError, NewerSchema):
                    await serving
                await self._agency.close()
                await offering.close()
        log.info("the gateway is down", extra={"action": "gateway.stopped"})
        return not self._at_once.is_set()

    def _tell_unheard(self) -> None:
        """Of accounts that are called over HTTP, where nobody can call."""
        for platform, account in () if self._tells_link else self._listening:
            log.error(
                "%s:%s hears nothing: it is called over HTTP, and this gateway has no window; web: {enabled: true}",
                platform,
                account,
                extra={"action": "account.unreachable", "account": account_text(platform, account)},
            )

    def end(self) -> None:
        if self._quietly.is_set():
            log.warning("stopping at once", extra={"action": "gateway.forced_stop"})
            self._at_once.set()
        self._quietly.set()

    def reload(self, config: Config) -> None:
        """Whatever can change while the gateway runs is from now on as this configuration says."""
        for name in _FIXED:
            if getattr(config, name) != getattr(self._config, name):
                log.warning("a change of %s waits for a restart", name, extra={"action": "reload.deferred"})
        if _accounts(config) != _accounts(self._config):
            log.warning("a change of accounts waits for a restart", extra={"action": "reload.deferred"})
        if _tool_servers(config) != _tool_servers(self._config):
            log.warning("a change of MCP servers waits for a restart", extra={"action": "reload.deferred"})
        if self._engine is not None:
            self._engine.reload(config.options(), self._agency.agents(config))
        log.info("the configuration was read again", extra={"action": "reload"})

    @asynccontextmanager
    async def _window(self, desk: Services) -> AsyncGenerator[None]:
        """Open, where somebody wants one and what it is made of is installed."""
        if self._tells_link is None:
            yield
            return
        try:
            from palaver.web.server import opened  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            log.warning(
                "no window: %s is not installed; pip install 'palaver[web]', or web: {enabled: false}",
                error.name,
                extra={"action": "web.not_installed"},
            )
            yield
            return
        async with opened(desk, self._tells_link, is_kept=self._is_kept):
            yield

    def _assemble(
        self,
        store: Store,
        agents: Agents,
        adapters: Sequence[Adapter],
        hooks: Sequence[Hook],
        toolsets: Sequence[Toolset],
    ) -> Services:
        alone = sqlite_path(self._config.store) is not None
        store.erasures = replace(store.erasures, elsewhere=forgets_typed(self._config.data_dir))
        commands, clock = with_plugins(standard_commands(store), store), SystemClock()

        async def key_of(source: Source) -> SessionKey:
            return await engine.key_of(source)

        async def receive(inbound: Inbound, trust: Trust) -> None:
            await engine.receive(inbound, trust)

        desk, hub = _Desk(store, commands, key_of), Hub(store, alone=alone)
        shelf, waiting = BlobStore(self._config.data_dir / "files"), ReplyWaiter(store)
        browsers = WebAdapter(clock, tell=partial(_push, hub), shelf=shelf, receive=receive)
        terminal = TerminalAdapter(
            terminal_socket(self._config),
            desk,
            clock,
            # Where several gateways share a store, each has the terminals of its own machine.
            account=None if alone else socket.gethostname(),
        )
        engine = Engine(
            store=store,
            adapters=[terminal, *([browsers, ApiAdapter(shelf)] if self._tells_link else []), *adapters],
            agent=agents,
            commands=commands,
            options=self._config.options(),
            clock=clock,
            worker=f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}",
            alone=alone,
            hooks=[desk.notice, *([hub.notice] if self._tells_link else []), *hooks],
            meter=self._meter,
            blob_store=shelf,
            toolsets=toolsets,
            reply_waiter=waiting,
            watch=partial(_grow, hub, waiting) if self._tells_link else None,
        )
        return self._desk(
            store=store, engine=engine, commands=commands, hub=hub, browsers=browsers, waiting=waiting, shelf=shelf
        )

    def _desk(
        self,
        *,
        store: Store,
        engine: Engine,
        commands: Registry,
        hub: Hub,
        browsers: WebAdapter,
        waiting: ReplyWaiter,
        shelf: BlobStore,
    ) -> Services:
        """What pages and the API work with."""
        web, clock = self._config.web, SystemClock()
        return Services(
            store=store,
            engine=engine,
            commands=commands,
            clock=clock,
            address=Address(host=web.host, port=web.port, url=web.url, trusted_proxies=web.trusted_proxies),
            auth=Authenticator(store=store, clock=clock),
            hub=hub,
            webchat=browsers,
            waiting=waiting,
            platforms=known_platforms(),
            listening=self._listening,
            examine=partial(_examined, store, self._config.store),
            shelf=shelf,
            metrics=self._meter.exposed if isinstance(self._meter, Exposing) else None,
        )


def _listening(adapters: Sequence[Adapter]) -> dict[tuple[str, str], HttpCallbacks]:
    return {
        (adapter.platform.name, adapter.account or ""): adapter
        for adapter in adapters
        if isinstance(adapter, HttpCallbacks) and adapter.takes_callbacks
    }


def _grow(hub: Hub, waiting: ReplyWaiter, growth: PartialAnswer) -> None:
    hub.grow(growth)
    waiting.add_partial(growth)


def _push(hub: Hub, shown: Shown) -> None:
    """To the browsers of whose chat it is."""
    body = {
        "chat": shown.chat,
        "id": shown.id,
        "text": shown.text,
        "mine": shown.is_mine,
        "grows": shown.grows,
        "typing": shown.is_typing,
    }
    merges = f"chat {shown.id}" if shown.grows or shown.is_typing else None
    hub.push(f"web:{user_of(shown.chat)}", Event(name=CHAT, body=body, merges=merges))


async def _examined(store: Store, url: str) -> list[HealthCheck]:
    file = sqlite_path(url)
    placed = check_data_directory(file.resolve()) if file else []
    return [*placed, *[check async for check in check_store(store, SystemClock().now())]]


def terminal_socket(config: Config) -> Path:
    """Where terminals find the gateway of this store."""
    file = sqlite_path(config.store)
    return socket_path(config.data_dir, str(file.resolve()) if file else config.store)


def _tool_servers(config: Config) -> dict[str, dict[str, Any]]:
    return {name: choice.facts() for name, choice in config.tools.servers.items()}


def _accounts(config: Config) -> list[tuple[str, str, Mapping[str, object]]]:
    """The accounts of ours: platform, name, options."""
    return [
        (name, account, options)
        for name, platform in config.platforms.items()
        for account, options in platform.accounts.items()
    ]


async def _served(engine: Engine) -> None:
    """Raises NewerSchema, where that has ended all loops, by itself: there is one thing to say about it."""
    try:
        await engine.serve()
    except BaseExceptionGroup as ended:
        newer: BaseException | None = ended.subgroup(NewerSchema)
        while isinstance(newer, BaseExceptionGroup):
            newer = cast("BaseExceptionGroup[BaseException]", newer).exceptions[0]
        raise newer or ended from None


async def _first(serving: "asyncio.Task[None]", *others: Awaitable[object]) -> None:
    """Until one of the others is done. What goes wrong in the engine, or in them, is raised."""
    waits = [asyncio.ensure_future(each) for each in others]
    try:
        done, _ = await asyncio.wait({serving, *waits}, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            each.result()
    finally:
        for wait in waits:
            wait.cancel()


@transaction
def _last_words(store: Store, key: SessionKey, source: Source) -> Statements[list[Entry]]:
    principal = yield from store.people.principal_for(source)
    return (yield from message_status.recent_entries(key, principal, _RECAP))


class _Desk:
    """What terminals ask, answered from the store."""

    def __init__(self, store: Store, commands: Registry, key_of: Callable[[Source], Awaitable[SessionKey]]) -> None:
        self._store = store
        self._commands = commands
        self._key_of = key_of
        self._news = asyncio.Event()

    async def notice(self, _happening: GatewayEvent) -> None:
        """Something was done that somebody may wait for."""
        self._news.set()
        self._news = asyncio.Event()

    def commands(self) -> Sequence[CommandLine]:
        return [CommandLine(name=name, help=command.help) for name, command in sorted(self._commands.table.items())]

    async def recap(self, source: Source) -> Sequence[Said]:
        key = await self._key_of(source)
        with suppress(NotFound):
            entries = await self._store.read(_last_words(self._store, key, replace(source, profile=key.profile)))
            return [Said(by_person=entry.role is Role.USER, text=entry.text) for entry in entries if entry.text.strip()]
        return []

    async def answered(self, source: Source) -> Settled:
        said = time.monotonic()
        while True:
            news = self._news
            with suppress(StoreUnavailable):
                if answered := await self._store.read(message_status.final_outcome(source)):
                    return Settled(id=source.message_id or "", refused=answered.refused, failed=answered.failed)
            if self._store.refused_for(said) > _PATIENCE:
                raise StoreUnavailable("the store has not let the gateway write for a while, perhaps its disk is full")
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_AGAIN):
                    await news.wait()
