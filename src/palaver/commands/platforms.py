"""`/platforms`: what is connected."""

from zoneinfo import ZoneInfo

from palaver.commands.registry import Performance
from palaver.domain.access import AccessRole
from palaver.domain.command import Command, Invocation
from palaver.ports.commands import Spoken
from palaver.ports.places import AccountHealth
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_platforms"]

_PLATFORMS = Command(
    name="platforms",
    help="say which accounts are connected, since when, and what went wrong last",
    example="/platforms",
    role=AccessRole.ADMIN,
    urgent=True,
    group="gateway",
)


def about_platforms(store: Store) -> list[Performance]:
    @work
    def platforms(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        accounts = yield from store.accounts.health(spoken.now)
        return "\n".join(_line(each, spoken.zone) for each in accounts) or "No account was ever served."

    return [Performance(_PLATFORMS, platforms)]


def _line(health: AccountHealth, zone: ZoneInfo) -> str:
    since, failed = health.connected_since, health.failed_at
    connected = f" since {since.astimezone(zone):%Y-%m-%d %H:%M}" if since else ""
    error = f"; last error {failed.astimezone(zone):%Y-%m-%d %H:%M}: {health.last_error}" if failed else ""
    return f"{health.name}: {health.state}{connected}{error}"
