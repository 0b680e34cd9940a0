"""`/platforms`: what is connected."""

from dataclasses import replace
from zoneinfo import ZoneInfo

from palaver.commands.registry import Performance
from palaver.db.transaction import Statements, transaction
from palaver.engine.commands import CommandContext
from palaver.model.access import AccessRole
from palaver.model.command import Command, Invocation
from palaver.store.accounts import AccountHealth
from palaver.store.store import Store

__all__ = [
    "about_places",
    "about_platforms",
]

_PLATFORMS = Command(
    name="platforms",
    help="say which accounts are connected, since when, and what went wrong last",
    example="/platforms",
    role=AccessRole.ADMIN,
    urgent=True,
    group="gateway",
)


def about_platforms(store: Store) -> list[Performance]:
    @transaction
    def platforms(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        accounts = yield from store.accounts.list_health(spoken.now)
        return "\n".join(_line(each, spoken.zone) for each in accounts) or "No account was ever served."

    return [Performance(_PLATFORMS, platforms)]


def _line(health: AccountHealth, zone: ZoneInfo) -> str:
    since, failed = health.connected_since, health.failed_at
    connected = f" since {since.astimezone(zone):%Y-%m-%d %H:%M}" if since else ""
    error = f"; last error {failed.astimezone(zone):%Y-%m-%d %H:%M}: {health.last_error}" if failed else ""
    return f"{health.name}: {health.state}{connected}{error}"


_SETHOME = Command(
    name="sethome",
    help="send here whatever goes to this platform without further address",
    example="/sethome",
    role=AccessRole.ADMIN,
    group="gateway",
)


def about_places(store: Store) -> list[Performance]:
    @transaction
    def set_home(_invocation: Invocation, spoken: CommandContext) -> Statements[str]:
        here = replace(spoken.received.inbound.source, message_id=None)
        profile, by = spoken.received.key.profile, spoken.principal.name
        yield from store.accounts.set_home(profile, here, spoken.now, by=by)
        return "This chat is the home channel of its platform now."

    return [Performance(_SETHOME, set_home)]
