"""The role in which somebody acts in a session from outside its chat."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from palaver.db.transaction import Statements, transaction
from palaver.engine.intake.admission import GrantCache
from palaver.model.access import PAIRING_OFF, Access, AccessRole, Grant, Verdict, decide_access
from palaver.model.errors import NotAllowed, NotFound
from palaver.model.session import Principal, Session
from palaver.model.source import (
    Source,
    Trust,
    canonical_source,
    decode_id,
    identity_of,
    source_of_identity,
    with_participant,
)
from palaver.model.value import value
from palaver.store.conversations import sessions
from palaver.store.people import aliases, grants
from palaver.store.people.grants import GrantTable


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
        origin, rules = source_of_identity(principal.speaks_as), (yield from _load_rules(configured))
        here, there = rules.decide(source if source.participant else origin), rules.decide(origin)
        role = None if there.verdict is Verdict.REFUSE and there.grant else here.role
    if role is None:
        raise NotAllowed("Taking part in this conversation", AccessRole.GUEST.text)
    return RoleInSession(session=found, source=source, role=role)


@transaction
def role_of_source(source: Source, configured: Sequence[Grant]) -> Statements[AccessRole | None]:
    """Return the role that the identity of a source alone gives now."""
    return (yield from _load_rules(configured)).decide(source).role


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


def _load_rules(configured: Sequence[Grant]) -> Statements["_Rules"]:
    table = yield from grants.load_table(GrantTable())
    return _Rules(configured, table, (yield from aliases.load_all()), GrantCache())


@value(kw_only=False)
class _Rules:
    """Grants and aliases as one transaction reads them."""

    configured: Sequence[Grant]
    table: GrantTable
    aliases: Mapping[str, Mapping[str, str]]
    cache: GrantCache

    def decide(self, source: Source) -> Access:
        known = self.aliases.get(source.platform, {})
        plain = canonical_source(source, known)
        person = self.table.people.get(identity_of(plain) or "")
        candidates = self.cache.index(source.platform, self.configured, self.table, known).candidates(plain, person)
        return decide_access(plain, Trust(), candidates, person=person, no_pairing=PAIRING_OFF)
