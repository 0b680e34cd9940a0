"""The role in which somebody acts in a session from outside its chat."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from palaver.db.transaction import Statements, transaction
from palaver.model.access import AccessRole, Grant, Verdict
from palaver.model.errors import NotAllowed, NotFound
from palaver.model.session import Principal, Session
from palaver.model.source import Source, Trust, decode_id, source_of_identity, with_participant
from palaver.model.value import value
from palaver.store.conversations import sessions
from palaver.store.people import access_rules


@value
class RoleInSession:
    session: Session
    source: Source
    """The identity to act as there. Acting from outside makes nobody a participant."""
    role: AccessRole


@transaction
def role_in_session(session: str, principal: Principal, configured: Sequence[Grant]) -> Statements[RoleInSession]:
    """Return the role in which a principal acts in a session from outside its chat.

    An operator acts as owner. Others have the role that they have in the chat, or where they come from. Raises
    NotAllowed if they have none, or are blocked in either.
    """
    found, source = yield from _acting_source(session, principal)
    if principal.sees_all or principal.speaks_as is None:
        role = AccessRole.OWNER if principal.sees_all else None
    else:
        origin, rules = source_of_identity(principal.speaks_as), (yield from access_rules.load(configured))
        here = rules.decide(source if source.participant else origin, Trust())
        there = rules.decide(origin, Trust())
        role = None if there.verdict is Verdict.REFUSE and there.grant else here.role
    if role is None:
        raise NotAllowed("Taking part in this conversation", AccessRole.GUEST.text)
    return RoleInSession(session=found, source=source, role=role)


@transaction
def role_of_source(source: Source, configured: Sequence[Grant]) -> Statements[AccessRole | None]:
    """Return the role that the identity of a source alone gives now."""
    return (yield from access_rules.load(configured)).role(source, Trust())


def _acting_source(session: str, principal: Principal) -> Statements[tuple[Session, Source]]:
    found = yield from sessions.get_visible(session, principal)
    origin, place = found.origin, replace(with_participant(found.origin, None), message_id=None)
    mine = [name.partition(":")[2] for name in principal.identities if name.partition(":")[0] == origin.platform]
    if mine:
        return found, with_participant(place, decode_id(min(mine)))
    with suppress(NotFound):
        yield from sessions.get_visible(session, Principal.speaking(origin))
        return found, replace(origin, message_id=None) if principal.sees_all else place
    return found, place
