"""`/platforms` and `/sethome`: connected accounts and home channels."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from palaver.commands.formatting import format_time
from palaver.commands.registry import CommandGroup
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Invocation, as_said
from palaver.model.source import DM, Source, describe_source
from palaver.model.target import Place
from palaver.store.accounts import AccountHealth
from palaver.store.store import Store

commands = CommandGroup("gateway")


@commands.add(
    "platforms",
    "Show which accounts are connected, their last error, and the home channels",
    "/platforms",
    role=AccessRole.ADMIN,
    urgent=True,
)
@transaction
def platforms(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    accounts = yield from store.accounts.list_health(context.now)
    homes = yield from store.accounts.list_configured_homes()
    lines = [_line(each, context.zone) for each in accounts] or ["No account has been connected yet."]
    return "\n".join([*lines, *(f"Home channel: {_target(home)} ({as_said(describe_source(home))})" for home in homes)])


def _target(home: Source) -> str:
    return Place(platform=home.platform, server=home.scope_id, chat=home.chat_id or "", thread=home.thread_id).text


def _line(health: AccountHealth, zone: ZoneInfo) -> str:
    since, failed = health.connected_since, health.failed_at
    connected = f" since {format_time(since, zone)}" if since else ""
    error = f"; last error {format_time(failed, zone)}: {health.last_error}" if failed else ""
    return f"{health.name}: {health.state}{connected}{error}"


@commands.add("sethome", "Make this chat the home channel of its platform", "/sethome", role=AccessRole.ADMIN)
@transaction
def set_home(store: Store, _invocation: Invocation, context: CommandContext) -> Statements[str]:
    here = replace(context.received.inbound.source, message_id=None)
    profile, by = context.received.key.profile, context.principal.name
    labels = context.received.inbound.labels
    name = labels.user if here.chat_kind == DM else labels.chat
    yield from store.accounts.set_home(profile, here, context.now, by=by, name=name)
    return "This chat is now the home channel of its platform."
