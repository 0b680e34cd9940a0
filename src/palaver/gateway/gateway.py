"""The gateway: the composition root. Put store, adapters, agents, engine and web together; start, reload, stop."""

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from pydantic import BaseModel, ValidationError

from palaver.agents.process import safe_environment
from palaver.commands.builtin import builtin_commands
from palaver.commands.plugins import with_plugins
from palaver.commands.registry import Registry
from palaver.config.editor import ConfigFile
from palaver.config.encryption import read_key_text
from palaver.config.model import Config
from palaver.config.secrets import find_secrets
from palaver.engine.context import Resources
from palaver.engine.delivery.departures import Departures
from palaver.engine.engine import Engine
from palaver.engine.hooks import Exposing, Meter, NoMeter, load_hook
from palaver.engine.jobs.scripts import Scripts
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import close_all
from palaver.engine.settings import Agents
from palaver.gateway.agents import AgentPool, cost_warnings
from palaver.gateway.backups import find_backups, make_backup, serve_backups
from palaver.gateway.connector import Connector
from palaver.gateway.erasures import with_outside
from palaver.gateway.installer import install
from palaver.gateway.log_file import read_log
from palaver.gateway.owner import link_owner
from palaver.gateway.probe import ask_account
from palaver.gateway.processes import make_process_manager, make_terminal_tools
from palaver.gateway.service_manager import notify_stopping, supervised
from palaver.gateway.terminal import TerminalService, terminal_socket
from palaver.gateway.vault import database_key, find_blob_store, find_vault
from palaver.gateway.voice import make_voice
from palaver.gateway.web import (
    check_health,
    find_agent_problem,
    find_callbacks,
    push_chat,
    push_partial,
    serve_pages,
    serve_relay,
    warn_of_server,
    warn_unreachable,
    web_address,
    web_limits,
)
from palaver.model.errors import BadArgument, NewerSchema, PalaverError, first_error
from palaver.model.key import SessionKey
from palaver.model.prompt import Pseudonyms
from palaver.model.redact import forget_secrets, know_secrets
from palaver.model.source import Source, Trust
from palaver.model.turn import Inbound
from palaver.model.value import value
from palaver.platforms.local.adapter import LocalAdapter, output_folder
from palaver.platforms.plugins import known_platforms, make_adapter, read_options
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.platforms.web.adapter import ApiAdapter, WebAdapter
from palaver.processes.manager import ProcessManager
from palaver.protocols.adapter import Adapter
from palaver.protocols.clock import Clock, SystemClock
from palaver.protocols.hooks import Hook
from palaver.protocols.voice import Voice
from palaver.settings.terminal import StopMode
from palaver.store.backup.backups import Backup
from palaver.store.clock import StoreClock
from palaver.store.conversations.blob_store import BlobStore
from palaver.store.opening import check_url, open_store, sqlite_path
from palaver.store.privacy.pseudonyms import load_pseudonyms
from palaver.store.store import Store
from palaver.tools.toolsets import Toolsets
from palaver.web.event_hub import Hub
from palaver.web.limits import RateLimiter, raise_file_limit
from palaver.web.services import Services
from palaver.web.settings import Settings
from palaver.web.tokens import Authenticator

if TYPE_CHECKING:
    from palaver.protocols.capabilities import HttpCallbacks
    from palaver.store.encryption.vault import Vault

log = logging.getLogger(__name__)

GC_THRESHOLD = 50_000
"""Collect reference cycles less often: at 10,000 objects it took 2 % of a message."""
CLOSE_TIMEOUT_SECONDS = 15.0
"""Longer than agents, tools and adapters are waited for."""
FIXED_SETTINGS = (
    "data_dir",
    "store",
    "encryption",
    "hooks",
    "jobs",
    "log",
    "metrics",
    "traces",
    "web",
    "relay.host",
    "relay.port",
)
"""Settings that a running gateway cannot change."""


@value
class _Loaded:
    adapters: Sequence[Adapter]
    hooks: Sequence[Hook]
    agents: Agents
    voice: Voice | None
    tools: Toolsets


@value
class _Parts:
    """What the engine and the web pages share."""

    store: Store
    clock: StoreClock
    pseudonyms: Pseudonyms
    processes: ProcessManager
    commands: Registry
    blob_store: BlobStore
    hub: Hub
    webchat: WebAdapter
    reply_waiter: ReplyWaiter
    connector: Connector


class Gateway:
    """Runs until `stop` is called: once to drain first, twice to stop at once.

    With `show_login` it serves the web pages and passes the login link to that function. If `is_logged`, the link goes
    to a log that is kept, so it is shown only as long as nobody can log in otherwise. With `file`, the owner can change
    the configuration in the browser.
    """

    def __init__(
        self,
        config: Config,
        *,
        meter: Meter | None = None,
        show_login: Callable[[str], None] | None = None,
        is_logged: bool = False,
        file: ConfigFile | None = None,
    ) -> None:
        self._config = config
        self._used = config
        self._file = file
        self._settings = self._make_settings()
        self._meter = meter or NoMeter()
        self._show_login = show_login
        self._is_logged = is_logged
        self._is_alone = sqlite_path(config.store) is not None
        self._agent_pool = AgentPool()
        self._engine: Engine | None = None
        self._vault: Vault | None = None
        self._callbacks: Mapping[tuple[str, str], HttpCallbacks] = {}
        self._worker = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._drain_asked = asyncio.Event()
        self._stop_asked = asyncio.Event()

    async def serve(self) -> bool:
        """Run, and return whether the gateway was drained before it stopped.

        Raises StoreInUse if another gateway owns the store, and NewerSchema if a newer Palaver has changed it, at the
        start or later.
        """
        gc.set_threshold(GC_THRESHOLD)
        raise_file_limit()
        loaded = self._load()
        async with await open_store(self._config.store, key=database_key(self._vault), exclusive=True) as store:
            await warn_of_server(store)
            parts = await self._prepare(store)
            self._engine = engine = self._make_engine(loaded, parts)
            parts.processes.sees_output = engine.sees_output
            services = self._make_services(engine, parts)
            serving = asyncio.create_task(_serve_engine(engine))
            log.info("the gateway is up", extra={"action": "gateway.started"})
            try:
                relay = serve_relay(services, self._config.relay, parts.pseudonyms)
                async with serve_pages(services, self._show_login, is_logged=self._is_logged), relay, supervised():
                    await _wait_first(serving, self._drain_asked.wait())
                    notify_stopping()
                    await _wait_first(serving, engine.drain(), self._stop_asked.wait())
                    if self._config.tools.terminal.on_stop is StopMode.END:
                        await parts.processes.end_all()
            finally:
                serving.cancel()
                parts.connector.close()
                for closing in ([serving], [self._agent_pool.close(), loaded.tools.close()]):
                    extra = {"action": "gateway.close_error"}
                    await close_all("the gateway", closing, extra, within=CLOSE_TIMEOUT_SECONDS)
                forget_secrets(self)
            await engine.notify_released()
        log.info("the gateway is down", extra={"action": "gateway.stopped"})
        return not self._stop_asked.is_set()

    def stop(self) -> None:
        if self._drain_asked.is_set():
            log.warning("stopping at once", extra={"action": "gateway.forced_stop"})
            self._stop_asked.set()
        self._drain_asked.set()

    def reload(self, config: Config) -> None:
        """Use another configuration as far as a running gateway can."""
        config.check_variables()
        config.check_instructions()
        self._know_secrets(config)
        for name in self.find_deferred(config):
            log.warning("a change of %s waits for a restart", name, extra={"action": "reload.deferred"})
        if self._engine is not None:
            self._engine.reload(config.settings(), self._agent_pool.agents(config))
        self._used = config
        log.info("the configuration was reloaded", extra={"action": "reload"})

    def read_configuration(self) -> None:
        """Read the configuration again, and use it as far as a running gateway can. Raises InvalidInput."""
        if self._file is None:
            problem, allowed = "This gateway has no configuration file.", "a gateway of palaver up or palaver chat"
            raise BadArgument(problem, found="", allowed=allowed, example="palaver up")
        loaded = self._file.load()
        check_url(loaded.config.store)
        self.reload(loaded.config)
        for caution in (*loaded.warnings, *cost_warnings(loaded.config)):
            log.warning("%s", caution, extra={"action": "config.warning"})

    def find_deferred(self, config: Config) -> list[str]:
        """Return what another configuration changes that waits for a restart."""
        deferred = [name for name in FIXED_SETTINGS if attrgetter(name)(config) != attrgetter(name)(self._config)]
        if config.accounts != self._config.accounts:
            deferred.append("accounts")
        if config.tools.server_facts() != self._config.tools.server_facts():
            deferred.append("MCP servers")
        if config.voice != self._config.voice:
            deferred.append("voice")
        if config.tools.terminal != self._config.tools.terminal:
            deferred.append("the terminal")
        return deferred

    # Assemble

    def _load(self) -> _Loaded:
        """Load everything that others wrote, so that a mistake in it is reported before anything starts."""
        config = self._config
        config.check_variables()
        adapters = [make_adapter(*account) for account in config.accounts]
        self._callbacks = find_callbacks(adapters)
        if not self._show_login:
            warn_unreachable(self._callbacks)
        hooks, agents = [load_hook(name) for name in config.hooks], self._agent_pool.agents(config)
        config.check_instructions()
        voice, tools = make_voice(config.voice), Toolsets(config.tools.server_facts(), config.data_dir)
        self._vault = find_vault(config)
        self._know_secrets(config)
        know_secrets(self, filter(None, [read_key_text(config.encryption)]))
        return _Loaded(adapters=adapters, hooks=hooks, agents=agents, voice=voice, tools=tools)

    def _know_secrets(self, config: Config) -> None:
        """Redact the secrets of a configuration until the gateway ends. An account can lack its packages."""
        options: list[BaseModel] = []
        for name, _, given in config.accounts:
            with suppress(PalaverError, ValidationError):
                options.append(read_options(name, given))
        know_secrets(self, find_secrets([config, *options]))

    async def _prepare(self, store: Store) -> _Parts:
        config, clock = self._config, StoreClock(store.database, SystemClock())
        store.erasures = with_outside(store, config.data_dir)
        pseudonyms = await store.transact(load_pseudonyms())
        await store.transact(link_owner(config, SystemClock().now()))
        processes = await make_process_manager(config, store, clock, self._worker)
        hub, blob_store = Hub(store, alone=self._is_alone), find_blob_store(config, self._vault)
        connector = Connector(store, self._settings, lambda: self._used)
        connector.look()
        processes.on_output = partial(hub.hint, "processes")
        return _Parts(
            store=store,
            clock=clock,
            pseudonyms=pseudonyms,
            processes=processes,
            commands=with_plugins(builtin_commands(store, processes, connector.connect), store),
            connector=connector,
            blob_store=blob_store,
            hub=hub,
            webchat=WebAdapter(clock, push=partial(push_chat, hub), shelf=blob_store, receive=self._receive),
            reply_waiter=ReplyWaiter(store),
        )

    def _make_engine(self, loaded: _Loaded, parts: _Parts) -> Engine:
        config, store, hub, voice = self._config, parts.store, parts.hub, loaded.voice
        terminals = TerminalService(
            *(store, parts.commands, self._key_of, self._model_of, self._suggestions_for),
            connector=parts.connector,
            reload=self.read_configuration,
        )
        terminal_tools = make_terminal_tools(config, parts.processes)
        return Engine(
            store=store,
            adapters=[
                self._terminal_adapter(terminals, parts.clock),
                LocalAdapter(output_folder(config.data_dir)),
                *([parts.webchat, ApiAdapter(parts.blob_store)] if self._show_login else []),
                *loaded.adapters,
            ],
            agent=loaded.agents,
            commands=parts.commands,
            settings=config.settings(),
            clock=parts.clock,
            worker=self._worker,
            alone=self._is_alone,
            hooks=[terminals.on_event, *([hub.notice] if self._show_login else []), *loaded.hooks],
            meter=self._meter,
            pseudonyms=parts.pseudonyms,
            resources=Resources(
                reply_waiter=parts.reply_waiter,
                blob_store=parts.blob_store,
                outputs=output_folder(config.data_dir),
                scripts=_scripts(config),
                voice=voice,
                toolsets=loaded.tools.toolsets(store, terminal_tools, speaks=bool(voice and voice.speaker)),
                pasted_keys=parts.connector.keys,
            ),
            departures=Departures(config.data_dir / "departures"),
            watch=partial(push_partial, hub, parts.reply_waiter) if self._show_login else None,
            loops={
                "processes": parts.processes.serve,
                "backups": partial(serve_backups, lambda: self._used, self._file, parts.clock, self._vault),
            },
        )

    def _make_services(self, engine: Engine, parts: _Parts) -> Services:
        config, store = self._config, parts.store
        return Services(
            store=store,
            engine=engine,
            commands=parts.commands,
            clock=parts.clock,
            address=web_address(config.web),
            limits=web_limits(config.web),
            messages=RateLimiter(per_caller=config.web.messages_per_minute, total=None),
            auth=Authenticator(store=store, clock=parts.clock, rules=engine.load_access),
            hub=parts.hub,
            webchat=parts.webchat,
            waiting=parts.reply_waiter,
            platforms=known_platforms(),
            listening=self._callbacks,
            read_log=partial(read_log, config.data_dir),
            examine=lambda: check_health(store, config.store, SystemClock().now()),
            shelf=parts.blob_store,
            processes=parts.processes,
            config=lambda: self._used,
            settings=self._settings,
            find_offers=parts.connector.find,
            back_up=self._back_up,
            list_backups=lambda: find_backups(self._used, self._vault).list_all(),
            metrics=self._meter.exposed if isinstance(self._meter, Exposing) else None,
        )

    async def _back_up(self, now: datetime) -> Backup:
        backup, _ = await make_backup(self._used, self._file, now, self._vault)
        return backup

    def _make_settings(self) -> Settings | None:
        if self._file is None:
            return None
        return Settings(
            file=self._file,
            reload=self.reload,
            find_deferred=self.find_deferred,
            ask_agent=find_agent_problem,
            ask_account=ask_account,
            install=install,
        )

    def _terminal_adapter(self, terminals: TerminalService, clock: Clock) -> Adapter:
        # Gateways that share a store each serve the terminals of their own machine.
        machine = None if self._is_alone else socket.gethostname()
        return TerminalAdapter(terminal_socket(self._config), terminals, clock, account=machine)

    # Adapters call these: the engine is there before any of them runs.

    async def _key_of(self, source: Source) -> SessionKey:
        return await cast("Engine", self._engine).key_of(source)

    async def _model_of(self, source: Source) -> str | None:
        return await cast("Engine", self._engine).model_of(source)

    async def _suggestions_for(self, source: Source) -> Sequence[str]:
        return await cast("Engine", self._engine).suggestions(source)

    async def _receive(self, inbound: Inbound, trust: Trust) -> None:
        await cast("Engine", self._engine).receive(inbound, trust)


def _scripts(config: Config) -> Scripts | None:
    folder, limit = config.jobs.scripts, config.jobs.script_limit.total_seconds()
    return Scripts(folder=folder, environ=safe_environment(os.environ), seconds=limit) if folder else None


# Run


async def _serve_engine(engine: Engine) -> None:
    """Serve the engine. If NewerSchema ended its loops, raise that alone instead of a group."""
    try:
        await engine.serve()
    except BaseExceptionGroup as group:
        newer = group.subgroup(NewerSchema)
        raise first_error(newer) if newer else group from None


async def _wait_first(serving: "asyncio.Task[None]", *others: Awaitable[object]) -> None:
    """Wait until one of the others is done. Raise the error that ends any of them, or the engine."""
    waits = [asyncio.ensure_future(other) for other in others]
    try:
        done, _ = await asyncio.wait({serving, *waits}, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for wait in waits:
            wait.cancel()
