"""The gateway: the composition root. Put store, adapters, agents, engine and web together; start, reload, stop."""

import asyncio
import gc
import logging
import os
import secrets
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, cast

from palaver.agents.process import safe_environment
from palaver.commands.builtin import builtin_commands
from palaver.commands.plugins import with_plugins
from palaver.config.agents import AgentConfig
from palaver.config.editor import ConfigFile
from palaver.config.model import Config
from palaver.config.terminal import StopMode
from palaver.engine.engine import Engine
from palaver.engine.hooks import Exposing, Meter, NoMeter, PartialAnswer, load_hook
from palaver.engine.jobs.scripts import Scripts
from palaver.engine.options import Agents
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.engine.retry import close_all
from palaver.gateway.agents import AgentPool, build_agent
from palaver.gateway.backups import find_backups, make_backup, serve_backups
from palaver.gateway.erasures import with_outside
from palaver.gateway.log_file import read_log
from palaver.gateway.owner import link_owner
from palaver.gateway.probe import ask_account, ask_agent
from palaver.gateway.processes import make_process_manager, make_terminal_tools
from palaver.gateway.service_manager import notify_stopping, supervised
from palaver.gateway.terminal import TerminalService, terminal_socket
from palaver.gateway.vault import database_key, find_blob_store, find_vault
from palaver.gateway.voice import make_voice
from palaver.model.errors import NewerSchema
from palaver.model.key import SessionKey
from palaver.model.problem import describe_agent_problem, is_agent_problem
from palaver.model.prompt import Pseudonyms
from palaver.model.source import MAIN, Source, Trust
from palaver.model.turn import Inbound, account_text
from palaver.platforms.local.adapter import LocalAdapter, output_folder
from palaver.platforms.plugins import known_platforms, make_adapter
from palaver.platforms.terminal.adapter import TerminalAdapter
from palaver.platforms.web.adapter import ApiAdapter, ChatUpdate, WebAdapter, user_of
from palaver.processes.manager import ProcessManager
from palaver.protocols.adapter import Adapter
from palaver.protocols.agent import FailureKind
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.clock import Clock, SystemClock
from palaver.protocols.hooks import Hook
from palaver.protocols.tools import Toolset
from palaver.protocols.voice import Voice
from palaver.store.backup.backups import Backup
from palaver.store.clock import StoreClock
from palaver.store.opening import open_store, sqlite_path
from palaver.store.privacy.pseudonyms import load_pseudonyms
from palaver.store.status.health import HealthCheck, check_all, check_data_directory
from palaver.store.status.permissions import check_permissions, data_files
from palaver.store.store import Store
from palaver.tools.toolsets import Toolsets
from palaver.web.address import Address
from palaver.web.event_hub import CHAT, Event, Hub
from palaver.web.limits import RateLimiter, WebLimits, raise_file_limit
from palaver.web.services import Services
from palaver.web.settings import Settings
from palaver.web.tokens import Authenticator

log = logging.getLogger(__name__)

GC_THRESHOLD = 50_000
"""Collect reference cycles less often: at 10,000 objects it took 2 % of a message."""
CLOSE_TIMEOUT_SECONDS = 15.0
"""Longer than agents, tools and adapters are waited for."""
if TYPE_CHECKING:
    from palaver.store.encryption.vault import Vault

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
        self._meter = meter or NoMeter()
        self._show_login = show_login
        self._is_logged = is_logged
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
        # Load everything that others wrote first, so that a mistake in it is reported before anything starts.
        adapters = [make_adapter(*account) for account in _accounts(self._config)]
        self._callbacks = _callbacks(adapters)
        self._warn_unreachable()
        hooks = [load_hook(name) for name in self._config.hooks]
        agents = self._agent_pool.agents(self._config)
        self._config.check_instructions()
        voice = make_voice(self._config.voice)
        tools = Toolsets(self._config.tools.server_facts(), self._config.data_dir)
        self._vault = find_vault(self._config)
        key = database_key(self._vault)
        async with await open_store(self._config.store, key=key, exclusive=True) as store:
            store.erasures = with_outside(store, self._config.data_dir)
            pseudonyms = await store.transact(load_pseudonyms())
            await store.transact(link_owner(self._config, SystemClock().now()))
            clock = StoreClock(store.database, SystemClock())
            processes = await make_process_manager(self._config, store, clock, self._worker)
            toolsets = tools.toolsets(
                store, make_terminal_tools(self._config, processes), speaks=bool(voice and voice.speaker)
            )
            services = self._assemble(
                store,
                agents,
                adapters,
                hooks,
                toolsets,
                clock=clock,
                processes=processes,
                pseudonyms=pseudonyms,
                voice=voice,
            )
            engine = services.engine
            serving = asyncio.create_task(_serve_engine(engine))
            log.info("the gateway is up", extra={"action": "gateway.started"})
            try:
                async with self._web(services), self._relay(services, pseudonyms), supervised():
                    await _wait_first(serving, self._drain_asked.wait())
                    notify_stopping()
                    await _wait_first(serving, engine.drain(), self._stop_asked.wait())
                    if self._config.tools.terminal.on_stop is StopMode.END:
                        await processes.end_all()
            finally:
                serving.cancel()
                for closing in ([serving], [self._agent_pool.close(), tools.close()]):
                    extra = {"action": "gateway.close_error"}
                    await close_all("the gateway", closing, extra, within=CLOSE_TIMEOUT_SECONDS)
        log.info("the gateway is down", extra={"action": "gateway.stopped"})
        return not self._stop_asked.is_set()

    def stop(self) -> None:
        if self._drain_asked.is_set():
            log.warning("stopping at once", extra={"action": "gateway.forced_stop"})
            self._stop_asked.set()
        self._drain_asked.set()

    def reload(self, config: Config) -> None:
        """Use another configuration as far as a running gateway can."""
        config.check_instructions()
        for name in self.find_deferred(config):
            log.warning("a change of %s waits for a restart", name, extra={"action": "reload.deferred"})
        if self._engine is not None:
            self._engine.reload(config.options(), self._agent_pool.agents(config))
        self._used = config
        log.info("the configuration was reloaded", extra={"action": "reload"})

    def find_deferred(self, config: Config) -> list[str]:
        """Return what another configuration changes that waits for a restart."""
        deferred = [name for name in FIXED_SETTINGS if attrgetter(name)(config) != attrgetter(name)(self._config)]
        if _accounts(config) != _accounts(self._config):
            deferred.append("accounts")
        if config.tools.server_facts() != self._config.tools.server_facts():
            deferred.append("MCP servers")
        if config.voice != self._config.voice:
            deferred.append("voice")
        if config.tools.terminal != self._config.tools.terminal:
            deferred.append("the terminal")
        return deferred

    # Assemble

    def _assemble(
        self,
        store: Store,
        agents: Agents,
        adapters: Sequence[Adapter],
        hooks: Sequence[Hook],
        toolsets: Sequence[Toolset],
        *,
        clock: StoreClock,
        processes: ProcessManager,
        pseudonyms: Pseudonyms,
        voice: Voice | None,
    ) -> Services:
        config = self._config
        alone = sqlite_path(config.store) is not None
        commands = with_plugins(builtin_commands(store, processes), store)
        blob_store, reply_waiter = find_blob_store(config, self._vault), ReplyWaiter(store)
        hub = Hub(store, alone=alone)
        terminals = TerminalService(store, commands, self._key_of, self._model_of)
        webchat = WebAdapter(clock, push=partial(_push_chat, hub), shelf=blob_store, receive=self._receive)
        web_adapters = [webchat, ApiAdapter(blob_store)] if self._show_login else []
        self._engine = engine = Engine(
            store=store,
            adapters=[
                self._terminal_adapter(terminals, clock),
                LocalAdapter(output_folder(config.data_dir)),
                *web_adapters,
                *adapters,
            ],
            agent=agents,
            commands=commands,
            options=config.options(),
            clock=clock,
            worker=self._worker,
            alone=alone,
            hooks=[terminals.on_event, *([hub.notice] if self._show_login else []), *hooks],
            meter=self._meter,
            blob_store=blob_store,
            toolsets=toolsets,
            pseudonyms=pseudonyms,
            reply_waiter=reply_waiter,
            scripts=_scripts(config),
            voice=voice,
            watch=partial(_push_partial, hub, reply_waiter) if self._show_login else None,
            loops={
                "processes": processes.serve,
                "backups": partial(serve_backups, lambda: self._used, self._file, clock, self._vault),
            },
        )
        processes.on_output = partial(hub.hint, "processes")
        return Services(
            store=store,
            engine=engine,
            commands=commands,
            clock=clock,
            address=_address(config),
            limits=_web_limits(config),
            messages=RateLimiter(per_caller=config.web.messages_per_minute, total=None),
            auth=Authenticator(store=store, clock=clock),
            hub=hub,
            webchat=webchat,
            waiting=reply_waiter,
            platforms=known_platforms(),
            listening=self._callbacks,
            read_log=partial(read_log, config.data_dir),
            examine=partial(_check_health, store, config.store),
            shelf=blob_store,
            processes=processes,
            config=lambda: self._used,
            settings=self._settings(),
            back_up=self._back_up,
            list_backups=lambda: find_backups(self._used, self._vault).list_all(),
            metrics=self._meter.exposed if isinstance(self._meter, Exposing) else None,
        )

    async def _back_up(self, now: datetime) -> Backup:
        backup, _ = await make_backup(self._used, self._file, now, self._vault)
        return backup

    def _settings(self) -> Settings | None:
        if self._file is None:
            return None
        return Settings(
            file=self._file,
            reload=self.reload,
            find_deferred=self.find_deferred,
            ask_agent=_ask_agent,
            ask_account=ask_account,
        )

    def _terminal_adapter(self, terminals: TerminalService, clock: Clock) -> Adapter:
        # Gateways that share a store each serve the terminals of their own machine.
        machine = socket.gethostname() if sqlite_path(self._config.store) is None else None
        return TerminalAdapter(terminal_socket(self._config), terminals, clock, account=machine)

    # Adapters call these: the engine is there before any of them runs.

    async def _key_of(self, source: Source) -> SessionKey:
        return await cast("Engine", self._engine).key_of(source)

    async def _model_of(self, source: Source) -> str | None:
        return await cast("Engine", self._engine).model_of(source)

    async def _receive(self, inbound: Inbound, trust: Trust) -> None:
        await cast("Engine", self._engine).receive(inbound, trust)

    # Web

    @asynccontextmanager
    async def _web(self, services: Services) -> AsyncGenerator[None]:
        """Serve the web pages meanwhile, if they are wanted and installed."""
        if self._show_login is None:
            yield
            return
        try:
            from palaver.web.server import serve_web  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            log.warning(
                "no web interface: %s is not installed; pip install 'palaver[web]', or web: {enabled: false}",
                error.name,
                extra={"action": "web.not_installed"},
            )
            yield
            return
        async with serve_web(services, self._show_login, is_logged=self._is_logged):
            yield

    @asynccontextmanager
    async def _relay(self, services: Services, pseudonyms: Pseudonyms) -> AsyncGenerator[None]:
        """Serve the gateways behind this connector meanwhile, if there are any."""
        relay = self._config.relay
        if relay.port is None:
            yield
            return
        from palaver.web.relay import RelayServer  # noqa: PLC0415 - an extra

        server = RelayServer(
            store=services.store, engine=services.engine, clock=services.clock, file_key=pseudonyms.key.hex()
        )
        async with server.serve(relay.host, relay.port):
            yield

    def _warn_unreachable(self) -> None:
        for platform, account in () if self._show_login else self._callbacks:
            log.error(
                "%s:%s receives nothing: it is called over HTTP, and the web server is off; set web: {enabled: true}",
                platform,
                account,
                extra={"action": "account.unreachable", "account": account_text(platform, account)},
            )


def _push_partial(hub: Hub, reply_waiter: ReplyWaiter, answer: PartialAnswer) -> None:
    hub.grow(answer)
    reply_waiter.add_partial(answer)


def _push_chat(hub: Hub, shown: ChatUpdate) -> None:
    """Push a chat message to the browsers of the chat's owner."""
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


def _scripts(config: Config) -> Scripts | None:
    folder, limit = config.jobs.scripts, config.jobs.script_limit.total_seconds()
    return Scripts(folder=folder, environ=safe_environment(os.environ), seconds=limit) if folder else None


async def _ask_agent(choice: AgentConfig, secret: str) -> str:
    problem = await ask_agent(build_agent(choice), secret)
    if problem is None:
        return ""
    if not is_agent_problem(problem.kind) or problem.kind is FailureKind.FATAL:
        return problem.detail
    cause, _ = describe_agent_problem(problem.kind, "the model", MAIN)
    return f"{cause.rstrip('.')} ({problem.detail})"


async def _check_health(store: Store, url: str) -> list[HealthCheck]:
    file = sqlite_path(url)
    directory = check_data_directory(file.resolve()) if file else []
    directory += [check_permissions(data_files(file.resolve()))] if file else []
    return [*directory, *[check async for check in check_all(store, SystemClock().now())]]


# Read the configuration


def _accounts(config: Config) -> list[tuple[str, str, Mapping[str, object]]]:
    """Return platform, name and options of every account."""
    return [
        (name, account, options)
        for name, platform in config.platforms.items()
        for account, options in platform.accounts.items()
    ]


def _address(config: Config) -> Address:
    web = config.web
    return Address(host=web.host, port=web.port, url=web.url, trusted_proxies=web.trusted_proxies, origins=web.origins)


def _web_limits(config: Config) -> WebLimits:
    web = config.web
    return WebLimits(
        connections=web.connections,
        idle_seconds=web.idle_limit.total_seconds(),
        body_seconds=web.body_limit.total_seconds(),
    )


def _callbacks(adapters: Sequence[Adapter]) -> dict[tuple[str, str], HttpCallbacks]:
    """Return the adapters that are called over HTTP, by platform and account."""
    return {
        (adapter.platform.name, adapter.account or ""): adapter
        for adapter in adapters
        if isinstance(adapter, HttpCallbacks) and adapter.takes_callbacks
    }


# Run


async def _serve_engine(engine: Engine) -> None:
    """Serve the engine. If NewerSchema ended its loops, raise that alone instead of a group."""
    try:
        await engine.serve()
    except BaseExceptionGroup as group:
        newer: BaseException | None = group.subgroup(NewerSchema)
        while isinstance(newer, BaseExceptionGroup):
            newer = cast("BaseExceptionGroup[BaseException]", newer).exceptions[0]
        raise newer or group from None


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
