"""Commands about the places where the gateway speaks."""

from dataclasses import replace

from palaver.commands.registry import Performance
from palaver.domain.access import AccessRole
from palaver.domain.command import Command, Invocation
from palaver.ports.commands import Spoken
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["about_places"]

_SETHOME = Command(
    name="sethome",
    help="send here whatever goes to this platform without further address",
    example="/sethome",
    role=AccessRole.ADMIN,
    group="gateway",
)


def about_places(store: Store) -> list[Performance]:
    @work
    def set_home(_invocation: Invocation, spoken: Spoken) -> Steps[str]:
        here = replace(spoken.received.inbound.source, message_id=None)
        profile, by = spoken.received.key.profile, spoken.principal.name
        yield from store.places.set_home(profile, here, spoken.now, by=by)
        return "This chat is the home channel of its platform now."

    return [Performance(_SETHOME, set_home)]
