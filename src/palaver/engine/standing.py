"""Standing: as what somebody acts in a conversation from beside its chat, by the grants of that very step."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from palaver.domain.access import Access, AccessRole, Grant, Verdict, decide_access
from palaver.domain.errors import NotAllowed, NotFound
from palaver.domain.ids import decode_id
from palaver.domain.key import canonical, canonical_source
from palaver.domain.session import Principal, Session, identity_of, source_behind
from palaver.domain.source import Source, Trust
from palaver.domain.turn import Received
from palaver.ports.access import Table
from palaver.ports.repositories import Store
from palaver.ports.work import Steps, work

__all__ = ["Standing", "by_now", "canonical_grants", "standing"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    session: Session
    source: Source
    """As whom they act there: nobody comes to take part by that."""
    role: AccessRole


@work
def standing(store: Store, fixed: Sequence[Grant], session: str, principal: Principal) -> Steps[Standing]:
    """Who sees everything is the owner; others are what they are in the chat, or else where they come from.

    `fixed` are the grants of the configuration. Raises NotAllowed for whoever is not let in, or is blocked in either.
    """
    found, source = yield from _voice(store, session, principal)
    if principal.sees_all or principal.speaks_as is None:
        role = AccessRole.OWNER if principal.sees_all else None
    else:
        come = source_behind(principal.speaks_as)
        here = yield from _decided(store, fixed, source if source.user_id else come)
        there = yield from _decided(store, fixed, come)
        role = None if there.verdict is Verdict.REFUSE and there.grant else here.role
    if role is None:
        raise NotAllowed("What is done in a conversation", AccessRole.GUEST.text)
    return Standing(session=found, source=source, role=role)


def _voice(store: Store, session: str, principal: Principal) -> Steps[tuple[Session, Source]]:
    found = yield from store.sessions.get_visible(session, principal)
    origin, place = found.origin, replace(found.origin, user_id=None, user_id_alt=None, message_id=None)
    mine = [name.partition(":")[2] for name in principal.identities if name.partition(":")[0] == origin.platform]
    if mine:
        return found, replace(place, user_id=decode_id(min(mine)))
    with suppress(NotFound):
        yield from store.sessions.get_visible(session, Principal.speaking(origin))
        return found, replace(origin, message_id=None) if principal.sees_all else place
    return found, place


@work
def by_now(store: Store, fixed: Sequence[Grant], messages: Sequence[Received]) -> Steps[list[Received]]:
    """Messages of earlier, each by whoever its sender is by now: nobody acts in a role that was taken from them."""
    found: list[Received] = []
    for each in messages:
        # What their adapter saw of them then is not kept: it is taken to be so still, for it gave them no more.
        person = yield from _decided(store, fixed, each.inbound.source, _VOUCHED_FOR)
        bot = yield from _decided(store, fixed, each.inbound.source, _BOT)
        now = max(person.role or AccessRole.GUEST, bot.role or AccessRole.GUEST)
        found.append(replace(each, role=min(each.role or AccessRole.GUEST, now)))
    return found


_VOUCHED_FOR, _BOT = Trust(has_role_grant=True, via_trusted_relay=True), Trust(is_bot=True)


def _decided(store: Store, fixed: Sequence[Grant], source: Source, trust: Trust | None = None) -> Steps[Access]:
    table = yield from store.grants.table(Table())
    aliases = (yield from store.aliases.everywhere()).get(source.platform, {})
    plain = canonical_source(source, aliases)
    grants = canonical_grants((*fixed, *table.grants.values()), source.platform, aliases)
    person = table.people.get(identity_of(plain) or "")
    return decide_access(plain, trust or Trust(), grants, person=person, pairing=False)


def canonical_grants(grants: Iterable[Grant], platform: str, aliases: Mapping[str, str]) -> Iterable[Grant]:
    """A grant to any form of an id is one to all of them; `aliases` are those of the platform."""
    if not aliases:
        return grants
    return [
        replace(grant, user_id=canonical(grant.user_id, aliases))
        if grant.user_id is not None and grant.platform == platform
        else grant
        for grant in grants
    ]
