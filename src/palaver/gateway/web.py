"""The web server of a gateway: the pages, the relay, and what they read from the rest."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from palaver.engine.hooks import PartialAnswer
from palaver.engine.reply_waiter import ReplyWaiter
from palaver.gateway.agents import build_agent
from palaver.gateway.probe import ask_agent
from palaver.model.problem import describe_agent_problem, is_agent_problem
from palaver.model.prompt import Pseudonyms
from palaver.model.source import MAIN, account_text
from palaver.platforms.web.adapter import ChatUpdate, user_of
from palaver.protocols.adapter import Adapter
from palaver.protocols.agent import FailureKind
from palaver.protocols.capabilities import HttpCallbacks
from palaver.protocols.installation import install_line
from palaver.settings.agents import AgentConfig
from palaver.settings.relay import RelayConfig
from palaver.settings.web import WebConfig
from palaver.store.damage.health_check import HealthCheck
from palaver.store.opening import sqlite_path
from palaver.store.status.health import check_all, check_data_directory, check_server, read_server_settings
from palaver.store.status.permissions import check_permissions, data_files
from palaver.store.store import Store
from palaver.web.address import Address
from palaver.web.event_hub import CHAT, Hub
from palaver.web.feeds import Event
from palaver.web.limits import WebLimits
from palaver.web.services import Services

log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_pages(
    services: Services, show_login: Callable[[str], None] | None, *, is_logged: bool
) -> AsyncGenerator[None]:
    """Serve the web pages meanwhile, if they are wanted and installed."""
    if show_login is None:
        yield
        return
    try:
        from palaver.web.server import serve_web  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        log.warning(
            "no web interface: %s is not installed; %s, or web: {enabled: false}",
            error.name,
            install_line("web"),
            extra={"action": "web.not_installed"},
        )
        yield
        return
    async with serve_web(services, show_login, is_logged=is_logged):
        yield


@asynccontextmanager
async def serve_relay(services: Services, relay: RelayConfig, pseudonyms: Pseudonyms) -> AsyncGenerator[None]:
    """Serve the gateways behind this connector meanwhile, if there are any."""
    if relay.port is None:
        yield
        return
    from palaver.web.relay import RelayServer  # noqa: PLC0415 - an extra

    server = RelayServer(
        store=services.store, engine=services.engine, clock=services.clock, file_key=pseudonyms.key.hex()
    )
    async with server.serve(relay.host, relay.port):
        yield


# Platforms that call over HTTP


def find_callbacks(adapters: Sequence[Adapter]) -> dict[tuple[str, str], HttpCallbacks]:
    """Return the adapters that are called over HTTP, by platform and account."""
    return {
        (adapter.platform.name, adapter.account or ""): adapter
        for adapter in adapters
        if isinstance(adapter, HttpCallbacks) and adapter.takes_callbacks
    }


def warn_unreachable(accounts: Iterable[tuple[str, str]]) -> None:
    for platform, account in accounts:
        log.error(
            "%s:%s receives nothing: it is called over HTTP, and the web server is off; set web: {enabled: true}",
            platform,
            account,
            extra={"action": "account.unreachable", "account": account_text(platform, account)},
        )


# What the pages show


def push_partial(hub: Hub, reply_waiter: ReplyWaiter, answer: PartialAnswer) -> None:
    hub.grow(answer)
    reply_waiter.add_partial(answer)


def push_chat(hub: Hub, shown: ChatUpdate) -> None:
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


async def find_agent_problem(choice: AgentConfig, secret: str) -> str:
    """Ask an agent that is being set up, and return why it does not answer; empty if it does."""
    problem = await ask_agent(build_agent(choice), secret)
    if problem is None:
        return ""
    if not is_agent_problem(problem.kind) or problem.kind is FailureKind.FATAL:
        return problem.detail
    cause, _ = describe_agent_problem(problem.kind, "the model", MAIN)
    return f"{cause.rstrip('.')} ({problem.detail})"


async def check_health(store: Store, url: str, now: datetime) -> list[HealthCheck]:
    file = sqlite_path(url)
    directory = check_data_directory(file.resolve()) if file else []
    directory += [check_permissions(data_files(file.resolve()))] if file else []
    return [*directory, *[check async for check in check_all(store, now)]]


async def warn_of_server(store: Store) -> None:
    """Warn at the start of a database server that can lose what it has committed."""
    settings = await store.read(read_server_settings())
    if settings and (found := check_server(settings)).is_warning:
        log.warning("the database server: %s; %s", found.found, found.fix, extra={"action": "store.unsafe"})


# Read the configuration


def web_address(web: WebConfig) -> Address:
    return Address(host=web.host, port=web.port, url=web.url, trusted_proxies=web.trusted_proxies, origins=web.origins)


def web_limits(web: WebConfig) -> WebLimits:
    return WebLimits(
        connections=web.connections,
        idle_seconds=web.idle_limit.total_seconds(),
        body_seconds=web.body_limit.total_seconds(),
    )
